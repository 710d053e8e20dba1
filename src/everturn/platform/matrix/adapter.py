"""The Matrix platform: an account of its own on a homeserver, through plain requests of the client-server API.

https://spec.matrix.org/latest/client-server-api/
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass, field

import structlog
from msgspec.structs import replace

from everturn.clock import Clock
from everturn.errors import PlatformError, Refused, TryLater
from everturn.model import Heard, Inbound, ReadTo, SessionSource
from everturn.pauses import asked_s, pause_s
from everturn.people.rules.access import AccessVerdict
from everturn.platform.interface import Channel, Contact
from everturn.platform.matrix.calls import Homeserver, best_effort
from everturn.platform.matrix.reading import NAME, WANTED, MatrixReader, RoomNews, Unread, UnreadRooms
from everturn.platform.matrix.rooms import STATE, Invitations, KnownRooms, Welcome
from everturn.platform.matrix.rules import UNREADABLE, Forbidden
from everturn.platform.matrix.wire import MatrixEvent, Rooms, Sync, understood
from everturn.platform.matrix.writing import MatrixWriter

log = structlog.get_logger()
SPARE_S = 10.0
FIRST_S = 300.0  # the first sync of an account with many rooms takes its server a while
MOVED_EVERY_S = 60.0
PATIENCE_S = 1.0  # how long the next poll waits for the rooms of the last one
AT_ONCE = 16  # rooms that are read at a time: fewer than our connections, of which others need some
FAILED_AT_ONCE = 4  # of those that failed before: they may take long again, and nobody waits behind them
NOTHING: dict[str, list[str]] = {"types": []}


@dataclass(frozen=True, slots=True)
class Filters:
    """The filters of sync and history requests."""

    look: str
    news: str

    @staticmethod
    def of(user: str, page: int) -> Filters:
        """The filters of one account: its own messages are left out."""
        timeline = {"limit": page, "types": WANTED, "not_senders": [user]}
        room = {"account_data": NOTHING, "ephemeral": NOTHING}
        rest = {"presence": NOTHING, "account_data": NOTHING}
        look = {**rest, "room": {**room, "timeline": {"limit": 1, **NOTHING}, "state": NOTHING}}
        news = {**rest, "room": {**room, "timeline": timeline, "state": {"types": STATE}}}
        return Filters(json.dumps(look), json.dumps(news))


class SyncReader:
    """Syncs one account from a place on. The place is kept here only after what stands before it is committed."""

    def __init__(
        self,
        server: Homeserver,
        reader: MatrixReader,
        rooms: KnownRooms,
        invitations: Invitations,
        clock: Clock,
        poll_s: float,
    ) -> None:
        self._server = server
        self._reader = reader
        self._rooms = rooms
        self._invitations = invitations
        self._clock = clock
        self._poll_s = poll_s
        self._filters = Filters.of(reader.user, server.page)
        self._news = RoomNews(server, reader, rooms)
        self._moved_at = clock.monotonic()
        self._committed: str | None = None
        self._place: str | None = (
            None  # the place behind which nothing is read; all before it is committed, or in the unread rooms
        )
        self._unread = UnreadRooms(clock.monotonic)
        self.moves = 0  # how often we joined or left a room
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._slots_of_failed = asyncio.Semaphore(FAILED_AT_ONCE)

    async def begin(self, since: str | None) -> str:
        """Take the open invitations; where nothing was ever read, the place to read from is now. What was sent
        before is history, and is not answered.
        """
        look = await self._server.sync(None, self._filters.look, 0.0, FIRST_S)
        await self._invitations.hear(look.rooms.invite)
        self._unread.clear()
        self._place = None
        self._committed = look.next_batch if since is None else since
        return self._committed

    def place_behind(self, after: str | None) -> str | None:
        """The place from which to read on, if we know more than the committed one: a failed poll loses neither the polls
        before it nor what is known of rooms that cannot be read. None if something that was passed on may not be committed, or if
        the committed place is another one: then all is read again from there.
        """
        return self._place if after == self._committed else None

    async def next(self, since: str) -> Sync:
        """Poll for news. By calling it the caller says that everything it was given is committed."""
        self._place = since
        wait_s = self._unread.next_in_s(self._poll_s)
        return await self._server.sync(since, self._filters.news, wait_s, wait_s + SPARE_S)

    def trouble(self) -> str | None:
        """Why some rooms cannot be read, although the account can."""
        return self._unread.trouble()

    async def heard(self, news: Sync, since: str) -> AsyncIterator[Inbound | ReadTo]:
        """The messages for us, and the place from which to read on as soon as all rooms are read."""
        await self._invitations.hear(news.rooms.invite)
        self._note(news.rooms, since)
        said = placed = False
        async for found in self._unread.read(self._heard_in, PATIENCE_S):
            placed = bool(found) and not self._unread
            said = said or bool(found)
            self._place = None
            for each in found[:-1]:
                yield each
            for each in found[-1:]:
                yield replace(each, cursor=news.next_batch) if placed else each
        if not placed and self._is_to_move(news.next_batch, said=said):
            self._place = None
            yield ReadTo(news.next_batch)
            placed = True
        if placed:
            self._committed, self._moved_at = news.next_batch, self._clock.monotonic()

    def _note(self, rooms: Rooms, since: str) -> None:
        for room_id in rooms.leave:
            self._rooms.forget(room_id)
            self._unread.drop(room_id)
            self.moves += 1
        for room_id, about in rooms.join.items():
            events = understood([*about.state.events, *about.timeline.events])
            new = self._is_new(events)
            self._rooms.hear(room_id, events)
            self._unread.add(room_id, Unread(about, since, new))
            self.moves += new

    def _is_to_move(self, place: str, *, said: bool) -> bool:
        if self._unread or place == self._committed:
            return False
        return said or self._clock.monotonic() - self._moved_at >= MOVED_EVERY_S

    async def send_receipts(self, newest: dict[str, str]) -> None:
        """Send a read receipt for the newest committed message of each room."""
        for room, event_id in newest.items():
            await best_effort(self._server.receipt(room, event_id))

    def _is_new(self, events: list[MatrixEvent]) -> bool:
        """Whether we joined the room with this: not when only our name there changed."""
        return any(
            each.membership_of(self._reader.user) and each.unsigned.prev_content.get("membership") != "join"
            for each in events
        )

    async def _heard_in(self, room_id: str, unread: Unread) -> list[Inbound]:
        """The messages for us in one room; none, if the room is closed to us before we can read it. After any other failure it
        is read again later: no message is skipped because a server has an error, unless that lasts. The same holds for a
        failure of ours: one room's content must not end the reading of all others.
        """
        try:
            async with self._slots_of_failed if unread.failures else self._slots:
                return await self._news.read(room_id, unread)
        except Forbidden as error:
            log.warning("matrix room closed to us", room=room_id, error=str(error))
        except PlatformError as error:
            await self._failed(room_id, unread, error)
        except Exception as error:  # whoever may write there may have found it
            log.exception("matrix room read crashed", room=room_id)
            await self._failed(room_id, unread, TryLater(f"reading the room failed: {type(error).__name__}", 0.0))
        return []

    async def _failed(self, room_id: str, unread: Unread, error: PlatformError) -> None:
        wait_s = pause_s(unread.failures + 1, random.random(), asked_s(error))  # noqa: S311  not a secret
        if self._unread.put_back(room_id, unread, str(error), wait_s):
            log.warning("matrix room not readable", room=room_id, error=str(error), again_in_s=round(wait_s, 1))
        else:
            log.error("matrix room skipped: not readable for an hour", room=room_id, error=str(error))
            await best_effort(self._news.tell(room_id, UNREADABLE, "unreadable", unread.since))

    def close(self) -> None:
        """Stop reading."""
        self._unread.clear()
        self._place = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixSettings:
    """The settings of one Matrix account."""

    homeserver: str
    user: str
    token: str = field(repr=False)
    listening: bool = False
    poll_s: float = 30.0
    page: int = 100  # events of a room in one answer


async def nobody(_: SessionSource) -> AccessVerdict:
    """Decline every invitation: the default."""
    return AccessVerdict.SILENT


class MatrixPlatform(MatrixWriter):
    """One Matrix account as a platform."""

    name = NAME
    direct_members_change = True  # somebody invites and leaves: the room has two members again

    def __init__(self, settings: MatrixSettings, clock: Clock, welcome: Welcome = nobody) -> None:
        self.account = settings.user
        # Whoever reads the account answers in it, with whichever of its tokens: the account is what has one owner.
        self.credential = hashlib.sha256(f"matrix {settings.user}".encode()).hexdigest()
        self.contact = Contact()
        self._clock = clock
        server = Homeserver(settings.homeserver, settings.token, settings.page)
        super().__init__(server, settings.user, KnownRooms(server))
        reader = MatrixReader(settings.user, settings.listening)
        self._invitations = Invitations(server, NAME, settings.user, welcome, clock)
        self._reading = SyncReader(server, reader, self._rooms, self._invitations, clock, settings.poll_s)
        self._introduced = False
        self._receipts: set[asyncio.Task[None]] = set()

    async def inbound(self, after: str | None) -> AsyncGenerator[Inbound | ReadTo, None]:
        """Yield messages for ever. A cursor that does not exist yet is committed before anything is read. Raises
        PlatformError; called again, it continues behind the failed poll if nothing is lost by that.
        """
        since = self._reading.place_behind(after)
        if since is None:
            since = await self._begin(after)
            if after is None:
                yield ReadTo(since)
        while True:
            news = await self._reading.next(since)
            self.contact = self.contact.answered(self._clock.now(), self._reading.trouble())
            newest: dict[str, str] = {}  # the newest message, by room
            async for each in self._reading.heard(news, since):
                yield each
                if isinstance(each, Inbound) and each.what is Heard.SAID:
                    newest[each.source.chat_id or ""] = each.id
                if isinstance(each, Inbound) and each.what is Heard.DELETED:
                    self.gone(each.of or "")
            since = news.next_batch
            self.contact = self.contact.answered(self._clock.now(), self._reading.trouble())
            self._send_receipts_in_background(newest)

    async def _begin(self, since: str | None) -> str:
        """Check that the token belongs to the account of the settings, and begin to sync; returns the place to read from."""
        if not self._introduced:
            known = await self._server.whoami()
            if known.user_id != self.account:
                raise Refused(f"the access token is {known.user_id}'s; platforms.matrix.user says {self.account}")
            self._introduced = True
            log.info("matrix", account=known.user_id, device=known.device_id)
        place = await self._reading.begin(since)
        self.contact = self.contact.answered(self._clock.now())
        return place

    def _send_receipts_in_background(self, newest: dict[str, str]) -> None:
        """Send read receipts for committed messages; the next poll does not wait for them."""
        if newest:
            receipt = asyncio.create_task(self._reading.send_receipts(newest))
            self._receipts.add(receipt)
            receipt.add_done_callback(self._receipts.discard)

    async def channels(self) -> list[Channel]:
        """The rooms that we are in."""
        return await self._rooms.channels(self.account)

    @property
    def channel_changes(self) -> int:
        """How often we joined or left a room."""
        return self._reading.moves

    async def close_connections(self) -> None:
        """Close the connections and end the background tasks."""
        self._invitations.close()
        self._reading.close()
        for receipt in self._receipts:
            receipt.cancel()
        await self._server.close()
