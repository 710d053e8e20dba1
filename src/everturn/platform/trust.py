"""Whom the adapters believe who they are."""

from __future__ import annotations

import ssl
from functools import cache

import httpx2


@cache
def trusted() -> ssl.SSLContext:
    """The list of who vouches for others. Reading it holds up everything for a tenth of a second, and is done once in a process."""
    return httpx2.create_ssl_context()
