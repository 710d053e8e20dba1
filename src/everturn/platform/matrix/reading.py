"""Reads Matrix: which rooms have news, the gaps in their timelines, and what of an event is a message for us."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, replace
from typing import NamedTuple

import structlog
from msgspec import structs

from everturn.commands.rules.registry import parse_command
from everturn.inbox.rules import STILL, in_reply, placeholders
from everturn.model import Attachment, Heard, Inbound, SessionSource
from everturn.platform.matrix.calls import Homeserver, best_effort
from everturn.platform.matrix.rooms import STATE, KnownRooms, MatrixRoom
from everturn.platform.matrix.rules import (
    NOT_READ,
    TOO_MUCH,
    Forbidden,
    MatrixNotFound,
    for_us,
    is_hopeless,
    is_loud,
    without_fallback,
)
from everturn.platform.matrix.wire import (
    CHOICES,
    MARKS,
    Content,
    HistoryPage,
    JoinedRoom,
    MatrixEvent,
    as_it_reads,
    content_of,
    event_id_of,
    is_media,
    understood,
)

NAME = "matrix"
TEXT_TYPES = frozenset({"m.text", "m.emote", "m.location"})  # an m.notice is from a program, and nobody answers it
SAID = frozenset({"m.room.message", "m.sticker"})
FILES = {"m.image": "image", "m.audio": "audio", "m.video": "video", "m.file": "document"}
log = structlog.get_logger()
PAGES = 50  # how much of one room's history is read
ENCRYPTED = "m.room.encrypted"
REACTION = "m.reaction"
WANTED = ("m.room.message", "m.sticker", "m.room.redaction", REACTION, ENCRYPTED, *STATE)
LOOK_EVERY_S = 1.0  # how often we check whether a room is read that took longer than the poll waited for it
TOLD = "org.everturn.encrypted"


@dataclass(frozen=True, slots=True)
class MatrixReader:
    """Reads events for one account. `listening`: in groups every message is for us, not only those that address us."""

    user: str
    listening: bool = False

    def read(self, event: MatrixEvent, room: MatrixRoom, answered: MatrixEvent | None = None) -> Inbound | None:
        """The message of an event; None if it is not for us. `answered`: the message to which it is a reply."""
        if event.sender == self.user or event.state_key is not None or not event.event_id:
            return None
        if event.type == "m.room.redaction":
            return self._deletion(event, room)
        if event.type not in SAID:
            return None
        content = content_of(event.content)
        edited = content.related if content.rel_type == "m.replace" else ""
        new = content_of(content.new) if edited else content
        return self._message(event, new, room, edited, answered)

    def press(self, event: MatrixEvent, asked: MatrixEvent, room: MatrixRoom) -> Inbound | None:
        """The command of a reaction to an approval request of ours, sent by the person who reacted; None if it is none."""
        choices = asked.content.get(CHOICES)
        mark = content_of(event.content).key
        command = choices.get(mark) if isinstance(choices, dict) and asked.sender == self.user else None
        if not isinstance(command, str) or event.sender == self.user:
            return None
        source = structs.replace(self._source(event, room, content_of(asked.content)), message_id=asked.event_id)
        return Inbound(id=event.event_id, source=source, text=command, said_at=event.said_at)

    def moved(self, room: MatrixRoom) -> Inbound:
        """The notice that a room replaced another one."""
        source = SessionSource(platform=NAME, account=self.user, chat_id=room.id, chat_type="group")
        return Inbound(id=f"moved-{room.id}", source=source, text="", what=Heard.MOVED, of=room.before)

    def _message(
        self, event: MatrixEvent, content: Content, room: MatrixRoom, edited: str, answered: MatrixEvent | None
    ) -> Inbound | None:
        """The message of an event. An edit says neither to what it replies nor, always, whom it mentions: whether it is for us
        depends on the message it changes, and an edit of a message that was not for us is dropped.
        """
        files = _attachments(event.type, content)
        if not files and content.msgtype not in TEXT_TYPES:
            return None
        full = self._text(event, content, room, files)
        said = for_us(
            full,
            self.user,
            room.people.get(self.user, ""),
            direct=room.direct,
            mentioned=self.user in content.mentions,
            reply_to_us=answered is not None and answered.sender == self.user,
            listening=self.listening or bool(edited),
        )
        text = said if said is None or said.strip() else placeholders(files) or full.strip()  # nothing but our name
        if not text:
            return None
        if answered is not None and parse_command(text) is None:
            text, files = self._in_reply(text, answered, room), (*files, *files_of(answered))
        return Inbound(
            id=event.event_id,
            source=self._source(event, room, content),
            text=text,
            what=Heard.EDITED if edited else Heard.SAID,
            of=edited or None,
            attachments=files,
            said_at=event.said_at,
        )

    def _text(self, event: MatrixEvent, content: Content, room: MatrixRoom, files: tuple[Attachment, ...]) -> str:
        if files:
            return _beneath(content)
        text = body_of(content)
        return f"* {room.called(event.sender)} {text}" if content.msgtype == "m.emote" else text

    def _in_reply(self, text: str, answered: MatrixEvent, room: MatrixRoom) -> str:
        """The text with the message that it replies to."""
        author = None if answered.sender == self.user else room.called(answered.sender)
        content, files = as_it_reads(answered), files_of(answered)
        return in_reply(text, _beneath(content) or placeholders(files) if files else body_of(content), author)

    def _deletion(self, event: MatrixEvent, room: MatrixRoom) -> Inbound | None:
        gone = event_id_of(event.redacts or event.content.get("redacts"))
        if not gone:
            return None
        return Inbound(
            id=event.event_id,
            source=self._source(event, room, content_of({})),
            text="",
            what=Heard.DELETED,
            of=gone,
            said_at=event.said_at,
        )

    def _source(self, event: MatrixEvent, room: MatrixRoom, content: Content) -> SessionSource:
        return SessionSource(
            platform=NAME,
            account=self.user,
            chat_id=room.id,
            chat_type="dm" if room.direct else "group",
            thread_id=(content.related or None) if content.rel_type == "m.thread" else None,
            user_id=event.sender,
            user_name=room.called(event.sender),
            chat_name=None if room.direct else room.title(self.user),
            message_id=event.event_id,
        )


def files_of(event: MatrixEvent) -> tuple[Attachment, ...]:
    """The attachment of an event, if it is a file."""
    return _attachments(event.type, as_it_reads(event))


def _beneath(content: Content) -> str:
    """The caption of a file; without one the body is the file's name."""
    return content.body if content.filename and content.filename != content.body else ""


