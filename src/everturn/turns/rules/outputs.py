"""Shorten a tool's output for the transcript: all of it, or its head and tail with the way to read the rest."""

from __future__ import annotations

from dataclasses import dataclass

_NEVER_STORED = "\x00"
_INSTEAD = "\ufffd"


@dataclass(frozen=True, slots=True)
class ShortenedOutput:
    """The text for the transcript; `whole` is what is kept beside it, None when nothing was left out."""

    text: str
    whole: str | None = None


def output_id(turn: int, call_id: str) -> str:
    """The name by which the model asks for the rest of an output."""
    return f"{turn}:{call_id}"


def parse_output_id(text: str) -> tuple[int, str] | None:
    """The turn and the call id in the name of an output; None when the text is no such name."""
    turn, _, call_id = text.strip().partition(":")
    if not (turn.isascii() and turn.isdigit() and len(turn) < 20 and call_id):
        return None
    return int(turn), call_id


def storable(text: str) -> str:
    """The text as every database can keep it: no zero bytes, no halves of characters."""
    if _NEVER_STORED in text:
        text = text.replace(_NEVER_STORED, _INSTEAD)
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="replace").decode()
    return text


def shorten(text: str, name: str, limit: int, kept: int) -> ShortenedOutput:
    """Split an output into the text for the transcript and the whole that is stored; both are bounded."""
    text = storable(text)
    if len(text) <= limit:
        return ShortenedOutput(text)
    head, tail = limit * 2 // 3, limit - limit * 2 // 3
    whole = text[:kept]
    lost = f" Only the first {kept} characters were kept." if len(text) > kept else ""
    gap = (
        f"\n[... {len(text) - limit} of {len(text)} characters are left out here.{lost}"
        f" To read them: read_output with id {name!r}, start {head}. ...]\n"
    )
    return ShortenedOutput(text[:head] + gap + text[-tail:], whole)
