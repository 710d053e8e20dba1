"""Background upkeep: the heartbeat, dead replicas, expired sessions, deletion of old rows and files."""

from __future__ import annotations

import asyncio

import structlog

from everturn.commands.rows.commands import expire_unknown_deliveries
from everturn.errors import InstanceClosed
from everturn.inbox.backlog import Backlogs
from everturn.inbox.rows.attachments import needed_files
from everturn.inbox.rules import ASKED_S
from everturn.lifecycle.parts import Parts
from everturn.lifecycle.rows import expire, follow_clock, forget, heartbeat, idle_entries
from everturn.model import ACTIVE
from everturn.people.pairing import AccessControl
from everturn.sessions.rules.keys import origin_of
from everturn.sessions.rules.reset_policy import expired_by
from everturn.turns.recovery import Recovery

log = structlog.get_logger()
PAGE = 500
FIRST_LOOK_S = 60.0


class Upkeep:
    """Runs the periodic loops of an instance."""

    def __init__(self, parts: Parts, recovery: Recovery, backlogs: Backlogs, people: AccessControl) -> None:
        self._parts = parts
        self._recovery = recovery
        self._backlogs = backlogs
        self._people = people

    async def beat(self) -> None:
        """Store the heartbeat, recover dead replicas, and end turns of revoked people, in a loop. Raises InstanceClosed when
        another instance took this one for dead and took over its work.
        """
        parts = self._parts
        while True:
            await parts.clock.sleep(parts.settings.heartbeat_s)
            alive_at = await parts.store.now()
            if not await parts.store.run(heartbeat, parts.instance, parts.clock.now(), alive_at):
                raise InstanceClosed(f"instance {parts.instance} was closed by another one, which took over its work")
            await self._recovery.sweep()
            await self._people.revoke_again()

    async def expire_sessions(self) -> None:
        """End sessions that their policy has expired, without waiting for a message."""
        if not self._parts.settings.policies.any():
            return
        await self._parts.clock.sleep(min(FIRST_LOOK_S, self._parts.settings.expiry_every_s))
        while True:
            await self.expire_once()
            await self._parts.clock.sleep(self._parts.settings.expiry_every_s)

    async def expire_once(self) -> int:
        """Check every idle session, a page at a time on a reader; returns how many were ended."""
        after, ended, now = "", 0, self._parts.clock.now()
        while page := await self._parts.store.read(idle_entries, after, PAGE):
            after = page[-1].key
            for entry in page:
                policy = self._parts.settings.policies.of(*origin_of(entry.key))
                reason = expired_by(policy, entry.active_at, now)
                if reason is not None and entry.state == ACTIVE:
                    ended += await self._parts.store.run(expire, entry.key, entry.fence, reason, now)
        return ended

    async def forget_old(self) -> None:
        """Delete what was kept long enough, in a loop, a bounded batch at a time."""
        while True:
            await self._parts.clock.sleep(self._parts.settings.upkeep_every_s)
            await self._backlogs.expire_once()
            await self.expire_unknown_deliveries()
            await self.forget_once()
            await self.expire_files()

    async def forget_once(self) -> None:
        """Delete all rows that were kept long enough, by a time that a wrong clock cannot move far."""
        now = await self._parts.store.run(follow_clock, self._parts.clock.now())
        while await self._parts.store.run(forget, now):
            pass

    async def expire_unknown_deliveries(self) -> None:
        """Expire delivery requests that nobody answered for a day."""
        now = self._parts.clock.now()
        while await self._parts.store.run(expire_unknown_deliveries, now - ASKED_S, now):
            pass

    async def expire_files(self) -> int:
        """Delete received and sent files that were kept long enough and are no longer needed; returns how many."""
        media = self._parts.media
        if media is None:
            return 0
        needed = await self._parts.store.read(needed_files)
        return await asyncio.to_thread(media.expire, self._parts.settings.media.keep_s, needed)
