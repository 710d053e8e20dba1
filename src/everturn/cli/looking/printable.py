"""Removes control characters from text before it is printed to a terminal."""

from __future__ import annotations

import re

_STEERS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def printable(text: str) -> str:
    """The text without control characters other than line ends and tabs."""
    return _STEERS.sub("", text)
