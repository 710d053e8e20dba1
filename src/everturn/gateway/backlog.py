"""What piled up while the gateway was away: when no more of it comes, it goes on as its platform's policy says."""

from __future__ import annotations

import asyncio
from functools import partial

import structlog

from everturn import points
from everturn.decide.backlog import ASKED_S, QUIET_S, absence
from everturn.decide.keys import origin_of
from everturn.errors import StoreError
from everturn.gateway.bursts import Bursts
from everturn.gateway.outbox import Outbox
from everturn.gateway.parts import Parts
from everturn.gateway.turns import Turns
from everturn.store.operations.backlog import Backlogged, asked_before, expire_asked, held_keys, settle_backlog

log = structlog.get_logger()
RETRY_S = 30.0  # after an operation failed, which is no closing store


class Backlogs:
    """One timer for each conversation that is being read after an absence."""

    def __init__(self, parts: Parts, turns: Turns, outbox: Outbox) -> None:
        self._parts = parts
        self._turns = turns
        self._outbox = outbox
        self._timers = Bursts(parts.clock, self._settle)

    def heard(self, key: str) -> None:
        """A message was held: look again when it has been quiet."""
        self._timers.wake_at(key, self._parts.clock.now() + QUIET_S)

    async def go_on(self) -> None:
        """What an earlier life held and did not settle."""
        for key in await self._parts.store.read(held_keys):
            self.heard(key)

    async def expire_once(self) -> int:
        """Questions that nobody answered; how many messages are not answered for it."""
        parts, now, ended = self._parts, self._parts.clock.now(), 0
        for key in await parts.store.read(asked_before, now):
            before = now - (parts.settings.backlog_of(origin_of(key)[0]).age_s or ASKED_S)
            ended += await parts.store.run(expire_asked, key, before, parts.ids.next(), now)
            self._outbox.wake(key)
        return ended

    def stop(self) -> None:
        """Settle nothing any more; the next life does."""
        self._timers.stop()

    def _settle(self, key: str) -> None:
        parts, platform = self._parts, origin_of(key)[0]
        policy, missed = parts.settings.backlog_of(platform).policy, absence(parts.contacts.hears_since(platform))
        settling = parts.store.run(
            settle_backlog, key, policy, parts.instance, missed, parts.ids.next(), parts.clock.now()
        )
        settling.add_done_callback(partial(self._settled, key))

    def _settled(self, key: str, settling: asyncio.Future[Backlogged]) -> None:
        if settling.cancelled() or isinstance(error := settling.exception(), StoreError):
            return  # the store is closing: the next process finds them
        if error is not None:
            log.error("backlog not settled", key=key, error=repr(error), exc_info=error)
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
