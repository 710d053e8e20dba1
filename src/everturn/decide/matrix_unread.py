"""When a room that can not be read is passed over, so that it does not hold back the place of all others for ever."""

from __future__ import annotations

LOUD_FAILURES = 3
LAST_FAILURES = 5
LONGEST_S = 3600.0  # an upgrade of the other side is over by then
TOO_MUCH = (
    "While I was away, more was said here than I can read afterwards, and I do not know the oldest of it. If I did not answer"
    " you, please say it again."
)
UNREADABLE = (
    "For an hour the homeserver could not show me what was said here, and I had to pass it over. If I did not answer you,"
    " please say it again."
)


def is_hopeless(failures: int, failing_s: float) -> bool:
    """Whether a room failed often enough, and for long enough: a server that is busy for a while loses nobody's words."""
    return failures >= LAST_FAILURES and failing_s >= LONGEST_S


def is_loud(failures: int) -> bool:
    """Whether its owner is told: one failed request is no trouble."""
    return failures >= LOUD_FAILURES
