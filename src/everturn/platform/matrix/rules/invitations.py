"""When an invitation that could not be answered is retried."""

from __future__ import annotations

from dataclasses import dataclass

from everturn.errors import EverturnError, Refused, TryLater
from everturn.pauses import pause_s

MOST_FAILURES = 20  # about a quarter of an hour
LONGEST_WAIT_S = 3600.0  # a longer delay that a homeserver asks for is cut to an hour


@dataclass(frozen=True, slots=True)
class RetryInvitation:
    """Retry after so many seconds; `failures` counts those so far."""

    in_s: float
    failures: int


def after_failure(error: EverturnError, failures: int, chance: float) -> RetryInvitation | None:
    """When to retry after so many failures before this one; None: not in this process.

    A delay that the server asked for is no failure: joining is what homeservers limit most. What is refused was withdrawn,
    or its room is gone.
    """
    if isinstance(error, Refused):
        return None
    if isinstance(error, TryLater) and error.delay_s > 0:
        return RetryInvitation(min(error.delay_s, LONGEST_WAIT_S), failures)
    if failures >= MOST_FAILURES:
        return None
    return RetryInvitation(pause_s(failures + 1, chance), failures + 1)
