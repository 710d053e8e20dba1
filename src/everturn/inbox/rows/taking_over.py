"""Takeover: a newer message ends the open turn of its key (interrupt or rollback), in the transaction that stores it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from everturn.inbox.rules.busy import TAKES_OVER, BusyMode
from everturn.model import SessionEntry
from everturn.outbox.rows.notices import Fact, fact
from everturn.sessions.rows.boundaries import acknowledge_tail, end_open_turn, release
from everturn.sessions.rows.transcripts import calls_of
from everturn.sessions.rules.notes import Undone
from everturn.store.interface import Op, sql
from everturn.turns.rows.turn_values import Streamed

# A turn's rows stand at the end of its session; in a copy of them (a branch, a compaction) they may stand anywhere.
HIDE = (
    "UPDATE message SET hidden=1 WHERE session_id=$1 AND turn=$2 AND hidden=0"
    " AND seq>=coalesce((SELECT t.first_seq FROM turn t WHERE t.id=$2 AND t.session_id=$1), 1)"
)
REMEMBERED = 5  # turns rolled back in a row whose effects the next one sees
_encode = msgspec.json.Encoder().encode


def take_over(entry: SessionEntry, busy: BusyMode, at: float, by: int, streamed: Streamed | None = None) -> Op[Fact]:
    """End the key's open turn and release the key; late writers lose their fence. Returns the fact for watchers. `by` is the
    message, or the next turn, that ends it.
    """
    state = "rolled_back" if busy is BusyMode.ROLLBACK else "stopped"
    why = "rolled back" if busy is BusyMode.ROLLBACK else "interrupted"
    yield from end_open_turn(entry, state, "withdrawn", why, at, streamed=streamed, by=by)
    if busy is BusyMode.ROLLBACK:
        yield from take_back(entry, [entry.turn or 0])
        yield from release(entry)
        yield sql(
            "UPDATE entry SET state='active', reason=NULL, marked_at=NULL WHERE key=$1 AND state<>'suspended'",
            entry.key,
        )
    else:
        yield from release(entry)
        yield from acknowledge_tail(entry, at)
    return fact("turn", at, turn=str(entry.turn), state=state, why=why)


def take_back(entry: SessionEntry, turns: Sequence[int]) -> Op[int]:
    """Hide the rows of rolled-back turns; what their tools did stays known until a turn has answered. Returns how many calls
    happened, or may have.
    """
    effects, remembered = 0, entry.rolled_back
    for turn in turns:
        yield sql(HIDE, entry.session_id, turn)
        rows = yield sql("SELECT count(*) FROM effect WHERE turn=$1", turn)
        effects += int(rows[0][0])
        remembered = (*remembered, turn) if rows[0][0] else remembered
    if effects:
        kept = _encode(remembered[-REMEMBERED:]).decode()
        yield sql("UPDATE entry SET rolled_back=$2 WHERE key=$1", entry.key, kept)
    return effects


def pop_takeover(key: str) -> Op[BusyMode | None]:
    """Take the busy mode of a queued message that ends the turn which would resume now; it is returned once."""
    rows = yield sql(
        "SELECT id, busy FROM inbox WHERE key=$1 AND ended_at IS NULL AND state='queued'"
        " AND busy IN ('interrupt','rollback') ORDER BY place LIMIT 1",
        key,
    )
    if not rows:
        return None
    yield sql(
        "UPDATE inbox SET busy='steer' WHERE key=$1 AND ended_at IS NULL AND busy IN ('interrupt','rollback')", key
    )
    busy = BusyMode(rows[0][1])
    return busy if busy in TAKES_OVER else None


def undone(entry: SessionEntry) -> Op[list[Undone]]:
    """The tool calls of the rolled-back turns: they did happen."""
    found: list[Undone] = []
    for turn in entry.rolled_back:
        effects = yield sql("SELECT call_id, name, state FROM effect WHERE turn=$1 ORDER BY begun_at, call_id", turn)
        rows = yield sql(
            "SELECT m.calls FROM turn t JOIN message m ON m.session_id=t.session_id AND m.seq>=t.first_seq"
            " AND m.turn=t.id WHERE t.id=$1 AND m.calls IS NOT NULL ORDER BY m.seq",
            turn,
        )
        arguments = {call.id: call.arguments for row in rows for call in calls_of(row[0])}
        found += [Undone(name, arguments.get(call, ""), known=state == "done") for call, name, state in effects]
    return found


def ended_by(key: str, number: int) -> Op[int | None]:
    """For an operation that runs twice: the turn its first run ended wrote the last row of the session it left."""
    rows = yield sql(
        "SELECT t.id FROM entry e JOIN turn t ON t.state IN ('stopped','rolled_back') AND t.ended_by=$2 AND t.id IN"
        " ((SELECT m.turn FROM message m WHERE m.session_id=e.session_id ORDER BY m.seq DESC LIMIT 1),"
        "  (SELECT m.turn FROM message m WHERE m.session_id=e.previous_session_id ORDER BY m.seq DESC LIMIT 1))"
        " WHERE e.key=$1",
        key,
        number,
    )
    return int(rows[0][0]) if rows else None
