"""Splits a long text into pieces that a platform accepts, at the best place, without breaking code blocks."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Callable

Unit = Callable[[str], int]
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})([^\n]*)", re.MULTILINE)
_GAP = re.compile(r"(?:[ \t\r]*\n)+| +")
_JOINER = "\u200d"
# What goes on with the emoji before it: tones of skin, and the tags that make a black flag that of a region.
_PARTS = {_JOINER, *map(chr, range(0x1F3FB, 0x1F400)), *map(chr, range(0xE0020, 0xE0080))}
_FLAG_LETTERS = "".join(map(chr, range(0x1F1E6, 0x1F200)))


def utf16(text: str) -> int:
    """The length of `text` in UTF-16 units, which is how several platforms count."""
    return len(text) + sum(character > "\uffff" for character in text)


def storable(text: str) -> str:
    """The text without what a database cannot store: zero characters and halves of pairs."""
    if text.isascii():
        return text.replace("\x00", "\ufffd")
    return text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode()


def split(text: str, limit: int, unit: Unit = len) -> list[str]:
    """Pieces of at most `limit` units, none empty; a code block that is cut is closed and reopened.

    Nothing but whitespace at the cuts is lost. `unit` counts every character as one or more.
    """
    if len(text) <= limit and unit(text) <= limit:
        return [text] if text.strip() else []
    pieces: list[str] = []
    rest, fence = text, ""
    while rest.strip():
        head, foot_units = _repair(rest[: limit + 1], fence, limit, unit)
        if len(rest) <= limit and unit(head + rest) <= limit:
            return [*pieces, head + rest]
        cut = _cut(rest, fence, limit - unit(head) - foot_units, unit)
        body, rest, fence = rest[:cut], _after_gap(rest[cut:]), _open_fence(rest[:cut], fence)
        if body.strip():
            foot = f"\n{_marker(fence)}" if fence and foot_units else ""
            pieces.append(head + body.rstrip() + foot)
    return pieces


def balanced(text: str, tail: str = "") -> str:
    """The text with something at its end, and the code block that is open there closed."""
    fence = _open_fence(text, "")
    return f"{text}{tail}\n{_marker(fence)}" if fence else text + tail


def _repair(window: str, fence: str, limit: int, unit: Unit) -> tuple[str, int]:
    """The line that reopens the block, and the room that closing one may need; nothing when that would cost too much."""
    marker = _marker(fence)
    foot_units = max(len(marker), *(len(match[1]) for match in _FENCE.finditer(window)), 0) + 1
    for opening in (fence, marker):
        head = f"{opening}\n" if opening else ""
        if unit(head) + foot_units <= limit // 2:
            return head, foot_units if foot_units > 1 else 0
    return "", 0


def _cut(rest: str, fence: str, room: int, unit: Unit) -> int:
    fits = bisect_right(range(min(len(rest), room) + 1), room, key=lambda end: unit(rest[:end])) - 1
    end = max(1, fits)
    cut = _best_break(rest, end) or _whole_character(rest, end)
    return _dangling_fence(rest[:cut], fence) or cut


def _best_break(rest: str, end: int) -> int:
    """A paragraph, line or word break in the second half; else any line or word break; 0 when there is none."""
    half = max(1, end // 2)
    for separator, least in (("\n\n", half), ("\n", half), (" ", half), ("\n", 1), (" ", 1)):
        at = rest.rfind(separator, least, end + len(separator))
        if at > 0:
            return at
    return 0


def _whole_character(rest: str, end: int) -> int:
    """`end`, moved a little to the left where it would part a letter from its marks, an emoji from its parts, or a flag."""
    for cut in range(end, max(0, end - 16), -1):
        if rest[cut - 1] != _JOINER and not _continues(rest[cut : cut + 1]) and not _parts_flag(rest, cut):
            return cut
    return end


def _continues(character: str) -> bool:
    return character != "" and (character in _PARTS or unicodedata.category(character).startswith("M"))


def _parts_flag(rest: str, cut: int) -> bool:
    """A flag is two letters of its own alphabet: of several in a row every second belongs to the one before it."""
    before = len(rest[:cut]) - len(rest[:cut].rstrip(_FLAG_LETTERS))
    return before % 2 == 1 and rest[cut : cut + 1] != "" and rest[cut] in _FLAG_LETTERS


def _dangling_fence(body: str, fence: str) -> int:
    """Where the last line begins if it opens a block after other text: it belongs to the next piece. 0 otherwise."""
    last = max((match.start() for match in _FENCE.finditer(body)), default=0)
    alone = "\n" not in body[last:].rstrip()
    return last if alone and body[:last].strip() and _open_fence(body, fence) else 0


def _open_fence(body: str, fence: str) -> str:
    """The opening line of the block that is open at the end of `body`, when `fence` was open before it."""
    for match in _FENCE.finditer(body):
        marker, info = match[1], match[2].strip()
        if not fence and "`" not in info:
            fence = marker + info
        elif fence and not info and marker.startswith(_marker(fence)):
            fence = ""
    return fence


def _marker(fence: str) -> str:
    return fence[: len(fence) - len(fence.lstrip(fence[:1]))]


def _after_gap(rest: str) -> str:
    """Without the whitespace the cut replaces; a line keeps its indentation."""
    gap = _GAP.match(rest)
    return rest[gap.end() :] if gap else rest
