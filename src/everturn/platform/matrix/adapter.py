"""The Matrix adapter: an account of its own on a homeserver, through plain requests of the client-server API.

https://spec.matrix.org/latest/client-server-api/
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

import structlog

from everturn.clock import Clock
from everturn.errors import Refused
from everturn.model import Heard, Inbound, ReadTo, SessionSource
from everturn.people.rules.admission import AccessVerdict
from everturn.platform.interface import Channel, Contact
from everturn.platform.matrix.calls import Homeserver
from everturn.platform.matrix.inviting import Invitations, Welcome
from everturn.platform.matrix.reading import NAME, MatrixReader
from everturn.platform.matrix.rooms import KnownRooms
from everturn.platform.matrix.syncing import SyncReader
from everturn.platform.matrix.writing import MatrixWriter

log = structlog.get_logger()


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
