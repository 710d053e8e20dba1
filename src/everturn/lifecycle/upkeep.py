"""Background upkeep: the heartbeat, dead replicas, expired sessions, deletion of old rows and files."""

from __future__ import annotations

import asyncio

from everturn.commands.rows.commands import expire_unknown_deliveries
from everturn.errors import InstanceClosed
from everturn.home.files import Media
from everturn.ids import Instance
from everturn.inbox.backlog import Backlogs
from everturn.inbox.rows.attachments import needed_files
from everturn.inbox.rules import ASKED_S
from everturn.lifecycle.rows import expire, follow_clock, forget, heartbeat, idle_entries
from everturn.lifecycle.settings import Settings
from everturn.model import ACTIVE
from everturn.people.pairing import AccessControl
from everturn.sessions.rules.keys import origin_of
from everturn.sessions.rules.reset_policy import expired_by
from everturn.store.interface import GRACE_S, Store
from everturn.turns.recovery import Recovery

PAGE = 500
FIRST_LOOK_S = 60.0


class Upkeep:
    """Runs the periodic loops of an instance."""

    def __init__(
        self,
        store: Store,
        instance: Instance,
        settings: Settings,
        media: Media | None,
        *,
        recovery: Recovery,
        backlogs: Backlogs,
        people: AccessControl,
    ) -> None:
        self._store = store
        self._instance = instance
        self._clock = instance.clock
        self._settings = settings
        self._media = media
        self._recovery = recovery
        self._backlogs = backlogs
        self._people = people

    async def beat(self) -> None:
        """Store the heartbeat, recover dead replicas, and end turns of revoked people, in a loop. Raises InstanceClosed when
        another instance took this one for dead and took over its work.
        """
        while True:
            await self._clock.sleep(self._settings.heartbeat_s)
            alive_at, asked_at = await self._store.now(), self._clock.monotonic()
            if not await self._store.run(heartbeat, self._instance.number, self._clock.now(), alive_at):
                raise InstanceClosed(
                    f"instance {self._instance.number} was closed by another one, which took over its work"
                )
            self._instance.safe_until = asked_at + GRACE_S
            await self._recovery.sweep()
            await self._recovery.wake_neglected()
            await self._people.revoke_again()

    async def expire_sessions(self) -> None:
        """End sessions that their policy has expired, without waiting for a message."""
        if not self._settings.policies.any():
            return
        await self._clock.sleep(min(FIRST_LOOK_S, self._settings.expiry_every_s))
        while True:
            await self.expire_once()
            await self._clock.sleep(self._settings.expiry_every_s)

    async def expire_once(self) -> int:
        """Check every idle session, a page at a time on a reader; returns how many were ended."""
        after, ended, now = "", 0, self._clock.now()
        while page := await self._store.read(idle_entries, after, PAGE):
            after = page[-1].key
            for entry in page:
                policy = self._settings.policies.of(*origin_of(entry.key))
                reason = expired_by(policy, entry.active_at, now)
                if reason is not None and entry.state == ACTIVE:
                    ended += await self._store.run(expire, entry.key, entry.fence, reason, now)
        return ended

    async def forget_old(self) -> None:
        """Delete what was kept long enough, in a loop, a bounded batch at a time."""
        while True:
            await self._clock.sleep(self._settings.upkeep_every_s)
            await self._backlogs.expire_once()
            await self.expire_unknown_deliveries()
            await self.forget_once()
            await self.expire_files()

    async def forget_once(self) -> None:
        """Delete all rows that were kept long enough, by a time that a wrong clock cannot move far."""
        now = await self._store.run(follow_clock, self._clock.now())
        while await self._store.run(forget, now):
            pass

    async def expire_unknown_deliveries(self) -> None:
        """Expire delivery requests that nobody answered for a day."""
        now = self._clock.now()
        while await self._store.run(expire_unknown_deliveries, now - ASKED_S, now):
            pass

    async def expire_files(self) -> int:
        """Delete received and sent files that were kept long enough and are no longer needed; returns how many."""
        media = self._media
        if media is None:
            return 0
        needed = await self._store.read(needed_files)
        return await asyncio.to_thread(media.expire, self._settings.media.keep_s, needed)
