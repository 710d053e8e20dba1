"""Pages of transcript rows backwards: through a session, then through the sessions that were compacted into it."""

from __future__ import annotations

import msgspec

from everturn.model import Message
from everturn.sessions.rows.transcripts import MESSAGE_COLUMNS, message_of
from everturn.store.interface import Op, Row, sql

ROWS = 200
NEWEST = 2**53  # a number that every reader of JSON can hold
LONGEST = 1_000  # generations
COPIED_AT_MOST = 1_000  # rows that a compaction takes over; its tail is far shorter


class TranscriptPosition(msgspec.Struct, frozen=True):
    """Where the next page begins: in this session, before this row. `depth` counts the compactions since."""

    session_id: str
    before: int
    depth: int


class EarlierRows(msgspec.Struct, frozen=True):
    """A page of rows in order, `depth` compactions ago, and the position before them; None at the beginning."""

    rows: list[Message]
    place: TranscriptPosition | None
    depth: int


def rows_before(
    session_id: str | None, before: int | None, child: str | None = None, depth: int = 0
) -> Op[EarlierRows]:
    """Return the newest rows before a position, without those that a compaction copied into `child`."""
    rows = yield sql(
        f"SELECT {MESSAGE_COLUMNS} FROM message WHERE session_id=$1 AND hidden=0 AND seq<$2 ORDER BY seq DESC LIMIT $3",
        session_id,
        NEWEST if before is None else before,
        ROWS + 1,
    )
    found = [message_of(row) for row in reversed(rows)]
    more, found = len(found) > ROWS, found[-ROWS:]
    place = (
        TranscriptPosition(session_id, found[0].seq, depth)
        if more and session_id
        else (yield from _before(session_id, depth))
    )
    if child is not None:
        taken = yield from _taken_over(child)
        found = [row for row in found if (row.role, row.at, row.turn, row.call_id, row.content) not in taken]
    return EarlierRows(found, place, depth)


def earlier_rows(current: str | None, session_id: str, before: int) -> Op[EarlierRows | None]:
    """Return the rows before a position in the current session or one compacted into it; None when it is neither."""
    child, depth, here = None, 0, current
    while here is not None and here != session_id and depth < LONGEST:
        child, here, depth = here, (yield from parent_of(here)), depth + 1
    if here != session_id:
        return None
    return (yield from rows_before(session_id, before, child, depth))


def parent_of(session_id: str | None) -> Op[str | None]:
    """Return the session that was compacted into this one. One that was left by a reset is another conversation."""
    rows = yield sql(
        "SELECT p.session_id FROM session s JOIN session p ON p.session_id=s.parent AND p.end_reason='compaction'"
        " WHERE s.session_id=$1 AND EXISTS (SELECT 1 FROM message m WHERE m.session_id=$1 AND m.seq=1 AND m.role='summary')",
        session_id,
    )
    return rows[0][0] if rows else None


def _before(session_id: str | None, depth: int) -> Op[TranscriptPosition | None]:
    parent = yield from parent_of(session_id)
    return TranscriptPosition(parent, NEWEST, depth + 1) if parent is not None else None


def _taken_over(child: str) -> Op[set[Row]]:
    """Return the rows that a compaction copied, hidden ones included: what was undone later stays undone."""
    rows = yield sql(
        "SELECT role, at, turn, call_id, content FROM message WHERE session_id=$1 AND seq>1 AND seq<=$2",
        child,
        COPIED_AT_MOST,
    )
    return {tuple(row) for row in rows}
