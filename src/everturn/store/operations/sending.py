"""Messages that a tool sends: owed once for each call, however often the call is repeated."""

from __future__ import annotations

import msgspec

from everturn.errors import FenceLost
from everturn.model import Event, SessionEntry, SessionSource
from everturn.store.interface import Op, sql
from everturn.store.operations.entries import lock_entry
from everturn.store.operations.telling import Delivery, events_of, report, tell


class Letter(msgspec.Struct, frozen=True, kw_only=True):
    """What to send where, and the call that wants it; `number` is the outbox row's, made by the caller."""

    key: str
    turn: int
    call_id: str
    number: int
    to_key: str
    to: SessionSource
    text: str
    at: float
    delivery: Delivery


class Posted(msgspec.Struct, frozen=True):
    """It is owed now, or was before; `events` are what watchers of the target are told."""

    events: tuple[Event, ...] = ()


def post(letter: Letter) -> Op[Posted | None]:
    """Owe somebody a message on behalf of a call; None when the target can not be reached yet.

    The call's row keeps the number of what it sent: a repetition, in whichever life, finds it and sends nothing.
    """
    entries = yield from _lock(letter)
    own = entries[letter.key]
    if own is None or own.turn != letter.turn:
        raise FenceLost(f"{letter.key}: the turn {letter.turn} no longer owns its conversation")
    target = entries.get(letter.to_key)
    if letter.delivery.by_event and target is None:
        return None  # where events are the delivery, there must be somebody whose events they are
    taken = yield sql(
        "UPDATE effect SET sent=$3 WHERE turn=$1 AND call_id=$2 AND sent IS NULL RETURNING 1",
        letter.turn,
        letter.call_id,
        letter.number,
    )
    if not taken:
        return Posted((yield from events_of(letter.to_key, letter.at)))
    facts = yield from tell(
        letter.number, letter.to_key, letter.to, letter.text, "sent", letter.at, letter.delivery, letter.turn
    )
    return Posted((yield from report(letter.to_key, target.event_seq, facts)) if target else ())


def _lock(letter: Letter) -> Op[dict[str, SessionEntry | None]]:
    """The entries that are written to, locked in the order of their keys: two turns that write to each other do not wait
    for each other.
    """
    keys = {letter.key, letter.to_key} if letter.delivery.by_event else {letter.key}
    entries: dict[str, SessionEntry | None] = {}
    for key in sorted(keys):
        entries[key] = yield from lock_entry(key)
    return entries
