"""What a room says: its news, what was said before, and messages that nobody has read."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, replace
from typing import NamedTuple

import structlog
from msgspec import structs

from everturn.model import Inbound
from everturn.platform.matrix.calls import Homeserver, best_effort
from everturn.platform.matrix.reading import MatrixReader, answers_to
from everturn.platform.matrix.rooms import STATE, KnownRooms, MatrixRoom
from everturn.platform.matrix.rules import NOT_READ, TOO_MUCH, Forbidden, MatrixNotFound, is_hopeless, is_loud
from everturn.platform.matrix.wire import MARKS, HistoryPage, JoinedRoom, MatrixEvent, content_of, understood

log = structlog.get_logger()
PAGES = 50  # how much of one room's history is read
ENCRYPTED = "m.room.encrypted"
REACTION = "m.reaction"
WANTED = ("m.room.message", "m.sticker", "m.room.redaction", REACTION, ENCRYPTED, *STATE)


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


# The rooms with unread news, each with the place behind which it is unread. As long as there is one, the place of the
# account is not committed, so that the next process reads from there again.


LOOK_EVERY_S = 1.0  # how often we check whether a room is read that took longer than the poll waited for it


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
    """All unread rooms: those that wait, and those that are being read. Times are monotonic."""

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


# Reads the new events of one room: fills gaps in its timeline and turns each event into a message for us.


TOLD = "org.everturn.encrypted"


class RoomNews:
    """Reads the rooms of one account."""

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
