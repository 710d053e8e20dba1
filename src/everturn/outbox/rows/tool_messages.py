"""Messages that a tool sends: queued once for each call, however often the call is repeated."""

from __future__ import annotations

import msgspec

from everturn.model import Event, Reply, SessionEntry, SessionSource, StoredFile
from everturn.outbox.rows.notices import events_of, fact, queue_reply, report
from everturn.outbox.rows.outbox import make_dead_letter, sent_at_once
from everturn.outbox.rules.delivery import Delivery
from everturn.sessions.rows.entries import lock_entry
from everturn.store.interface import Op, sql
from everturn.turns.rows.turn_values import owned

FILE = "file"


class ToolMessage(msgspec.Struct, frozen=True, kw_only=True):
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
    """A queued tool message: the events for watchers of the target, and the reply if this process is to send it."""

    events: tuple[Event, ...] = ()
    reply: Reply | None = None


def post(message: ToolMessage) -> Op[Posted | None]:
    """Queue a message of a tool call; None when the target cannot be reached yet.

    The call's row keeps the number of what it sent: a repetition, in any process, finds it and sends nothing.
    """
    entries = yield from _lock(message)
    yield from owned(message.key, message.turn, message.attempt)
    target = entries.get(message.to_key)
    if message.delivery.by_event and target is None:
        return None  # where events are the delivery, there must be somebody whose events they are
    taken = yield sql(
        "UPDATE effect SET sent=$3 WHERE turn=$1 AND call_id=$2 AND sent IS NULL RETURNING 1",
        message.turn,
        message.call_id,
        message.number,
    )
    if not taken:
        return (yield from _posted_before(message))
    # Claimed with the same commit where it can be: what is being sent is not overtaken by the turn's answer.
    reply = yield from queue_reply(
        message.number, message.to_key, message.turn, FILE if message.file else "notice", message.to, message.text, message.at,
        message.delivery, message.instance, message.file,
    )  # fmt: skip
    facts = [fact("notice", message.at, text=message.text, reason="sent")] if message.delivery.by_event else []
    return Posted((yield from report(message.to_key, target.event_seq, facts, message.number)) if target else (), reply)


def was_posted(turn: int, call_id: str) -> Op[bool]:
    """Whether this call has queued its message, in any process."""
    rows = yield sql("SELECT sent FROM effect WHERE turn=$1 AND call_id=$2", turn, call_id)
    return bool(rows) and rows[0][0] is not None


def make_file_dead_letter(reply: Reply, at: float, why: str, notice: int, text: str) -> Op[None]:
    """Make a file that was not delivered as a whole a dead letter, and queue one notice for the chat. No notice is queued
    for a file with a lost claim (FenceLost): another process sends it, or the access of its receiver was revoked.
    """
    yield from make_dead_letter(reply, at, why)
    yield from queue_reply(notice, reply.key, None, "notice", reply.source, text, at, Delivery(by_event=False), 0)


def _posted_before(message: ToolMessage) -> Op[Posted]:
    """The result for a call that has its message: the first run's, or an earlier process queued it and recovery sends it."""
    events = yield from events_of(message.to_key, message.number)
    return Posted(events, (yield from sent_at_once(message.number, message.instance)))


def _lock(message: ToolMessage) -> Op[dict[str, SessionEntry | None]]:
    """Lock the entries that are written to, in the order of their keys, so that two turns do not deadlock."""
    keys = {message.key, message.to_key} if message.delivery.by_event else {message.key}
    entries: dict[str, SessionEntry | None] = {}
    for key in sorted(keys):
        entries[key] = yield from lock_entry(key)
    return entries
