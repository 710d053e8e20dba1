"""Where a store is: which engine a url names, and how it is shown without its password."""

from __future__ import annotations

import re
from pathlib import Path

_USER_PASSWORD = re.compile(r"://([^:/@]*):.*@")  # a password may hold any sign, so up to the last @
_QUERY_PASSWORD = re.compile(r"([?&](?:ssl)?password=)[^&]*")

_SQLITE_PATH = re.compile(r"sqlite:///(?:/*(?P<posix>/.+)|(?P<drive>[A-Za-z]:/.+)|(?P<short>[^/].*))")


def sqlite_path(url: str) -> Path | None:
    """The absolute path that `sqlite:///path` or `sqlite:////path` names."""
    found = _SQLITE_PATH.fullmatch(url)
    if found is None:
        return None
    return Path(found["posix"] or found["drive"] or f"/{found['short']}")


def without_password(url: str) -> str:
    """The url as it may be logged."""
    return _QUERY_PASSWORD.sub(r"\1***", _USER_PASSWORD.sub(r"://\1@", url))
