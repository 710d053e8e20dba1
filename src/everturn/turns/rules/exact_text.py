"""Format a tool call for its approval request: every character can be seen, and no two calls look alike.

The text becomes one line. A character that has no shape of its own, or that changes the order or the look of others, is written as an
escape; a backslash of the text is written twice, so that it differs from an escape of ours. Letters of scripts that are written from
right to left stay as they are: a person who reads them could not approve escapes.
"""

from __future__ import annotations

import json
import unicodedata

from everturn.outbox.rules.text import utf16

LONGEST_CALL = 1_900  # in UTF-16 units; a longer one cannot be approved, and so does not run
LONGEST_REQUEST = 2_000  # with the text of a tool in front; the whole fits into one message on every built-in platform
INDENT = "    "  # in front of each line of a call in a request: adapters show such lines in monospace
_NAMED = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}
# Letters, marks and symbols without a shape: fillers, variation selectors and blanks. The other invisible ones are controls or spaces.
# Some are letters only since a newer Unicode: what is escaped must not depend on the version of Python.
BLANK = frozenset(
    chr(code)
    for first, last in (
        (0x034F, 0x034F), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F), (0x2800, 0x2800), (0x3164, 0x3164),
        (0xFE00, 0xFE0F), (0xFFA0, 0xFFA0), (0xFFFC, 0xFFFC), (0x13441, 0x13442), (0x16FE4, 0x16FE4), (0x1D159, 0x1D159),
        (0xE0000, 0xE0FFF),
    )
    for code in range(first, last + 1)
)  # fmt: skip
_MOST_MARKS = 2  # on one letter; more of them cover what stands around it


def exact(text: str) -> str:
    """The text in one line, so that what is seen is what runs."""
    return _escaped(text.replace("\\", "\\\\"))


def exact_json(value: object) -> str:
    """The arguments of a tool as exact JSON in one line; JSON doubles the backslashes of its texts by itself."""
    return _escaped(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def shown(request: str) -> str:
    """A tool's or an agent's own text about a call, escaped line by line; what is exact already stays as it is."""
    return "\n".join(map(_escaped, request.split("\n")))


def fits(call: str) -> bool:
    """Whether an approval request can show the whole call."""
    return utf16(call) <= LONGEST_CALL


def _escaped(text: str) -> str:
    if text.isascii() and text.isprintable():
        return text
    shown: list[str] = []
    marks = _MOST_MARKS  # a mark at the beginning has no letter to stand on
    for char in text:
        kind = unicodedata.category(char)
        marks = marks + 1 if kind[0] == "M" else 0 if kind[0] == "L" else _MOST_MARKS
        hidden = kind[0] in "CZ" and char != " "
        loose = kind == "Me" or (kind[0] == "M" and marks > _MOST_MARKS)
        shown.append(_escape(char) if hidden or loose or char in BLANK else char)
    return "".join(shown)


def _escape(char: str) -> str:
    code = ord(char)
    if char in _NAMED:
        return _NAMED[char]
    return f"\\x{code:02x}" if code <= 0xFF else f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
