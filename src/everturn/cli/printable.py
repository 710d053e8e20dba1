"""Other people's text on a terminal: what could steer it is left out."""

from __future__ import annotations

import re

_STEERS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def printable(text: str) -> str:
    """The text without control characters other than line ends and tabs."""
    return _STEERS.sub("", text)
