"""Store urls: which engine a url names, and the url without its password for logs."""

from __future__ import annotations

import re
from pathlib import Path

_USER_PASSWORD = re.compile(r"://([^:/@]*):.*@")  # a password may hold any sign, so up to the last @
_QUERY_PASSWORD = re.compile(r"([?&](?:ssl)?password=)[^&]*")

_SQLITE_PATH = re.compile(r"sqlite:///(?:/*(?P<posix>/.+)|(?P<drive>[A-Za-z]:/.+)|(?P<short>[^/].*))")


def sqlite_path(url: str) -> Path | None:
    """Return the absolute path that `sqlite:///path` or `sqlite:////path` names; None for another url."""
    found = _SQLITE_PATH.fullmatch(url)
    if found is None:
        return None
    return Path(found["posix"] or found["drive"] or f"/{found['short']}")


def without_password(url: str) -> str:
    """Return the url without its password, for logs."""
    return _QUERY_PASSWORD.sub(r"\1***", _USER_PASSWORD.sub(r"://\1@", url))
