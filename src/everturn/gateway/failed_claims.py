"""Keys whose next turn could not be begun because an operation failed: tried again, and suspended if they cannot be read."""

from __future__ import annotations

import asyncio
import random
from functools import partial

import structlog

from everturn.decide.keys import origin_of
from everturn.decide.reconnecting import pause_s
from everturn.errors import StoreError
from everturn.gateway.bursts import Bursts
from everturn.gateway.outbox import Outbox
from everturn.gateway.parts import Parts
from everturn.store.operations.recovery import Recovered, quarantine_idle
from everturn.store.operations.turn_values import Begun, Later, NotYet, Waits

log = structlog.get_logger()
Claimed = Begun | NotYet | Waits | Later | None
MOST_FAILURES = 3  # so often a key may not be readable before its session is suspended


class FailedClaims:
    """Counts the failures of each key in a row. They are in memory only: the next process counts anew."""

    def __init__(self, parts: Parts, outbox: Outbox, timers: Bursts) -> None:
        self._parts = parts
        self._outbox = outbox
        self._timers = timers
        self._failures: dict[str, int] = {}

    def result_of(self, key: str, claim: asyncio.Future[Claimed]) -> Claimed:
        """What a claim found; None also when it failed, which is seen to, or when the store is closing."""
        if claim.cancelled() or isinstance(error := claim.exception(), StoreError):
            return None
        if error is not None:
            self._try_again(key, error)
            return None
        self._failures.pop(key, None)
        return claim.result()

    def _try_again(self, key: str, error: BaseException) -> None:
        """Look at the key again after a pause that grows. What cannot be read after some tries is suspended, so that its
        people can begin afresh.
        """
        parts, failures = self._parts, self._failures.get(key, 0) + 1
        self._failures[key] = failures
        log.error("turn not begun", key=key, error=repr(error), failures=failures, exc_info=error)
        if failures == MOST_FAILURES:
            log.error(
                "session unreadable", key=key, remedy="it is suspended: see `everturn explain` and the operations page"
            )
            delivery = parts.delivery(origin_of(key)[0])
            aside = parts.store.run(quarantine_idle, key, parts.ids.next(), parts.clock.now(), delivery)
            aside.add_done_callback(partial(self._suspended, key))
        self._timers.wake_at(key, parts.clock.now() + pause_s(failures, random.random()))  # noqa: S311  no secret

    def _suspended(self, key: str, aside: asyncio.Future[Recovered | None]) -> None:
        if aside.cancelled() or (error := aside.exception()) is not None:
            log.error("session not suspended", key=key, error=repr(error))
        elif (recovered := aside.result()) is not None:
            self._parts.hub.publish(key, recovered.events)
            self._parts.observing.recovered(recovered.verdict)
            self._outbox.wake(key)
