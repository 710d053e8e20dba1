"""Open questions of waiting turns: finding one, closing one, and telling whose message waits for its answer."""

from __future__ import annotations

import msgspec

from everturn.decide import approval_words
from everturn.decide.approvals import closes
from everturn.model import Event
from everturn.store.interface import Op, Row, Rows, sql
from everturn.store.operations.entries import lock_entry, source_of
from everturn.store.operations.telling import Delivery, events_of, report, tell

HELD = "asking"
WAITING_ROWS = (
    "SELECT id, body, source, accepted_at, kind, busy, brought, attachments, album, why FROM inbox"
    " WHERE key=$1 AND ended_at IS NULL AND state='waiting' AND held IS NULL ORDER BY place"
)
CLOSE_QUESTIONS = (
    "UPDATE approval SET state='closed', answered_at=$2, why=$3 WHERE turn=$1 AND answered_at IS NULL RETURNING call_id"
)


class Question(msgspec.Struct, frozen=True):
    """What a waiting turn asks; `id` is None when the answer is there and the turn may go on."""

    id: int | None
    tool: str


def question_of(turn: int | None) -> Op[Question | None]:
    """What this turn waits for; None when it does not wait."""
    rows = yield sql(
        "SELECT a.id, a.tool FROM turn t"
        " LEFT JOIN approval a ON a.turn=t.id AND a.answered_at IS NULL WHERE t.id=$1 AND t.state='waiting'",
        turn,
    )
    return Question(rows[0][0], rows[0][1] or "") if rows else None


def waiting_rows(key: str) -> Op[Rows]:
    """What waits behind the turn, in the order of arrival."""
    return (yield sql(WAITING_ROWS, key))


def closing(rows: Rows, question: Question) -> bool:
    """Whether somebody wrote, after the question, words that do not wait for its answer."""
    return any(closes(row[5]) and _since(row, question) for row in rows)


def untold(rows: Rows, question: Question) -> bool:
    """Whether somebody's message waits for the answer and its sender was not told so."""
    return any(row[9] is None and _since(row, question) for row in rows)


def _since(row: Row, question: Question) -> bool:
    """Its id tells: what was written before the question is no answer to it."""
    return row[4] == "message" and question.id is not None and row[0] > question.id


def tell_held(key: str, notice: int, at: float, delivery: Delivery) -> Op[tuple[Event, ...]]:
    """Say once to whose message waits that a question comes first."""
    entry = yield from lock_entry(key)
    question = (yield from question_of(entry.turn)) if entry is not None else None
    rows = (yield from waiting_rows(key)) if question is not None else []
    if entry is None or question is None or question.id is None or not untold(rows, question):
        return (yield from events_of(key, notice))  # what this operation told when it ran before
    held = [row for row in rows if row[9] is None and _since(row, question)]
    for row in held:
        yield sql("UPDATE inbox SET why=$2 WHERE id=$1 AND state='waiting'", row[0], HELD)
    source = source_of(held[-1][2]) or entry.origin
    facts = yield from tell(notice, key, source, approval_words.held(question.tool), HELD, at, delivery)
    return (yield from report(key, entry.event_seq, facts, notice))


def answered_keys() -> Op[list[str]]:
    """The keys whose turn waits although its question has its answer: they are to be woken."""
    rows = yield sql(
        "SELECT t.key FROM turn t WHERE t.ended_at IS NULL AND t.state='waiting' AND NOT EXISTS"
        " (SELECT 1 FROM approval a WHERE a.turn=t.id AND a.answered_at IS NULL) ORDER BY +t.id"
    )
    return [row[0] for row in rows]
