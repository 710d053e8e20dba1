"""The backlog: messages sent while the gateway was disconnected. When no more come, the platform's policy is applied."""

from __future__ import annotations

import asyncio
from functools import partial

import structlog

from everturn import points
from everturn.errors import StoreError
from everturn.inbox.bursts import Bursts
from everturn.inbox.rows.backlog import Backlogged, asked_before, collecting_keys, expire_asked, settle_backlog
from everturn.inbox.rules.backlog import ASKED_S, QUIET_S, outage_id
from everturn.lifecycle.parts import Parts
from everturn.outbox.sender import ReplySender
from everturn.sessions.rules.keys import origin_of
from everturn.turns.scheduler import Scheduler

log = structlog.get_logger()
RETRY_S = 30.0  # after an operation failed for another reason than a closing store


class Backlogs:
    """Runs a timer for each conversation whose backlog is being collected."""

    def __init__(self, parts: Parts, turns: Scheduler, outbox: ReplySender) -> None:
        self._parts = parts
        self._turns = turns
        self._outbox = outbox
        self._timers = Bursts(parts.clock, self._settle)

    def wait_until_quiet(self, key: str) -> None:
        """Settle the key's backlog when no message came for a moment."""
        self._timers.wake_at(key, self._parts.clock.now() + QUIET_S)

    async def resume(self) -> None:
        """Go on with the backlogs that an earlier process collected and did not settle."""
        for key in await self._parts.store.read(collecting_keys):
            self.wait_until_quiet(key)

    async def expire_once(self) -> int:
        """Expire backlogs whose request nobody answered; returns how many messages expired."""
        parts, now, ended = self._parts, self._parts.clock.now(), 0
        for key in await parts.store.read(asked_before, now):
            before = now - (parts.settings.backlog_of(origin_of(key)[0]).age_s or ASKED_S)
            ended += await parts.store.run(expire_asked, key, before, parts.ids.next(), now)
            self._outbox.wake(key)
        return ended

    def stop(self) -> None:
        """End all timers; the next process settles the backlogs."""
        self._timers.stop()

    def _settle(self, key: str) -> None:
        parts, platform = self._parts, origin_of(key)[0]
        policy, missed = parts.settings.backlog_of(platform).policy, outage_id(parts.contacts.hears_since(platform))
        settling = parts.store.run(
            settle_backlog, key, policy, parts.instance, missed, parts.ids.next(), parts.clock.now()
        )
        settling.add_done_callback(partial(self._settled, key))

    def _settled(self, key: str, settling: asyncio.Future[Backlogged]) -> None:
        if settling.cancelled() or isinstance(error := settling.exception(), StoreError):
            return  # the store is closing: the next process finds them
        if error is not None:
            log.error("backlog not settled", session_key=key, error=repr(error), exc_info=error)
            self._timers.wake_at(key, self._parts.clock.now() + RETRY_S)
            return
        settled = settling.result()
        if settled.later is not None:
            self._timers.wake_at(key, settled.later)
            return
        points.reached("backlog.settled")
        if settled.spoke:
            self._outbox.wake(key)
        self._turns.wake(key)
