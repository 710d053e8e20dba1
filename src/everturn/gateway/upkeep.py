"""Work that no message waits for: the heartbeat, sessions that expire by themselves, forgetting, dead replicas."""

from __future__ import annotations

import asyncio

import structlog

from everturn.decide.backlog import ASKED_S
from everturn.decide.keys import origin_of
from everturn.decide.session import expired_by
from everturn.errors import InstanceClosed
from everturn.gateway.backlog import Backlogs
from everturn.gateway.parts import Parts
from everturn.gateway.people import People
from everturn.gateway.recovery import Recovery
from everturn.model import ACTIVE
from everturn.store.operations.attachments import needed_files
from everturn.store.operations.doubts import expire_doubts
from everturn.store.operations.instances import heartbeat
from everturn.store.operations.upkeep import expire, follow_clock, forget, idle_entries

log = structlog.get_logger()
PAGE = 500
FIRST_LOOK_S = 60.0


class Upkeep:
    """Loops that look now and then."""

    def __init__(self, parts: Parts, recovery: Recovery, backlogs: Backlogs, people: People) -> None:
        self._parts = parts
        self._recovery = recovery
        self._backlogs = backlogs
        self._people = people

    async def beat(self) -> None:
        """Say that we are alive, and look for replicas that are not, and for turns of people who were revoked. Raises
        InstanceClosed when another instance took us for dead: its work is no longer ours.
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
        """One look at every idle session, a page at a time on a reader; returns how many were ended."""
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
        """Forget what was kept long enough, a bounded batch at a time."""
        while True:
            await self._parts.clock.sleep(self._parts.settings.upkeep_every_s)
            await self._backlogs.expire_once()
            await self.expire_doubts()
            await self.forget_once()
            await self.expire_files()

    async def forget_once(self) -> None:
        """Everything that was kept long enough, by a time that a wild clock cannot move far."""
        now = await self._parts.store.run(follow_clock, self._parts.clock.now())
        while await self._parts.store.run(forget, now):
            pass

    async def expire_doubts(self) -> None:
        """Whether a reply arrived is asked for a day."""
        now = self._parts.clock.now()
        while await self._parts.store.run(expire_doubts, now - ASKED_S, now):
            pass

    async def expire_files(self) -> int:
        """Let go of files that came with messages or went out, kept long enough and needed by nobody; how many."""
        media = self._parts.media
        if media is None:
            return 0
        needed = await self._parts.store.read(needed_files)
        return await asyncio.to_thread(media.expire, self._parts.settings.media.keep_s, needed)
