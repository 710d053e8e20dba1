"""Rules of what fits: texts cut to the limits of a platform, and files that go out."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase

from everturn.home.rules import Upload
from everturn.outbox.rules.delivery import MAY_REPEAT, marked

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


# Texts about files that a tool sends: for the model, for platforms without files, and for failed deliveries.


_SECRET = (
    "everturn.toml", "everturn.db*", "api_token", "*.lock", "*token*", "*secret*", "*password*", "*credential*", "*.pem", "*.key",
    "*.p12", "*.pfx", "*.kdbx", "id_rsa*", "id_ed25519*", "id_ecdsa*", "shadow",
)  # fmt: skip
WHY_CHARS = 200
LOST = "the file no longer exists"


def keeps_secrets(parts: Sequence[str]) -> bool:
    """Whether a path names something that must not be sent: hidden files and folders, keys, the gateway's own files."""
    hidden = any(part.startswith(".") for part in parts)
    return hidden or any(fnmatchcase(part.lower(), secret) for part in parts for secret in _SECRET)


def linked(upload: Upload, kind: str, text: str) -> str:
    """The text for the page: the message, and a link to the file; an image is shown."""
    link = f"[{upload.name}]({upload.address})"
    shown = f"!{link}" if kind.startswith("image/") else link
    return f"{text}\n\n{shown}" if text else shown


def beneath_file(body: str, caption: int, text: int, unit: Unit, *, unknown: bool) -> list[str]:
    """The caption of a file, then the messages that follow it with the text that has no room there. Where it may be a
    repetition, the caption says so.
    """
    whole = marked(body).lstrip() if unknown else body
    if unit(whole) <= caption:
        return [whole]
    return [MAY_REPEAT if unknown else "", *split(whole, text, unit)]


def not_here(name: str, text: str) -> str:
    """The text for a platform that takes no files."""
    sentence = f"(I have a file for you, {name}, but files cannot be sent here.)"
    return f"{text}\n\n{sentence}" if text else sentence


def not_sent(name: str, why: str, *, out: int, text: bool, files: bool, unknown: bool) -> str:
    """The notice about a file that failed: what arrived, and what did not. `out`: how many messages of it were sent, of which
    the first is the file itself where the platform takes `files`. `unknown`: the next one may have arrived, too.
    """
    file, belonging = f"the file {name}", f"{'all of ' if out > 1 or not files else ''}the text that belongs to it"
    if out and files:
        have, missing = f"You have {file}, but ", belonging
    elif out:
        have, missing = "", f"{file}, nor {belonging}"
    else:
        have, missing = "", f"{file} and the text that belongs to it" if text else file
    said = f"I do not know whether {missing} reached you" if unknown else f"I could not send you {missing}"
    return f"{have}{said}: {' '.join(why.split())[:WHY_CHARS]}"


def will_be_sent(name: str, to: str, *, takes_files: bool) -> str:
    """The result of the send tool for the model."""
    if takes_files:
        return f"The file {name} will be delivered to {to}."
    return f"Files cannot be sent to {to}: only the name {name} and your text will be delivered."
