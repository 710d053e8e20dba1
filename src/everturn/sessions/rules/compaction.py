"""Which rows a compaction keeps as they are, and the back-off after a failed compaction."""

from __future__ import annotations

from collections.abc import Sequence

from everturn.model import Message

BACK_OFF_S = 300.0
LONGEST_BACK_OFF_S = 3600.0


def first_kept(rows: Sequence[Message], keep: int) -> int:
    """The place of the first of the newest `keep` rows, moved back until no result stands without its call."""
    callers = {call.id: place for place, row in enumerate(rows) for call in row.calls}
    first = len(rows) - min(max(keep, 0), len(rows))
    for place in range(len(rows) - 1, -1, -1):
        if place < first:
            break
        row = rows[place]
        if row.role == "tool" and row.call_id is not None:
            first = min(first, callers.get(row.call_id, first))
    return first


def back_off_s(failures: int) -> float:
    """How long to wait after so many failed compactions in a row: 5 minutes, then 15, then 45, at most an hour."""
    return min(BACK_OFF_S * 3.0 ** max(0, min(failures, 10) - 1), LONGEST_BACK_OFF_S)
