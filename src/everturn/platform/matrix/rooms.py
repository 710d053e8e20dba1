"""Rooms: who is in them, and invitations: those of approved people are accepted. The gateway decides who is approved."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

import structlog

from everturn.clock import Clock
from everturn.errors import EverturnError, OutcomeUnknown, Refused
from everturn.model import SessionSource
from everturn.people.rules.access import AccessVerdict
from everturn.people.rules.people_texts import not_joined
from everturn.platform.interface import Channel
from everturn.platform.matrix.calls import Homeserver
from everturn.platform.matrix.rules import after_failure
from everturn.platform.matrix.wire import Invited, MatrixEvent, room_id_of, text_of, understood

log = structlog.get_logger()
KEPT = 1000
ENCRYPTION = "m.room.encryption"
STATE = ("m.room.member", "m.room.name", "m.room.canonical_alias", ENCRYPTION)
Welcome = Callable[[SessionSource], Awaitable[AccessVerdict]]
FRIENDS = 1000
STRANGERS = 200


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


@dataclass(frozen=True, slots=True)
class Invitation:
    """An open invitation."""

    source: SessionSource
    failures: int = 0
    not_before: float = 0.0


class InvitationQueue:
    """Open invitations, answered one after the other; bounded."""

    def __init__(self, longest: int) -> None:
        self.open: dict[str, Invitation] = {}
        self.changed = asyncio.Event()
        self._longest = longest

    def add(self, room: str, source: SessionSource) -> None:
        """Add an invitation, in place of an older one to the same room."""
        if room not in self.open and len(self.open) >= self._longest:
            log.warning("too many open invitations, one is left for the next start", room=room)
            return
        self.open[room] = Invitation(source)
        self.changed.set()

    def first(self) -> tuple[str, Invitation] | None:
        """The invitation that is due first."""
        return min(self.open.items(), key=lambda each: each[1].not_before, default=None)

    async def wait(self, longest_s: float | None) -> None:
        """Wait until there is another invitation, or the time is over."""
        self.changed.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(longest_s):
                await self.changed.wait()


class Invitations:
    """Answers open invitations in the background: no message waits for the homeserver of an inviter, and approved people
    do not wait for strangers. What this process does not answer the next one does: the server shows it at
    every start.
    """

    def __init__(self, server: Homeserver, platform: str, user: str, welcome: Welcome, clock: Clock) -> None:
        self._server = server
        self._platform = platform
        self._user = user
        self._welcome = welcome
        self._clock = clock
        self._friends, self._strangers = InvitationQueue(FRIENDS), InvitationQueue(STRANGERS)
        self._answering: list[asyncio.Task[None]] = []

    async def hear(self, invited: Mapping[str, Invited]) -> None:
        """Take new invitations from a sync."""
        for room, about in invited.items():
            source = self._source(room, about)
            if source is not None:
                known = await self._welcome(source) is AccessVerdict.ALLOWED
                line, other = (self._friends, self._strangers)[:: 1 if known else -1]
                other.open.pop(room, None)  # somebody else invited us there before
                line.add(room, source)
        if not self._answering:
            self._answering = [asyncio.create_task(self._answer_all(each)) for each in (self._friends, self._strangers)]

    def close(self) -> None:
        """Stop answering."""
        for each in self._answering:
            each.cancel()

    async def _answer_all(self, line: InvitationQueue) -> None:
        while True:
            first, now = line.first(), self._clock.monotonic()
            if first is None:
                await line.wait(None)
            elif first[1].not_before > now:
                await line.wait(first[1].not_before - now)
            else:
                await self._try(line, *first)

    async def _try(self, line: InvitationQueue, room: str, invitation: Invitation) -> None:
        again = None
        try:
            await self._answer(room, invitation.source)
        except EverturnError as error:
            again = after_failure(error, invitation.failures, random.random())  # noqa: S311  not a secret
            in_s = round(again.in_s, 1) if again else None
            log.warning("invitation not answered", room=room, error=str(error), again_in_s=in_s)
        if line.open.get(room) is not invitation:
            return  # there is a newer invitation
        del line.open[room]
        if again is not None:
            until = self._clock.monotonic() + again.in_s
            line.open[room] = replace(invitation, failures=again.failures, not_before=until)

    async def _answer(self, room: str, source: SessionSource) -> None:
        verdict = await self._welcome(source)
        if verdict is AccessVerdict.ALLOWED:
            await self._server.join(room)
            log.info("joined a room", room=room, invited_by=source.user_id)
        else:
            # In a direct chat strangers get the reason, where they may request access; elsewhere no reply.
            await self._server.leave(room, not_joined(source.user_id or "") if verdict is AccessVerdict.PAIR else "")

    def _source(self, room: str, about: Invited) -> SessionSource | None:
        """The inviter: the last of these events is the invitation itself, which our homeserver has checked. Those before it
        were chosen by the inviter's server, and may say anything.
        """
        for event in reversed(understood(about.invite_state.events)):
            if event.membership_of(self._user) == "invite":
                direct = event.content.get("is_direct") is True
                return SessionSource(
                    platform=self._platform,
                    account=self._user,
                    chat_id=room,
                    chat_type="dm" if direct else "group",
                    user_id=event.sender,
                )
        return None
