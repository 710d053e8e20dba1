"""Decodes JSON that is nested deeper than a decoder can follow: what is too deep is left out, the rest is read."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TypeVar

import msgspec
import structlog

log = structlog.get_logger()
T = TypeVar("T")
DEEPEST = 64  # levels; what we read of a homeserver's answer has less than twenty
TOO_DEEP = b"null"
# A text, or the beginning or the end of a list or an object. No part of it goes back over what it took.
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[\[\]{}]', re.DOTALL)


class EventName(msgspec.Struct, frozen=True):
    """The id of an event."""

    event_id: str = ""


def decode(raw: bytes | msgspec.Raw, kind: type[T]) -> T:
    """Decode a value. Whoever may write in a room may nest a value a thousand times, and one event must not stop the reading
    of all others: such an event is read without what is too deep. Raises what `msgspec.json.decode` does.
    """
    with suppress(RecursionError):
        return msgspec.json.decode(raw, type=kind)
    flat, events = flattened(bytes(raw))
    log.error("matrix events nested too deep, read in part", events=events[:10], deepest=DEEPEST)
    return msgspec.json.decode(flat, type=kind)


def flattened(raw: bytes) -> tuple[bytes, list[str]]:
    """The same JSON without what is nested deeper than `DEEPEST`, and the ids of the events that lost something. One pass
    without recursion.
    """
    out, taken, depth = bytearray(), 0, 0
    opened: list[tuple[int, bool]] = []  # where each open list or object begins in `out`, and whether it lost something
    events: list[str] = []
    for token in _TOKEN.finditer(raw):
        sign = token[0]
        if sign in b"[{":
            depth += 1
            if depth <= DEEPEST:
                out += raw[taken : token.start()]
                opened.append((len(out), False))
                taken = token.start()
            elif depth == DEEPEST + 1:
                out += raw[taken : token.start()] + TOO_DEEP
                opened[-1] = opened[-1][0], True
        elif sign in b"]}":
            depth -= 1
            if depth >= DEEPEST:
                taken = token.end()
            elif opened:
                out += raw[taken : token.end()]
                taken = token.end()
                _close(out, opened, events)
    return bytes(out + raw[taken:]) if depth < DEEPEST else bytes(out), events


def _close(out: bytearray, opened: list[tuple[int, bool]], events: list[str]) -> None:
    """Close a list or an object: if something is missing in it, it is the event, or a part of one."""
    start, lost = opened.pop()
    if not lost:
        return
    try:
        name = msgspec.json.decode(out[start:], type=EventName).event_id
    except msgspec.DecodeError:
        name = ""
    if name:
        events.append(name)
    elif opened:
        opened[-1] = opened[-1][0], True
