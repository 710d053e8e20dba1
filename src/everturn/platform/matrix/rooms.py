"""The state of the rooms we are in: names, members, encryption. Fetched when somebody writes there, and kept up to date
by later syncs; a room in which nobody writes costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import structlog

from everturn.errors import OutcomeUnknown, Refused
from everturn.platform.interface import Channel
from everturn.platform.matrix.calls import Homeserver
from everturn.platform.matrix.wire import MatrixEvent, room_id_of, text_of, understood

log = structlog.get_logger()
KEPT = 1000
ENCRYPTION = "m.room.encryption"
STATE = ("m.room.member", "m.room.name", "m.room.canonical_alias", ENCRYPTION)


@dataclass(slots=True)
class MatrixRoom:
    """One room, as its state events say."""

    id: str
    name: str = ""
    alias: str = ""
    encrypted: bool = False
    before: str = ""  # the room that it replaces, as its creator claims
    people: dict[str, str] = field(default_factory=dict)  # who is in it, with the name they show there

    @property
    def direct(self) -> bool:
        """Whether it is a direct chat: of two members, whatever anybody calls it. With a third person it is a group."""
        return len(self.people) <= 2

    def called(self, user: str) -> str:
        """A member's display name in the room."""
        return self.people.get(user) or user[1:].partition(":")[0]

    def title(self, us: str) -> str:
        """The room's title: its name, its address, or its members."""
        others = [self.called(each) for each in sorted(self.people) if each != us]
        return self.name or self.alias or ", ".join(others[:3]) or self.id

    def hear(self, events: Iterable[MatrixEvent]) -> None:
        """Apply state events, in their order."""
        for event in events:
            if event.state_key is not None:
                self._hear(event)

    def _hear(self, event: MatrixEvent) -> None:
        content = event.content
        if event.type == "m.room.member" and event.state_key:
            if content.get("membership") == "join":
                self.people[event.state_key] = text_of(content, "displayname")
            else:
                self.people.pop(event.state_key, None)
        elif event.type == "m.room.name":
            self.name = text_of(content, "name")
        elif event.type == "m.room.canonical_alias":
            self.alias = text_of(content, "alias")
        elif event.type == "m.room.create":
            before = content.get("predecessor")
            self.before = room_id_of(before.get("room_id")) if isinstance(before, dict) else ""
        elif event.type == ENCRYPTION:
            self.encrypted = True  # for ever: encryption cannot be switched off


class KnownRooms:
    """The rooms whose state this process has fetched."""

    def __init__(self, server: Homeserver) -> None:
        self._server = server
        self._rooms: dict[str, MatrixRoom] = {}
        self._asking: dict[
            object, tuple[str, list[MatrixEvent]]
        ] = {}  # the events that arrive for a room while its state is fetched

    async def get(self, room_id: str) -> MatrixRoom:
        """The state of a room, fetched if it is not known. Raises PlatformError."""
        room = self._rooms.get(room_id)
        return room if room is not None else await self._ask(room_id)

    async def _ask(self, room_id: str) -> MatrixRoom:
        """Fetch a room's state. Events that arrive meanwhile are applied to it. A room that we leave meanwhile is not kept."""
        asked, room, meanwhile = object(), MatrixRoom(room_id), list[MatrixEvent]()
        self._asking[asked] = room_id, meanwhile
        try:
            room.hear(understood(await self._server.state(room_id)))
            room.hear(meanwhile)
            if asked in self._asking:
                if len(self._rooms) >= KEPT:
                    self._rooms.pop(next(iter(self._rooms)))
                self._rooms[room_id] = room
        finally:
            self._asking.pop(asked, None)
        return room

    def hear(self, room_id: str, events: Iterable[MatrixEvent]) -> None:
        """Apply new events to a room; those of a room that is not known are ignored."""
        news = list(events)
        if (room := self._rooms.get(room_id)) is not None:
            room.hear(news)
        for asked, meanwhile in self._asking.values():
            if asked == room_id:
                meanwhile.extend(news)

    def forget(self, room_id: str) -> None:
        """Drop a room that we left."""
        self._rooms.pop(room_id, None)
        self._asking = {asked: each for asked, each in self._asking.items() if each[0] != room_id}

    async def is_encrypted(self, room_id: str) -> bool:
        """Whether a room is encrypted now. Raises PlatformError."""
        room = self._rooms.get(room_id)
        return room.encrypted if room is not None else await self._server.is_encrypted(room_id)

    async def channels(self, us: str) -> list[Channel]:
        """The rooms that we are in, without those that cannot be read. Raises PlatformError."""
        rooms = [await self._readable(each) for each in (await self._server.joined_rooms())[:KEPT]]
        return [
            Channel(each.id, each.title(us), "dm" if each.direct else "group") for each in rooms if each is not None
        ]

    async def _readable(self, room_id: str) -> MatrixRoom | None:
        try:
            return await self.get(room_id)
        except (Refused, OutcomeUnknown) as error:
            log.warning("matrix room cannot be listed", room=room_id, error=str(error))
            return None
