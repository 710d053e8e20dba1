"""Open approval requests: find the one of a turn, close it, and notify senders of messages queued behind it."""

from __future__ import annotations

import msgspec

from everturn.model import Event
from everturn.outbox.rows.replies import events_of, queue_notice, report
from everturn.outbox.rules.delivery import Delivery
from everturn.sessions.rows.entries import lock_entry, source_of
from everturn.store.interface import Op, Row, Rows, sql
from everturn.turns.rules import turn_texts
from everturn.turns.rules.approvals import closes

AWAITING = "awaiting_approval"
WAITING_ROWS = (
    "SELECT id, body, source, accepted_at, kind, busy, extras, attachments, album, why FROM inbox"
    " WHERE key=$1 AND ended_at IS NULL AND state='queued' AND backlog IS NULL ORDER BY place"
)
CLOSE_REQUESTS = (
    "UPDATE approval SET state='closed', answered_at=$2, why=$3 WHERE turn=$1 AND answered_at IS NULL RETURNING call_id"
)


class ApprovalRequest(msgspec.Struct, frozen=True):
    """The approval request of a turn; `id` is None when it is answered and the turn may go on."""

    id: int | None
    tool: str


def request_of(turn: int | None) -> Op[ApprovalRequest | None]:
    """The approval request of this turn; None when the turn does not await approval."""
    rows = yield sql(
        "SELECT a.id, a.tool FROM turn t"
        " LEFT JOIN approval a ON a.turn=t.id AND a.answered_at IS NULL WHERE t.id=$1 AND t.state='awaiting_approval'",
        turn,
    )
    return ApprovalRequest(rows[0][0], rows[0][1] or "") if rows else None


def waiting_rows(key: str) -> Op[Rows]:
    """The messages and commands queued behind the turn, in the order of arrival."""
    return (yield sql(WAITING_ROWS, key))


def closing(rows: Rows, request: ApprovalRequest) -> bool:
    """Whether a message that came after the approval request closes it instead of waiting for its answer."""
    return any(closes(row[5]) and _since(row, request) for row in rows)


def without_notice(rows: Rows, request: ApprovalRequest) -> bool:
    """Whether a message is queued behind the approval request and its sender got no notice yet."""
    return any(row[9] is None and _since(row, request) for row in rows)


def _since(row: Row, request: ApprovalRequest) -> bool:
    """Whether the message came after the approval request, by its id: an earlier one does not close it."""
    return row[4] == "message" and request.id is not None and row[0] > request.id


def notify_queued(key: str, notice: int, at: float, delivery: Delivery) -> Op[tuple[Event, ...]]:
    """Store one notice for the senders of messages queued behind an approval request."""
    entry = yield from lock_entry(key)
    request = (yield from request_of(entry.turn)) if entry is not None else None
    rows = (yield from waiting_rows(key)) if request is not None else []
    if entry is None or request is None or request.id is None or not without_notice(rows, request):
        return (yield from events_of(key, notice))  # the events of an earlier run of this operation
    held = [row for row in rows if row[9] is None and _since(row, request)]
    for row in held:
        yield sql("UPDATE inbox SET why=$2 WHERE id=$1 AND state='queued'", row[0], AWAITING)
    source = source_of(held[-1][2]) or entry.origin
    facts = yield from queue_notice(notice, key, source, turn_texts.queued(request.tool), AWAITING, at, delivery)
    return (yield from report(key, entry.event_seq, facts, notice))


def answered_keys() -> Op[list[str]]:
    """The keys to wake: their turn awaits approval although its request is answered."""
    rows = yield sql(
        "SELECT t.key FROM turn t WHERE t.ended_at IS NULL AND t.state='awaiting_approval' AND NOT EXISTS"
        " (SELECT 1 FROM approval a WHERE a.turn=t.id AND a.answered_at IS NULL) ORDER BY +t.id"
    )
    return [row[0] for row in rows]
