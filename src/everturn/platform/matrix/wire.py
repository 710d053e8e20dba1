"""What a homeserver says, and only what we use of it. Events are read one by one: whoever may write in a room may write
nonsense, and it must not hold up the others.

https://spec.matrix.org/latest/client-server-api/
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec
import structlog

from everturn.platform.matrix.nesting import decode

log = structlog.get_logger()
T = TypeVar("T")
_MEDIA = re.compile(r"mxc://[A-Za-z0-9][A-Za-z0-9.:\[\]-]{0,254}/[A-Za-z0-9_=-]{1,255}")
ID_BYTES = (
    255  # of any id, with the sign it begins with: https://spec.matrix.org/latest/appendices/#common-identifier-format
)

CHOICES = "org.everturn.choices"  # in a question of ours: the command that each emoji stands for
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)  # what reading of JSON raises
MARKS = tuple(f"{number}\ufe0f\u20e3" for number in range(1, 10))


class Unsigned(msgspec.Struct, frozen=True):
    """What the server adds."""

    prev_content: dict[str, Any] = {}
    relations: Any = msgspec.field(name="m.relations", default=None)


class Event(msgspec.Struct, frozen=True):
    """Something that happened in a room; in an invitation its id and time are missing."""

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
        """When, in seconds; None for a time that is none: its sender's server chose it."""
        seconds = self.origin_server_ts / 1000
        return seconds if math.isfinite(seconds) and 0 < seconds < 1e11 else None

    def membership_of(self, user: str) -> str:
        """What it says of somebody's being in the room; empty if it does not."""
        if self.type != "m.room.member" or self.state_key != user:
            return ""
        return text_of(self.content, "membership")


class Content(msgspec.Struct, frozen=True, kw_only=True):
    """A message or a sticker. What of it makes no sense is as if it were not there: the rest is still somebody's words."""

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
    new: dict[str, Any]  # what an edit puts in place of it


class Events(msgspec.Struct, frozen=True):
    """A list of them."""

    events: list[msgspec.Raw] = []


class Timeline(msgspec.Struct, frozen=True):
    """What happened in a room, oldest first; limited: there is more between it and what was read before."""

    events: list[msgspec.Raw] = []
    limited: bool = False
    prev_batch: str | None = None


class Joined(msgspec.Struct, frozen=True):
    """News of a room that we are in."""

    timeline: Timeline = Timeline()
    state: Events = Events()


class Invited(msgspec.Struct, frozen=True):
    """A room that we are asked into."""

    invite_state: Events = Events()


class Rooms(msgspec.Struct, frozen=True):
    """By the room's id."""

    join: dict[str, Joined] = {}
    invite: dict[str, Invited] = {}
    leave: dict[str, msgspec.Raw] = {}


class Sync(msgspec.Struct, frozen=True):
    """https://spec.matrix.org/latest/client-server-api/#get_matrixclientv3sync"""

    next_batch: str
    rooms: Rooms = Rooms()


class Page(msgspec.Struct, frozen=True):
    """A page of a room's history; without an end there is no more."""

    chunk: list[msgspec.Raw] = []
    end: str | None = None


class Failure(msgspec.Struct, frozen=True):
    """Why the server says no."""

    errcode: str = ""
    error: str = ""
    retry_after_ms: float | None = None


class Known(msgspec.Struct, frozen=True):
    """Small answers: each call has one of these."""

    user_id: str = ""
    device_id: str = ""
    event_id: str = ""
    content_uri: str = ""
    joined_rooms: list[str] = []
    replacement_room: str = ""


def understood(raw: Iterable[msgspec.Raw]) -> list[Event]:
    """The events that can be read; of the others there is a line in the log."""
    found = (read(each, Event) for each in raw)
    return [each for each in found if each is not None]


def read(raw: bytes | msgspec.Raw, kind: type[T]) -> T | None:
    """One value; None, with a line in the log, for what no reading fits."""
    try:
        return decode(raw, kind)
    except UNREADABLE as error:
        log.info("something of matrix is not understood", what=kind.__name__, error=str(error))
        return None


def content_of(content: dict[str, Any]) -> Content:
    """A message's content."""
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


def as_it_reads(event: Event) -> Content:
    """A message's content after its last edit, where the server tells of one."""
    relations = event.unsigned.relations
    edit = _part(_part(relations if isinstance(relations, dict) else {}, "m.replace"), "content")
    return content_of(_part(edit, "m.new_content") or event.content)


def is_media(address: str) -> bool:
    """Whether this is the address of a file."""
    return _MEDIA.fullmatch(address) is not None and ".." not in address


def event_id_of(value: object) -> str:
    """The id of an event that somebody names; empty for what can be none. It becomes part of addresses and of keys."""
    return _id(value, "$")


def room_id_of(value: object) -> str:
    """The same for a room's."""
    return _id(value, "!")


def _id(value: object, sign: str) -> str:
    if not isinstance(value, str) or not value.startswith(sign) or not value.isprintable():
        return ""
    return value if len(value.encode()) <= ID_BYTES else ""


def text_of(content: dict[str, Any], name: str) -> str:
    """A text; empty for what is none: to make one of whatever a stranger wrote may fail."""
    value = content.get(name)
    return value if isinstance(value, str) else ""


def _part(content: dict[str, Any], name: str) -> dict[str, Any]:
    value = content.get(name)
    return value if isinstance(value, dict) else {}


def _number(content: dict[str, Any], name: str) -> int:
    value = content.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
