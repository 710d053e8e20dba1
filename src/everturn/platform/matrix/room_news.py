"""Reading the news of one room: holes filled, and each event turned into what was said to us."""

from __future__ import annotations

import hashlib

from everturn.decide.matrix_errors import Forbidden, Missing
from everturn.decide.matrix_text import NOT_READ
from everturn.decide.matrix_unread import TOO_MUCH
from everturn.model import Inbound
from everturn.platform.matrix.calls import Homeserver, at_best
from everturn.platform.matrix.history import ENCRYPTED, REACTION, History
from everturn.platform.matrix.reading import Reader, answers_to
from everturn.platform.matrix.rooms import KnownRooms, Room
from everturn.platform.matrix.unread import Unread
from everturn.platform.matrix.wire import MARKS, Event, content_of, understood

TOLD = "org.everturn.encrypted"


class RoomNews:
    """What one account hears in its rooms."""

    def __init__(self, server: Homeserver, reader: Reader, rooms: KnownRooms) -> None:
        self._server = server
        self._reader = reader
        self._rooms = rooms
        self._history = History(server, reader.user)

    async def read(self, room_id: str, unread: Unread) -> list[Inbound]:
        """What was said to us in one room. Raises PlatformError."""
        events = await self._whole(room_id, unread)
        if not unread.new and not any(each.state_key is None for each in events):
            return []
        room = await self._rooms.get(room_id)
        said = [await self._read(event, room) for event in events]
        return [*(await self._moved(room) if unread.new else ()), *(each for each in said if each is not None)]

    async def _whole(self, room_id: str, unread: Unread) -> list[Event]:
        """The news of a room without a hole; of one that we just joined, what was said since we were invited."""
        timeline = unread.about.timeline
        events, start = understood(timeline.events), timeline.prev_batch or ""
        if unread.new:
            found = await self._history.since_invited(room_id, start, events)
        elif timeline.limited:
            found = (await self._history.missed(room_id, start, unread.since)).followed_by(events)
        else:
            return events
        if not found.whole:
            await at_best(self.tell(room_id, TOO_MUCH, "too-much", unread.since))
        return found.events

    async def _moved(self, room: Room) -> list[Inbound]:
        """A room may continue another one: if that one says so, too, its conversations go on here."""
        if room.before and await self._server.successor(room.before) == room.id:
            return [self._reader.moved(room)]
        return []

    async def _read(self, event: Event, room: Room) -> Inbound | None:
        if event.type == REACTION:
            return await self._press(event, room)
        if event.type == ENCRYPTED and event.sender != self._reader.user:
            await at_best(self._tell_encrypted(room.id))
            return None
        asked = answers_to(event)
        return self._reader.read(event, room, await self._answered(room.id, asked) if asked else None)

    async def _press(self, event: Event, room: Room) -> Inbound | None:
        content = content_of(event.content)
        if content.key not in MARKS or not content.related:
            return None
        try:
            return self._reader.press(event, await self._server.event(room.id, content.related), room)
        except (Forbidden, Missing):
            return None

    async def _answered(self, room_id: str, event_id: str) -> Event | None:
        """A message that somebody replies to, if it can be seen."""
        try:
            return await self._server.event(room_id, event_id)
        except (Forbidden, Missing):
            return None

    async def _tell_encrypted(self, room_id: str) -> None:
        """Once in a room: the server keeps that we did, and knows the message again should we die before that."""
        if not await self._server.noted(self._reader.user, room_id, TOLD):
            await self.tell(room_id, NOT_READ, "encrypted")
            await self._server.note(self._reader.user, room_id, TOLD)

    async def tell(self, room_id: str, words: str, what: str, place: str = "") -> None:
        """Say something of ours in a room, once for each place that was read from: nobody asked for it, nobody is called."""
        of = f"-{hashlib.sha256(place.encode()).hexdigest()[:16]}" if place else ""
        content = {"msgtype": "m.notice", "body": words, "m.mentions": {}}
        await self._server.put(room_id, "m.room.message", content, f"everturn-{what}{of}")