def body_of(content: Content) -> str:
    """The text, without the quoted message."""
    return without_fallback(content.body) if content.reply_to else content.body


def answers_to(event: MatrixEvent) -> str:
    """The id of the message that this one replies to, without a thread's fallback for clients without threads."""
    content = content_of(event.content)
    return "" if event.type not in SAID or content.falling_back else content.reply_to


def _attachments(kind: str, content: Content) -> tuple[Attachment, ...]:
    what = "sticker" if kind == "m.sticker" else FILES.get(content.msgtype)
    if what is None:
        return ()
    address = content.url if is_media(content.url) else ""  # without one it cannot be fetched, and the agent sees that
    file = Attachment(
        kind="voice" if what == "audio" and content.voice else what,
        ref=address,
        name="" if what == "sticker" else content.filename or content.body,
        mime=content.mime,
        size=content.size,
        text=content.body if what == "sticker" else "",
        seconds=content.seconds,
        unique=address if what == "sticker" else "",
        moving=what == "sticker" and content.mime not in STILL,
    )
    return (file,)


@dataclass(frozen=True, slots=True)
class Missed:
    """The events that were found, oldest first; not whole: there was more than is read."""

    events: list[MatrixEvent]
    whole: bool

    def followed_by(self, events: list[MatrixEvent]) -> Missed:
        """These events with later ones after them."""
        return Missed([*self.events, *events], self.whole)


class History:
    """The history of one account's rooms. Each call raises PlatformError."""

    def __init__(self, server: Homeserver, user: str) -> None:
        self._server = server
        self._user = user
        self._of_others = json.dumps({"types": WANTED, "not_senders": [user]})
        self._of_all = json.dumps({"types": WANTED})

    async def missed(self, room_id: str, start: str, since: str) -> Missed:
        """The events between two places."""
        found: list[MatrixEvent] = []
        for _ in range(PAGES):
            page = await self._server.messages(room_id, start, self._of_others, end=since)
            found += understood(page.chunk)
            if is_last(page, start):
                return Missed(found[::-1], whole=True)
            start = page.end or ""
        return _too_much(room_id, found)

    async def since_invited(self, room_id: str, start: str, events: list[MatrixEvent]) -> Missed:
        """These newest events, and what people sent between inviting us and our joining: that is for us as well. Where we may
        not look so far back, only these.
        """
        found = events[::-1]
        for _ in range(PAGES):
            entered = next((place for place, each in enumerate(found) if self._entered(each)), None)
            if entered is not None:
                return Missed(found[:entered][::-1], whole=True)
            page = await self._server.messages(room_id, start, self._of_all)
            found += understood(page.chunk)
            if is_last(page, start):
                return Missed(events, whole=True)
            start = page.end or ""
        return _too_much(room_id, found)

    def _entered(self, event: MatrixEvent) -> bool:
        membership = event.membership_of(self._user)
        before = event.unsigned.prev_content.get("membership")
        return membership == "invite" or (membership == "join" and before not in {"invite", "join"})


