"""Matrix through an account of its own on a homeserver: plain requests of the client-server API, no library between.

https://spec.matrix.org/latest/client-server-api/
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

import structlog

from everturn.clock import Clock
from everturn.decide.admission import Verdict
from everturn.errors import Refused
from everturn.model import Heard, Inbound, ReadTo, SessionSource
from everturn.platform.interface import Channel, Contact
from everturn.platform.matrix.calls import Homeserver
from everturn.platform.matrix.inviting import Invitations, Welcome
from everturn.platform.matrix.reading import NAME, Reader
from everturn.platform.matrix.rooms import KnownRooms
from everturn.platform.matrix.syncing import Reading
from everturn.platform.matrix.writing import Writer

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixSettings:
    """One account."""

    homeserver: str
    user: str
    token: str = field(repr=False)
    listening: bool = False
    poll_s: float = 30.0
    page: int = 100  # events of a room in one answer


async def nobody(_: SessionSource) -> Verdict:
    """Unless somebody says otherwise, no invitation is taken."""
    return Verdict.SILENT


class MatrixPlatform(Writer):
    """Where people write to an account of ours."""

    name = NAME
    direct_members_change = True  # one invites somebody and leaves: the room has two members again

    def __init__(self, settings: MatrixSettings, clock: Clock, welcome: Welcome = nobody) -> None:
        self.account = settings.user
        # Whoever reads the account answers in it, with whichever of its tokens: the account is what has one owner.
        self.credential = hashlib.sha256(f"matrix {settings.user}".encode()).hexdigest()
        self.contact = Contact()
        self._clock = clock
        server = Homeserver(settings.homeserver, settings.token, settings.page)
        super().__init__(server, settings.user, KnownRooms(server))
        reader = Reader(settings.user, settings.listening)
        self._invitations = Invitations(server, NAME, settings.user, welcome, clock)
        self._reading = Reading(server, reader, self._rooms, self._invitations, clock, settings.poll_s)
        self._introduced = False
        self._signs: set[asyncio.Task[None]] = set()

    async def inbound(self, after: str | None) -> AsyncGenerator[Inbound | ReadTo, None]:
        """What people say, for ever. A place to read from that nobody has yet is committed before anything is read. Raises
        PlatformError; called again, it goes on behind the failed poll if nothing is lost by that.
        """
        since = self._reading.place_behind(after)
        if since is None:
            since = await self._begin(after)
            if after is None:
                yield ReadTo(since)
        while True:
            news = await self._reading.next(since)
            self.contact = self.contact.answered(self._clock.now(), self._reading.trouble())
            newest: dict[str, str] = {}  # what was said last, by the room
            async for each in self._reading.heard(news, since):
                yield each
                if isinstance(each, Inbound) and each.what is Heard.SAID:
                    newest[each.source.chat_id or ""] = each.id
                if isinstance(each, Inbound) and each.what is Heard.DELETED:
                    self.gone(each.of or "")
            since = news.next_batch
            self.contact = self.contact.answered(self._clock.now(), self._reading.trouble())
            self._in_passing(newest)

    async def _begin(self, since: str | None) -> str:
        """Who we are there is what the settings say, or nothing is read."""
        if not self._introduced:
            known = await self._server.whoami()
            if known.user_id != self.account:
                raise Refused(f"the access token is {known.user_id}'s; platforms.matrix.user says {self.account}")
            self._introduced = True
            log.info("matrix", account=known.user_id, device=known.device_id)
        place = await self._reading.begin(since)
        self.contact = self.contact.answered(self._clock.now())
        return place

    def _in_passing(self, newest: dict[str, str]) -> None:
        """They are committed, and the next poll does not wait for those who are told so."""
        if newest:
            sign = asyncio.create_task(self._reading.took(newest))
            self._signs.add(sign)
            sign.add_done_callback(self._signs.discard)

    async def channels(self) -> list[Channel]:
        """The rooms that we are in."""
        return await self._rooms.channels(self.account)

    @property
    def channel_changes(self) -> int:
        """How often we came into a room, or were out of one."""
        return self._reading.moves

    async def close_connections(self) -> None:
        """End them."""
        self._invitations.close()
        self._reading.close()
        for sign in self._signs:
            sign.cancel()
        await self._server.close()
