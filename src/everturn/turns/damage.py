"""Sessions that cannot go on: a damaged row suspends its session, and a turn that could not be started is tried again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from functools import partial

import structlog

from everturn.errors import StoreError
from everturn.inbox.albums import Bursts
from everturn.pauses import pause_s
from everturn.sessions.rules.keys import origin_of
from everturn.turns.attempt import TurnEnvironment
from everturn.turns.rows.recovery import Interruption, Recovered, quarantine, quarantine_idle
from everturn.turns.rows.turn_values import BehindApproval, Later, NotYet, StartedTurn

log = structlog.get_logger()
REMEDY = "the rows are kept as they are: inspect them with `everturn explain`, or reset the session with /new"
ORPHANED = "the turn was ended and its messages are dead letters: see `everturn dead`"


async def suspend_if_damaged(
    env: TurnEnvironment, turn: int, key: str, cause: Interruption, marking: Awaitable[Recovered | None]
) -> Recovered | None:
    """Await the operation that marks a cut-off turn. If it fails on what is stored, suspend the turn's session instead."""
    try:
        return await marking
    except StoreError:
        raise
    except Exception as error:  # one damaged row must not keep the gateway from the others
        log.exception("turn damaged", turn_id=turn, session_key=key, error=repr(error), remedy=REMEDY)
    return await suspend_damaged(env, turn, key, cause)


async def suspend_damaged(env: TurnEnvironment, turn: int, key: str, cause: Interruption) -> Recovered | None:
    """Suspend the session of a turn that cannot be read. None when somebody else did, or when even that fails."""
    delivery = env.platforms.delivery(origin_of(key)[0])
    try:
        return await env.store.run(quarantine, key, turn, cause.instance, env.instance.ids.next(), cause.now, delivery)
    except StoreError:
        raise
    except Exception as error:
        log.exception("session not suspended", turn_id=turn, session_key=key, error=repr(error))
        return None


# Retry keys whose next turn could not be started, and suspend sessions whose rows cannot be read.


Claimed = StartedTurn | NotYet | BehindApproval | Later | None
MOST_FAILURES = 3  # in a row, then the session is suspended


class FailedClaims:
    """Counts the failures of each key in a row. They are in memory only: the next process counts anew."""

    def __init__(self, env: TurnEnvironment, timers: Bursts) -> None:
        self._env = env
        self._timers = timers
        self._failures: dict[str, int] = {}

    def result_of(self, key: str, claim: asyncio.Future[Claimed]) -> Claimed:
        """Return what a claim found; None also when it failed, which schedules a retry, or when the store is closing."""
        if claim.cancelled() or isinstance(error := claim.exception(), StoreError):
            return None
        if error is not None:
            self._try_again(key, error)
            return None
        self._failures.pop(key, None)
        return claim.result()

    def _try_again(self, key: str, error: BaseException) -> None:
        """Retry the key after a growing delay. After MOST_FAILURES the session is suspended, so that its people can start
        a new one.
        """
        env, failures = self._env, self._failures.get(key, 0) + 1
        self._failures[key] = failures
        log.error("turn not started", session_key=key, error=repr(error), failures=failures, exc_info=error)
        if failures == MOST_FAILURES:
            log.error(
                "session unreadable",
                session_key=key,
                remedy="it is suspended: see `everturn explain` and the operations page",
            )
            delivery = env.platforms.delivery(origin_of(key)[0])
            suspending = env.store.run(quarantine_idle, key, env.instance.ids.next(), env.clock.now(), delivery)
            suspending.add_done_callback(partial(self._suspended, key))
        self._timers.wake_at(key, env.clock.now() + pause_s(failures, env.instance.machine.chance.random()))

    def _suspended(self, key: str, suspending: asyncio.Future[Recovered | None]) -> None:
        if suspending.cancelled() or (error := suspending.exception()) is not None:
            log.error("session not suspended", session_key=key, error=repr(error))
        elif (recovered := suspending.result()) is not None:
            self._env.hub.publish(key, recovered.events)
            self._env.observing.turn_recovered(recovered.verdict)
            self._env.deliver(key)