def is_last(page: HistoryPage, start: str) -> bool:
    """Whether a page is the last one. An empty page may have more behind it: the server hides events we may not see."""
    return not page.end or page.end == start


def _too_much(room_id: str, found: list[MatrixEvent]) -> Missed:
    log.error("matrix history too long, oldest events skipped", room=room_id, read=len(found))
    return Missed(found[::-1], whole=False)


@dataclass(frozen=True, slots=True)
class Unread:
    """The unread news of one room: the newest events, and all behind `since`."""

    about: JoinedRoom
    since: str
    new: bool  # we joined the room with it
    failures: int = 0
    failing_since: float = 0.0
    not_before: float = 0.0
    error: str = ""

    def followed_by(self, later: Unread) -> Unread:
        """These news with later ones, before which there is a gap now."""
        timeline = structs.replace(later.about.timeline, limited=True)
        return replace(self, about=structs.replace(later.about, timeline=timeline), new=self.new or later.new)


class RoomRead(NamedTuple):
    """A room that is being read."""

    unread: Unread
    task: asyncio.Task[list[Inbound]]


Read = Callable[[str, Unread], Coroutine[object, object, list[Inbound]]]


class UnreadRooms:
    """All unread rooms, each with the place behind which it is unread: those that wait, and those that are being read.

    As long as there is one, the place of the account is not committed, so that the next process reads from there again. Times
    are monotonic.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._rooms: dict[str, Unread] = {}
        self._begun: dict[str, RoomRead] = {}

    def __bool__(self) -> bool:
        return bool(self._rooms or self._begun)

    def clear(self) -> None:
        """Drop all of them: everything is read again, from a place before them."""
        for room_id in [*self._rooms, *self._begun]:
            self.drop(room_id)

    def drop(self, room_id: str) -> None:
        """Drop a room that we left."""
        self._rooms.pop(room_id, None)
        if room_id in self._begun:
            self._begun.pop(room_id).task.cancel()

    def add(self, room_id: str, unread: Unread) -> None:
        """Add news of a room."""
        before = self._rooms.get(room_id)
        self._rooms[room_id] = before.followed_by(unread) if before else unread

    async def read(self, read: Read, patience_s: float) -> AsyncIterator[list[Inbound]]:
        """Begin to read the rooms that are due, concurrently. A room's messages are yielded as soon as it is read, also those
        of a room that was begun before; rooms that take longer than `patience_s` are left for the next call.
        """
        begun = [self._begin(room_id, read) for room_id in self._due()]
        now = asyncio.get_running_loop().time
        until = now() + patience_s
        while True:
            while (room_id := self._finished()) is not None:
                yield self._begun.pop(room_id).task.result()
            left = [each for each in begun if not each.done()]
            if not left or now() >= until:
                return
            await asyncio.wait(left, timeout=until - now(), return_when=asyncio.FIRST_COMPLETED)

    def _due(self) -> list[str]:
        """The rooms to read now. Not those that are being read: what arrived since is read after it."""
        waiting = ((each, unread) for each, unread in self._rooms.items() if each not in self._begun)
        return [each for each, unread in waiting if unread.not_before <= self._now()]

    def _begin(self, room_id: str, read: Read) -> asyncio.Task[list[Inbound]]:
        unread = self._rooms.pop(room_id)
        task = asyncio.create_task(read(room_id, unread))
        self._begun[room_id] = RoomRead(unread, task)
        return task

    def _finished(self) -> str | None:
        return next((each for each, begun in self._begun.items() if begun.task.done()), None)

    def put_back(self, room_id: str, unread: Unread, error: str, wait_s: float) -> bool:
        """Put a room back that could not be read; returns whether it is retried, with what arrived since."""
        now, failures = self._now(), unread.failures + 1
        since = unread.failing_since if unread.failures else now
        if is_hopeless(failures, now - since):
            return False
        again = replace(unread, failures=failures, failing_since=since, not_before=now + wait_s, error=error)
        later = self._rooms.get(room_id)
        self._rooms[room_id] = again.followed_by(later) if later else again
        return True

    def next_in_s(self, longest_s: float) -> float:
        """Seconds until a room may be read again, or may have been read; at most `longest_s`."""
        waits = [each.not_before - self._now() for room_id, each in self._rooms.items() if room_id not in self._begun]
        looks = [LOOK_EVERY_S] if self._begun else []
        return max(0.0, min([longest_s, *looks, *waits]))

    def trouble(self) -> str | None:
        """What is wrong with the rooms, as a text for the owner, once it lasts."""
        all_of_them = self._rooms | {room_id: begun.unread for room_id, begun in self._begun.items()}
        loud = [(room_id, each.error) for room_id, each in all_of_them.items() if is_loud(each.failures)]
        if not loud:
            return None
        room_id, error = loud[0]
        others = f" (and {len(loud) - 1} more)" if len(loud) > 1 else ""
        return f"the room {room_id}{others} cannot be read, all others can: {error}"


class RoomNews:
    """Reads the new events of one account's rooms: fills gaps in the timelines and turns each event into a message for us."""

    def __init__(self, server: Homeserver, reader: MatrixReader, rooms: KnownRooms) -> None:
        self._server = server
        self._reader = reader
        self._rooms = rooms
        self._history = History(server, reader.user)

    async def read(self, room_id: str, unread: Unread) -> list[Inbound]:
        """The messages for us in one room. Raises PlatformError."""
        events = await self._whole(room_id, unread)
        if not unread.new and not any(each.state_key is None for each in events):
            return []
        room = await self._rooms.get(room_id)
        said = [await self._read(event, room) for event in events]
        return [*(await self._moved(room) if unread.new else ()), *(each for each in said if each is not None)]

    async def _whole(self, room_id: str, unread: Unread) -> list[MatrixEvent]:
        """The new events of a room without a gap; for a room that we just joined, everything since the invitation."""
        timeline = unread.about.timeline
        events, start = understood(timeline.events), timeline.prev_batch or ""
        if unread.new:
            found = await self._history.since_invited(room_id, start, events)
        elif timeline.limited:
            found = (await self._history.missed(room_id, start, unread.since)).followed_by(events)
        else:
            return events
        if not found.whole:
            await best_effort(self.tell(room_id, TOO_MUCH, "too-much", unread.since))
        return found.events

    async def _moved(self, room: MatrixRoom) -> list[Inbound]:
        """The notice that the room replaces another one, if that one confirms it: its conversations continue here."""
        if room.before and await self._server.successor(room.before) == room.id:
            return [self._reader.moved(room)]
        return []

    async def _read(self, event: MatrixEvent, room: MatrixRoom) -> Inbound | None:
        if event.type == REACTION:
            return await self._press(event, room)
        if event.type == ENCRYPTED and event.sender != self._reader.user:
            await best_effort(self._tell_encrypted(room.id))
            return None
        asked = answers_to(event)
        return self._reader.read(event, room, await self._answered(room.id, asked) if asked else None)

    async def _press(self, event: MatrixEvent, room: MatrixRoom) -> Inbound | None:
        content = content_of(event.content)
        if content.key not in MARKS or not content.related:
            return None
        try:
            return self._reader.press(event, await self._server.event(room.id, content.related), room)
        except (Forbidden, MatrixNotFound):
            return None

    async def _answered(self, room_id: str, event_id: str) -> MatrixEvent | None:
        """The message that somebody replies to, if it can be seen."""
        try:
            return await self._server.event(room_id, event_id)
        except (Forbidden, MatrixNotFound):
            return None

    async def _tell_encrypted(self, room_id: str) -> None:
        """Say once in a room that it is encrypted. A note on the server and the transaction id prevent a repetition."""
        if not await self._server.noted(self._reader.user, room_id, TOLD):
            await self.tell(room_id, NOT_READ, "encrypted")
            await self._server.note(self._reader.user, room_id, TOLD)

    async def tell(self, room_id: str, text: str, what: str, place: str = "") -> None:
        """Send a notice of ours to a room, once for each place that was read from; it mentions nobody."""
        of = f"-{hashlib.sha256(place.encode()).hexdigest()[:16]}" if place else ""
        content = {"msgtype": "m.notice", "body": text, "m.mentions": {}}
        await self._server.put(room_id, "m.room.message", content, f"everturn-{what}{of}")
