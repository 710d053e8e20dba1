"""Store the progress notice of a turn: one, replaced in place where the platform can edit, never after the turn's end."""

from __future__ import annotations

import msgspec

from everturn.model import Event
from everturn.outbox.rows.notices import events_of, fact, queue_reply, report
from everturn.outbox.rules.delivery import Delivery
from everturn.sessions.rows.entries import lock_entry
from everturn.store.interface import Op, sql
from everturn.turns.rows.turn_values import StartedTurn

PROGRESS = "progress"
# A sent notice is edited; one that was not sent yet gets the new text.
REPLACE = (
    "UPDATE outbox SET text=$2, state=CASE state WHEN 'sent' THEN 'pending' ELSE state END,"
    " attempts=CASE state WHEN 'sent' THEN 0 ELSE attempts END, due_at=CASE state WHEN 'sent' THEN $3 ELSE due_at END,"
    " ended_at=NULL WHERE id=$1 AND state IN ('pending','sending','sent') RETURNING id"
)
SAY_ELSE = "UPDATE outbox SET text=$2 WHERE id=$1 AND state='pending' RETURNING id"
KEEP_SENT = "UPDATE outbox SET text=$2 WHERE id=$1 AND state='sent' RETURNING id"


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """A progress notice; `id` is used if the turn has no notice that can be replaced."""

    id: int
    text: str
    reason: str
    at: float


def notify_progress(begun: StartedTurn, progress: Progress, delivery: Delivery) -> Op[tuple[Event, ...] | None]:
    """Store a progress notice; None when the turn no longer has the key: a turn that has ended gets none."""
    entry = yield from lock_entry(begun.key)
    if entry is None or entry.turn != begun.turn or entry.fence != begun.fence:
        return None
    rows = yield sql("SELECT progress FROM turn WHERE id=$1", begun.turn)
    number = rows[0][0] if rows else None
    if number is None or not (yield sql(_statement(delivery), *_values(delivery, number, progress))):
        number = progress.id
        yield sql("UPDATE turn SET progress=$2 WHERE id=$1", begun.turn, number)
        plain = Delivery(by_event=delivery.by_event)
        yield from queue_reply(
            number, begun.key, begun.turn, PROGRESS, begun.source, progress.text, progress.at, plain, 0
        )
    if not delivery.by_event:
        return ()
    said = fact("notice", progress.at, id=str(number), turn=str(begun.turn), text=progress.text, reason=progress.reason)
    before = yield from events_of(begun.key, progress.id)
    return before or (yield from report(begun.key, entry.event_seq, [said], progress.id))


def _statement(delivery: Delivery) -> str:
    if delivery.by_event:
        return KEEP_SENT
    return REPLACE if delivery.edits else SAY_ELSE


def _values(delivery: Delivery, number: int, progress: Progress) -> tuple[object, ...]:
    return (number, progress.text, progress.at) if delivery.edits and not delivery.by_event else (number, progress.text)


def message_waits(key: str) -> Op[bool]:
    """Whether a message is queued behind the turn."""
    return bool(
        (
            yield sql(
                "SELECT 1 FROM inbox WHERE key=$1 AND ended_at IS NULL AND state='queued' AND kind='message' LIMIT 1",
                key,
            )
        )
    )
