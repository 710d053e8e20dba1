"""When a room that cannot be read is skipped, so that it does not hold back the cursor of all others for ever."""

from __future__ import annotations

LOUD_FAILURES = 3
LAST_FAILURES = 5
LONGEST_UPGRADE_S = 3600.0  # an upgrade of the other side is over by then
TOO_MUCH = (
    "While I was disconnected, more messages arrived here than I can read, and I skipped the oldest ones. If I did not answer"
    " you, please send your message again."
)
UNREADABLE = (
    "For an hour the homeserver could not show me the messages here, and I had to skip them. If I did not answer you,"
    " please send your message again."
)


def is_hopeless(failures: int, failing_s: float) -> bool:
    """Whether a room failed often enough, and for long enough: a server that is busy for a while loses no message."""
    return failures >= LAST_FAILURES and failing_s >= LONGEST_UPGRADE_S


def is_loud(failures: int) -> bool:
    """Whether the owner sees it in the status: one failed request is not shown."""
    return failures >= LOUD_FAILURES
