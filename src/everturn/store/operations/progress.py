"""The one progress notice of a turn: replaced in place where the platform can edit. It never outlives its turn."""

from __future__ import annotations

import msgspec

from everturn.model import Event
from everturn.store.interface import Op, sql
from everturn.store.operations.entries import lock_entry
from everturn.store.operations.telling import Delivery, events_of, fact, owe, report
from everturn.store.operations.turn_values import Begun

PROGRESS = "progress"
# What is on the screen is replaced; what is not out yet simply says something else.
REPLACE = (
    "UPDATE outbox SET text=$2, state=CASE state WHEN 'sent' THEN 'owed' ELSE state END,"
    " attempts=CASE state WHEN 'sent' THEN 0 ELSE attempts END, due_at=CASE state WHEN 'sent' THEN $3 ELSE due_at END,"
    " ended_at=NULL WHERE id=$1 AND state IN ('owed','sending','sent') RETURNING id"
)
SAY_ELSE = "UPDATE outbox SET text=$2 WHERE id=$1 AND state='owed' RETURNING id"
KEEP = "UPDATE outbox SET text=$2 WHERE id=$1 AND state='sent' RETURNING id"


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """What is said about a turn; `id` is that of the notice, if it has none that can be replaced."""

    id: int
    text: str
    reason: str
    at: float


def tell_progress(begun: Begun, progress: Progress, delivery: Delivery) -> Op[tuple[Event, ...] | None]:
    """Say how a turn goes; None when it is no longer the key's: nothing is said of a turn that has ended."""
    entry = yield from lock_entry(begun.key)
    if entry is None or entry.turn != begun.turn or entry.fence != begun.fence:
        return None
    rows = yield sql("SELECT progress FROM turn WHERE id=$1", begun.turn)
    number = rows[0][0] if rows else None
    if number is None or not (yield sql(_statement(delivery), *_values(delivery, number, progress))):
        number = progress.id
        yield sql("UPDATE turn SET progress=$2 WHERE id=$1", begun.turn, number)
        plain = Delivery(by_event=delivery.by_event)
        yield from owe(number, begun.key, begun.turn, PROGRESS, begun.source, progress.text, progress.at, plain, 0)
    if not delivery.by_event:
        return ()
    said = fact("notice", progress.at, id=str(number), turn=str(begun.turn), text=progress.text, reason=progress.reason)
    before = yield from events_of(begun.key, progress.id)
    return before or (yield from report(begun.key, entry.event_seq, [said], progress.id))


def _statement(delivery: Delivery) -> str:
    if delivery.by_event:
        return KEEP
    return REPLACE if delivery.edits else SAY_ELSE


def _values(delivery: Delivery, number: int, progress: Progress) -> tuple[object, ...]:
    return (number, progress.text, progress.at) if delivery.edits and not delivery.by_event else (number, progress.text)


def message_waits(key: str) -> Op[bool]:
    """Whether somebody's message waits behind the turn."""
    return bool(
        (
            yield sql(
                "SELECT 1 FROM inbox WHERE key=$1 AND ended_at IS NULL AND state='waiting' AND kind='message' LIMIT 1",
                key,
            )
        )
    )
