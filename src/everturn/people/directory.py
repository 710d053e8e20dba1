"""The chat directory: kept up to date in the background from platforms' lists and stored conversations, read by tools."""

from __future__ import annotations

import asyncio
from typing import NamedTuple, Protocol

import structlog

from everturn import points
from everturn.agent.interface import TurnContext
from everturn.clock import Clock
from everturn.lifecycle.settings import Settings
from everturn.model import SessionSource
from everturn.people.rows.directory import (
    Directory,
    authors_of_turn,
    claim_look,
    directory,
    forget_channels,
    keep_channels,
    origins,
)
from everturn.people.rules.access import Standing, clean_name
from everturn.people.rules.directory import KnownChat, NotFound, at_address, listing_due, may_use, resolve, seen_in
from everturn.people.rules.rights import rank_of
from everturn.platform.connected import Platforms
from everturn.platform.interface import CanListChannels, CanNoticeChannels, Channel, Platform
from everturn.store.interface import Store

log = structlog.get_logger()
FIRST_LOOK_S = 5.0  # platforms have connected by then
SOON_S = 5.0  # what is new is known by then
LISTING_S = 60.0
MOST_LISTED = 5_000  # of one platform
PAGE = 500
PAGES = 20
BATCH = 100  # rows of one commit: messages are not kept waiting for long
NEWEST = 2**62
MOST_NOTED = 20_000  # new chats between two looks


class RecentChats:
    """Chats seen for the first time by this process, in memory only: what is lost is found again from stored conversations."""

    def __init__(self) -> None:
        self._noted: set[tuple[str | None, ...]] = set()
        self._new: list[KnownChat] = []

    def note(self, source: SessionSource, at: float) -> None:
        """Note the chat of a message. A chat with another name counts as another one."""
        name = source.user_name if source.chat_type == "dm" else source.chat_name
        place = source.platform, source.account, source.chat_id, source.thread_id, name, source.chat_topic
        if place in self._noted:
            return
        if len(self._noted) >= MOST_NOTED:
            self._noted.clear()
        self._noted.add(place)
        if len(self._new) < MOST_NOTED:
            self._new += seen_in(source, at)

    def take(self) -> list[KnownChat]:
        """Return the chats noted since the last call."""
        new, self._new = self._new, []
        return new


class ListsChats(Platform, CanListChannels, Protocol):
    """A platform that can list the chats we are in."""


class ListingState(NamedTuple):
    """When a platform last listed its chats, and its count of changes then."""

    at: float
    changes: int
    failures: int = 0  # in a row


NEVER = ListingState(0.0, 0)


