"""The CA bundle that adapters trust, loaded once."""

from __future__ import annotations

import ssl
from functools import cache

import httpx2


@cache
def trusted() -> ssl.SSLContext:
    """The TLS context with the CA bundle. Loading it blocks for a tenth of a second, and is done once in a process."""
    return httpx2.create_ssl_context()
