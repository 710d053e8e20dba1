"""Requests to platforms that come late: those of a process that stood still and lost its work, and those that were on their way
when their process ended.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from everturn.clock import Clock
from everturn.errors import TryLater
from everturn.ids import Instance
from everturn.outbox.rows.outbox import still_claimed
from everturn.store.interface import GRACE_S, Store

MOST = 10_000  # requests that are remembered
MOST_CHECKS = 3


async def check_claim(store: Store, instance: Instance, row: int, claim: int, within_s: float = GRACE_S) -> None:
    """Raise FenceLost where others took this process for dead, and the reply with its work, or its receiver was revoked. Asked right
    before a request when the last heartbeat is too old to tell, or the claim took long. An answer that comes late, because the process
    stood still meanwhile or the database is slow, proves nothing.
    """
    clock = instance.clock
    for _ in range(MOST_CHECKS):
        asked_at = clock.monotonic()
        await store.read(still_claimed, row, claim)
        if clock.monotonic() - asked_at < within_s:
            return
    raise TryLater("the database is too slow to say whether this is still ours to send", GRACE_S)


@dataclass(slots=True)
class InFlightRequests:
    """Since when this process knows of requests that were not answered: those of processes that ended, and its own. It waits before it
    looks for what they sent, or edits what they edited. Each process counts for itself: the clocks of machines differ, so no stored
    time could say it.
    """

    clock: Clock
    seconds: float
    since: dict[int, float] = field(default_factory=dict)  # by the number of the request

    def left_s(self, number: int) -> float:
        """How long the request with this number may still be in flight; one that is not known yet counts from now."""
        return max(0.0, self._known(number) + self.seconds - self.clock.monotonic())

    def unanswered(self, number: int) -> None:
        """Note that a request of our own was not answered in time, and may arrive yet."""
        self.since.pop(number, None)
        self._known(number)

    def count_anew(self) -> None:
        """Count from now for all: a process has ended, which may have sent since what we had waited for."""
        self.since = dict.fromkeys(self.since, self.clock.monotonic())

    def _known(self, number: int) -> float:
        if number not in self.since and len(self.since) >= MOST:
            del self.since[next(iter(self.since))]  # should it be asked for again, it is waited for again
        return self.since.setdefault(number, self.clock.monotonic())
