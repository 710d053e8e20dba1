"""What is known of the rooms we are in: names, people, whether they are encrypted. Asked for when something is said there,
and kept up to date by what the server tells afterwards; a room that nobody speaks in costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import structlog

from everturn.errors import OutcomeUnknown, Refused
from everturn.platform.interface import Channel
from everturn.platform.matrix.calls import Homeserver
from everturn.platform.matrix.wire import Event, room_id_of, text_of, understood

log = structlog.get_logger()
KEPT = 1000
ENCRYPTION = "m.room.encryption"
STATE = ("m.room.member", "m.room.name", "m.room.canonical_alias", ENCRYPTION)


@dataclass(slots=True)
class Room:
    """One room, as its state events say."""

    id: str
    name: str = ""
    alias: str = ""
    encrypted: bool = False
    before: str = ""  # the room that it continues, as its maker says
    people: dict[str, str] = field(default_factory=dict)  # who is in it, with the name they show there

    @property
    def direct(self) -> bool:
        """A chat of two, whatever anybody calls it: with a third person in it, it is a group."""
        return len(self.people) <= 2

    def called(self, user: str) -> str:
        """How somebody is called there."""
        return self.people.get(user) or user[1:].partition(":")[0]

    def title(self, us: str) -> str:
        """How the room is called: by its name, its address, or who is in it."""
        others = [self.called(each) for each in sorted(self.people) if each != us]
        return self.name or self.alias or ", ".join(others[:3]) or self.id

    def hear(self, events: Iterable[Event]) -> None:
        """Follow what happened, in its order."""
        for event in events:
            if event.state_key is not None:
                self._hear(event)

    def _hear(self, event: Event) -> None:
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
            self.encrypted = True  # for ever: nobody can switch it off


class KnownRooms:
    """The rooms that were asked for in this life."""

    def __init__(self, server: Homeserver) -> None:
        self._server = server
        self._rooms: dict[str, Room] = {}
        self._asking: dict[
            object, tuple[str, list[Event]]
        ] = {}  # with what the server tells of a room while it is asked

    async def get(self, room_id: str) -> Room:
        """A room as it is. Raises PlatformError."""
        room = self._rooms.get(room_id)
        return room if room is not None else await self._ask(room_id)

    async def _ask(self, room_id: str) -> Room:
        """What happened there meanwhile may be missing in the answer. A room that we left meanwhile is not kept."""
        asked, room, meanwhile = object(), Room(room_id), list[Event]()
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

    def hear(self, room_id: str, events: Iterable[Event]) -> None:
        """News of a room; of one that nobody asked for it is not wanted."""
        news = list(events)
        if (room := self._rooms.get(room_id)) is not None:
            room.hear(news)
        for asked, meanwhile in self._asking.values():
            if asked == room_id:
                meanwhile.extend(news)

    def forget(self, room_id: str) -> None:
        """We are not in it any more."""
        self._rooms.pop(room_id, None)
        self._asking = {asked: each for asked, each in self._asking.items() if each[0] != room_id}

    async def is_encrypted(self, room_id: str) -> bool:
        """Whether a room is, now. Raises PlatformError."""
        room = self._rooms.get(room_id)
        return room.encrypted if room is not None else await self._server.is_encrypted(room_id)

    async def channels(self, us: str) -> list[Channel]:
        """The rooms that we are in, without those that can not be read. Raises PlatformError."""
        rooms = [await self._readable(each) for each in (await self._server.joined_rooms())[:KEPT]]
        return [
            Channel(each.id, each.title(us), "dm" if each.direct else "group") for each in rooms if each is not None
        ]

    async def _readable(self, room_id: str) -> Room | None:
        try:
            return await self.get(room_id)
        except (Refused, OutcomeUnknown) as error:
            log.warning("a room can not be listed", room=room_id, error=str(error))
            return None