class Channels:
    """Maintains the chat directory and resolves names of chats for tools."""

    def __init__(self, store: Store, clock: Clock, settings: Settings, platforms: Platforms) -> None:
        self._store = store
        self._clock = clock
        self._settings = settings
        self._platforms = platforms
        self.recent = RecentChats()
        self._listings: dict[str, ListingState] = {}
        self._lists = {
            name: each for name, each in self._platforms.adapters.items() if isinstance(each, CanListChannels)
        }

    async def run(self) -> None:
        """Look a moment after the start, whatever an earlier process looked at, then every few minutes; in between store what
        is new. Off where no time is set.
        """
        clock, every_s = self._clock, self._settings.directory_every_s
        if not every_s:
            return
        await clock.sleep(min(FIRST_LOOK_S, every_s))
        await self.look()
        looked_at = clock.monotonic()
        while True:
            await clock.sleep(min(SOON_S, every_s))
            await self._keep([each for each in self.recent.take() if each.platform in self._platforms.senders])
            for platform in self._lists.values():
                if self._listing_due(platform, every_s):
                    await self._list(platform)
            if clock.monotonic() - looked_at >= every_s:
                looked_at = clock.monotonic()
                # A little less than the pause: two replicas that take turns must not both come too early.
                await self._look_at_conversations(every_s * 0.9)

    async def look(self) -> None:
        """Store the chats that platforms list, and those of conversations since any replica looked."""
        for platform in self._lists.values():
            await self._list(platform)
        await self._look_at_conversations(0.0)

    async def _look_at_conversations(self, pause_s: float) -> None:
        """Store the chats of conversations since the last look, if no other replica looked so lately."""
        now = self._clock.now()
        since = await self._store.run(claim_look, "channels", now, pause_s)
        if since is not None:
            await self._look_at_origins(max(0.0, since - self._settings.directory_every_s))
            await self._store.run(forget_channels, now)

    def _listing_due(self, platform: ListsChats, every_s: float) -> bool:
        last = self._listings.get(platform.name)
        if last is None:
            return True
        since_s = self._clock.monotonic() - last.at
        return listing_due(since_s, last.failures, every_s, changed=_changes(platform) != last.changes)

    async def _list(self, platform: ListsChats) -> None:
        """List a platform's chats; a failed listing is retried later, and what is known stays, with its age."""
        last, changes = self._listings.get(platform.name, NEVER), _changes(platform)
        found = await self._listed(platform)
        failures = 0 if found is not None else last.failures + 1
        self._listings[platform.name] = ListingState(self._clock.monotonic(), changes, failures)
        await self._keep(found or [])

    async def _listed(self, platform: ListsChats) -> list[KnownChat] | None:
        try:
            async with asyncio.timeout(LISTING_S):
                found = await platform.channels()
        except Exception as error:  # noqa: BLE001  whatever an adapter raises, messages go on
            log.info("channels not listed", platform=platform.name, error=str(error) or type(error).__name__)
            return None
        if len(found) > MOST_LISTED:
            log.warning("too many channels", listed=len(found), kept=MOST_LISTED)
        now = self._clock.now()
        return [_known(each, platform, now) for each in found[:MOST_LISTED]]

    async def _look_at_origins(self, since: float) -> None:
        before = NEWEST
        for _ in range(PAGES):
            page = await self._store.read(origins, before, since, PAGE)
            if not page:
                return
            before = page[-1].id
            sendable = [each for each in page if each.source.platform in self._platforms.senders]
            await self._keep([known for each in sendable for known in seen_in(each.source, each.at)])

    async def _keep(self, seen: list[KnownChat]) -> None:
        for start in range(0, len(seen), BATCH):
            await self._store.run(keep_channels, seen[start : start + BATCH])
            points.reached("channels.kept")

    # -- for tools -----------------------------------------------------------------------------------------------------

    async def usable(self, turn: TurnContext) -> Directory:
        """The chats that every author of the turn may send to; the authors are looked up now, every time."""
        authors = await self._store.read(authors_of_turn, turn.key, int(turn.id))
        known = await self._store.read(directory)
        people = [(source, self._owns(source, standing)) for source, standing in authors]
        if not people or any(standing is Standing.REVOKED for _, standing in authors):
            return Directory((), {})
        allowed = tuple(each for each in known.channels if _all_may(each, people))
        places = {name: at_address(address, known.channels) for name, address in known.aliases.items()}
        aliases = {
            name: known.aliases[name] for name, place in places.items() if place is not None and _all_may(place, people)
        }
        return Directory(allowed, aliases)

    async def find(self, turn: TurnContext, name: str) -> SessionSource | str:
        """The chat with this name, or why there is none to send to."""
        usable = await self.usable(turn)
        found = resolve(name, usable.channels, usable.aliases)
        return found.why if isinstance(found, NotFound) else found.source()

    def _owns(self, source: SessionSource, standing: Standing) -> bool:
        return standing is Standing.OWNER or rank_of(self._settings.rights, source) == "owner"


def _all_may(place: KnownChat, people: list[tuple[SessionSource, bool]]) -> bool:
    return all(may_use(place, source, owner=owner) for source, owner in people)


def _changes(platform: ListsChats) -> int:
    return platform.channel_changes if isinstance(platform, CanNoticeChannels) else 0


def _known(channel: Channel, platform: Platform, at: float) -> KnownChat:
    return KnownChat(
        platform=platform.name,
        account=platform.account,
        chat_id=channel.chat_id,
        thread_id=channel.thread_id or "",
        chat_type=channel.chat_type,
        name=clean_name(channel.name),
        parent=clean_name(channel.parent),
        seen_at=at,
    )
