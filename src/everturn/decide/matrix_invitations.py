"""When an invitation that could not be answered is tried again."""

from __future__ import annotations

from dataclasses import dataclass

from everturn.decide.reconnecting import pause_s
from everturn.errors import EverturnError, Refused, TryLater

MOST_FAILURES = 20  # about a quarter of an hour
LONGEST_S = 3600.0  # a homeserver that asks for more is not believed


@dataclass(frozen=True, slots=True)
class Again:
    """Try it after so many seconds; so often it failed by then."""

    in_s: float
    failures: int


def after_failure(error: EverturnError, failures: int, chance: float) -> Again | None:
    """When to try again after so many failures before this one; None: not in this life.

    A wait that was ordered is no failure: joining is what homeservers limit most. What is refused was withdrawn, or its room
    is gone.
    """
    if isinstance(error, Refused):
        return None
    if isinstance(error, TryLater) and error.delay_s > 0:
        return Again(min(error.delay_s, LONGEST_S), failures)
    if failures >= MOST_FAILURES:
        return None
    return Again(pause_s(failures + 1, chance), failures + 1)
