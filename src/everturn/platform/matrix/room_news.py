"""Reads the new events of one room: fills gaps in its timeline and turns each event into a message for us."""

from __future__ import annotations

import hashlib

from everturn.model import Inbound
from everturn.platform.matrix.calls import Homeserver, best_effort
from everturn.platform.matrix.history import ENCRYPTED, REACTION, History
from everturn.platform.matrix.reading import MatrixReader, answers_to
from everturn.platform.matrix.rooms import KnownRooms, MatrixRoom
from everturn.platform.matrix.rules.errors import Forbidden, MatrixNotFound
from everturn.platform.matrix.rules.text import NOT_READ
from everturn.platform.matrix.rules.unread import TOO_MUCH
from everturn.platform.matrix.unread import Unread
from everturn.platform.matrix.wire import MARKS, MatrixEvent, content_of, understood

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
