"""What a homeserver sends, as values; what is nested too deeply is refused before it is decoded."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, TypeVar

import msgspec
import structlog

log = structlog.get_logger()
T = TypeVar("T")
_MEDIA = re.compile(r"mxc://[A-Za-z0-9][A-Za-z0-9.:\[\]-]{0,254}/[A-Za-z0-9_=-]{1,255}")
ID_BYTES = (
    255  # of any id, with the sign it begins with: https://spec.matrix.org/latest/appendices/#common-identifier-format
)

CHOICES = "org.everturn.choices"  # in an approval request of ours: the command of each emoji
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)  # what decoding JSON raises
MARKS = tuple(f"{number}\ufe0f\u20e3" for number in range(1, 10))
DEEPEST = 64  # levels; what we read of a homeserver's answer has less than twenty
TOO_DEEP = b"null"
# A text, or the beginning or the end of a list or an object. No part of it goes back over what it took.
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[\[\]{}]', re.DOTALL)


class Unsigned(msgspec.Struct, frozen=True):
    """The `unsigned` field, which the server adds."""

    prev_content: dict[str, Any] = {}
    relations: Any = msgspec.field(name="m.relations", default=None)


class MatrixEvent(msgspec.Struct, frozen=True):
    """An event in a room; in an invitation its id and time are missing."""

    type: str
    sender: str
    content: dict[str, Any] = {}
    event_id: str = ""
    origin_server_ts: float = 0
    state_key: str | None = None
    redacts: str = ""
    unsigned: Unsigned = Unsigned()

    @property
    def said_at(self) -> float | None:
        """When it was sent, in seconds; None for an impossible time: the sender's server chose it."""
        seconds = self.origin_server_ts / 1000
        return seconds if math.isfinite(seconds) and 0 < seconds < 1e11 else None

    def membership_of(self, user: str) -> str:
        """The membership that it gives to a user; empty if it does not."""
        if self.type != "m.room.member" or self.state_key != user:
            return ""
        return text_of(self.content, "membership")


class Content(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a message or a sticker. A field that makes no sense counts as missing: the rest is still a message."""

    body: str
    msgtype: str
    url: str
    filename: str
    mime: str
    size: int
    seconds: int
    voice: bool
    mentions: tuple[str, ...]
    rel_type: str
    related: str  # the event that `rel_type` is about
    reply_to: str
    key: str  # the emoji of a reaction
    falling_back: bool  # the reply is only there for clients without threads
    new: dict[str, Any]  # the new content of an edit


class Events(msgspec.Struct, frozen=True):
    """A list of events."""

    events: list[msgspec.Raw] = []


class Timeline(msgspec.Struct, frozen=True):
    """New events in a room, oldest first; limited: there are more between these and the last sync."""

    events: list[msgspec.Raw] = []
    limited: bool = False
    prev_batch: str | None = None


class JoinedRoom(msgspec.Struct, frozen=True):
    """A room that we are in, in a sync."""

    timeline: Timeline = Timeline()
    state: Events = Events()


class Invited(msgspec.Struct, frozen=True):
    """A room that we are invited to, in a sync."""

    invite_state: Events = Events()


class Rooms(msgspec.Struct, frozen=True):
    """The rooms of a sync, by id."""

    join: dict[str, JoinedRoom] = {}
    invite: dict[str, Invited] = {}
    leave: dict[str, msgspec.Raw] = {}


class Sync(msgspec.Struct, frozen=True):
    """https://spec.matrix.org/latest/client-server-api/#get_matrixclientv3sync"""

    next_batch: str
    rooms: Rooms = Rooms()


class HistoryPage(msgspec.Struct, frozen=True):
    """A page of a room's history; without an end there is no more."""

    chunk: list[msgspec.Raw] = []
    end: str | None = None


class MatrixFailure(msgspec.Struct, frozen=True):
    """An error response."""

    errcode: str = ""
    error: str = ""
    retry_after_ms: float | None = None


class SmallResponse(msgspec.Struct, frozen=True):
    """The small responses: each call has one of these fields."""

    user_id: str = ""
    device_id: str = ""
    event_id: str = ""
    content_uri: str = ""
    joined_rooms: list[str] = []
    replacement_room: str = ""


def understood(raw: Iterable[msgspec.Raw]) -> list[MatrixEvent]:
    """The events that can be read; each other one is logged."""
    found = (read(each, MatrixEvent) for each in raw)
    return [each for each in found if each is not None]


def read(raw: bytes | msgspec.Raw, kind: type[T]) -> T | None:
    """Decode one value; None, with a line in the log, for what cannot be decoded."""
    try:
        return decode(raw, kind)
    except UNREADABLE as error:
        log.info("matrix value not readable", what=kind.__name__, error=str(error))
        return None


def content_of(content: dict[str, Any]) -> Content:
    """Read a message's content."""
    relation, info = _part(content, "m.relates_to"), _part(content, "info")
    people = _part(content, "m.mentions").get("user_ids")
    return Content(
        body=text_of(content, "body"),
        msgtype=text_of(content, "msgtype"),
        url=text_of(content, "url"),
        filename=text_of(content, "filename"),
        mime=text_of(info, "mimetype"),
        size=_number(info, "size"),
        seconds=_number(info, "duration") // 1000,
        voice="org.matrix.msc3245.voice" in content,
        mentions=tuple(each for each in people if isinstance(each, str)) if isinstance(people, list) else (),
        rel_type=text_of(relation, "rel_type"),
        related=event_id_of(relation.get("event_id")),
        reply_to=event_id_of(_part(relation, "m.in_reply_to").get("event_id")),
        key=text_of(relation, "key"),
        falling_back=relation.get("is_falling_back") is True,
        new=_part(content, "m.new_content"),
    )


def as_it_reads(event: MatrixEvent) -> Content:
    """A message's content after its last edit, where the server includes it."""
    relations = event.unsigned.relations
    edit = _part(_part(relations if isinstance(relations, dict) else {}, "m.replace"), "content")
    return content_of(_part(edit, "m.new_content") or event.content)


def is_media(address: str) -> bool:
    """Whether this is an mxc:// address."""
    return _MEDIA.fullmatch(address) is not None and ".." not in address


def event_id_of(value: object) -> str:
    """The id of an event that somebody names; empty for an impossible one. It becomes part of URLs and of keys."""
    return _id(value, "$")


def room_id_of(value: object) -> str:
    """The id of a room that somebody names; empty for an impossible one."""
    return _id(value, "!")


def _id(value: object, sign: str) -> str:
    if not isinstance(value, str) or not value.startswith(sign) or not value.isprintable():
        return ""
    return value if len(value.encode()) <= ID_BYTES else ""


def text_of(content: dict[str, Any], name: str) -> str:
    """A text field; empty for anything else: to convert whatever a stranger wrote may fail."""
    value = content.get(name)
    return value if isinstance(value, str) else ""


def _part(content: dict[str, Any], name: str) -> dict[str, Any]:
    value = content.get(name)
    return value if isinstance(value, dict) else {}


def _number(content: dict[str, Any], name: str) -> int:
    value = content.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


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
