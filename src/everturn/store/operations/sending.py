"""Messages that a tool sends: owed once for each call, however often the call is repeated."""

from __future__ import annotations

import msgspec

from everturn.model import Event, Reply, SessionEntry, SessionSource, StoredFile
from everturn.store.interface import Op, sql
from everturn.store.operations.entries import lock_entry
from everturn.store.operations.outbox import give_up, sent_at_once
from everturn.store.operations.telling import Delivery, events_of, fact, owe, report
from everturn.store.operations.turns import owned

FILE = "file"


class Letter(msgspec.Struct, frozen=True, kw_only=True):
    """What to send where, and the call that wants it; `number` is the outbox row's, made by the caller."""

    key: str
    turn: int
    attempt: int  # of the turn that wants it
    call_id: str
    number: int
    to_key: str
    to: SessionSource
    text: str
    at: float
    delivery: Delivery
    instance: int
    file: StoredFile | None = None  # what is sent; the text stands beneath it


class Posted(msgspec.Struct, frozen=True):
    """It is owed now, or was before: what watchers of the target are told, and the message itself if it is ours to send."""

    events: tuple[Event, ...] = ()
    reply: Reply | None = None


def post(letter: Letter) -> Op[Posted | None]:
    """Owe somebody a message on behalf of a call; None when the target can not be reached yet.

    The call's row keeps the number of what it sent: a repetition, in whichever life, finds it and sends nothing.
    """
    entries = yield from _lock(letter)
    yield from owned(letter.key, letter.turn, letter.attempt)
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
        return (yield from _posted_before(letter))
    # Claimed with the same commit where it can be: what is being sent is not overtaken by the turn's answer.
    reply = yield from owe(
        letter.number, letter.to_key, letter.turn, FILE if letter.file else "notice", letter.to, letter.text, letter.at,
        letter.delivery, letter.instance, letter.file,
    )  # fmt: skip
    facts = [fact("notice", letter.at, text=letter.text, reason="sent")] if letter.delivery.by_event else []
    return Posted((yield from report(letter.to_key, target.event_seq, facts, letter.number)) if target else (), reply)


def was_posted(turn: int, call_id: str) -> Op[bool]:
    """Whether this call has sent what it wanted, in whichever life."""
    rows = yield sql("SELECT sent FROM effect WHERE turn=$1 AND call_id=$2", turn, call_id)
    return bool(rows) and rows[0][0] is not None


def give_up_file(reply: Reply, at: float, why: str, notice: int, text: str) -> Op[None]:
    """A file that is not delivered, or not with all of its words: a dead letter, and those who wait are told, once. Nobody
    is told of one that is no longer ours to send (FenceLost): it was taken over, or for somebody who was revoked meanwhile.
    """
    yield from give_up(reply, at, why)
    yield from owe(notice, reply.key, None, "notice", reply.source, text, at, Delivery(by_event=False), 0)


def _posted_before(letter: Letter) -> Op[Posted]:
    """Either this very operation ran before, and says the same; or an earlier life's did, and recovery sends it."""
    events = yield from events_of(letter.to_key, letter.number)
    return Posted(events, (yield from sent_at_once(letter.number, letter.instance)))


def _lock(letter: Letter) -> Op[dict[str, SessionEntry | None]]:
    """The entries that are written to, locked in the order of their keys: two turns that write to each other do not wait
    for each other.
    """
    keys = {letter.key, letter.to_key} if letter.delivery.by_event else {letter.key}
    entries: dict[str, SessionEntry | None] = {}
    for key in sorted(keys):
        entries[key] = yield from lock_entry(key)
    return entries
