"""Store long outputs of tools, whole, beside the shortened result in the transcript."""

from __future__ import annotations

import msgspec

from everturn.ids import oldest_id
from everturn.store.interface import Op, Statement, sql

OUTPUTS_KEPT_S = 30 * 86_400.0
BATCH = 50  # they are long
KEEP_OUTPUT = (
    "INSERT INTO output (turn, call_id, text, at) VALUES ($1, $2, $3, $4) ON CONFLICT (turn, call_id) DO UPDATE SET"
    " text=excluded.text"
)


class OutputPage(msgspec.Struct, frozen=True):
    """A part of an output, and how long the whole is."""

    text: str
    length: int


def keep_output(turn: int, call_id: str, text: str, at: float) -> Statement:
    """The statement that stores an output, for the operation that commits its result."""
    return sql(KEEP_OUTPUT, turn, call_id, text, at)


def read_page(turn: int, call_id: str, key: str, session_id: str, start: int, count: int) -> Op[OutputPage | None]:
    """Read a page of an output of this conversation; no other conversation's output is found."""
    rows = yield sql(
        "SELECT substr(o.text, $5, $6), length(o.text) FROM output o JOIN turn t ON t.id=o.turn"
        " WHERE o.turn=$1 AND o.call_id=$2 AND (t.key=$3 OR t.session_id=$4)",
        turn,
        call_id,
        key,
        session_id,
        start + 1,
        count,
    )
    return OutputPage(*rows[0]) if rows else None


def forget_outputs(now: float) -> Op[int]:
    """Delete one bounded batch of outputs that were kept long enough."""
    rows = yield sql(
        "DELETE FROM output WHERE turn IN (SELECT turn FROM output WHERE turn<$1 ORDER BY turn LIMIT $2) RETURNING 1",
        oldest_id(now - OUTPUTS_KEPT_S),
        BATCH,
    )
    return len(rows)
