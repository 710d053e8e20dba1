"""Rows of what is said: notices and answers enter the outbox with the step that made them, and their events with them."""

from __future__ import annotations

import msgspec

from everturn.model import Bubble, Event, Reply, SessionSource, StoredFile
from everturn.outbox.rules.delivery import Delivery
from everturn.sessions.rows.entries import lock_entry, source_of, write_source
from everturn.store.interface import Op, sql

_encode = msgspec.json.Encoder().encode
EVENT = "INSERT INTO event (key, operation, seq, kind, data, at) VALUES ($1, $2, $3, $4, $5, $6)"
EVENTS_2 = EVENT + ", ($1, $2, $7, $8, $9, $10)"
# Replies leave in the order of `created_at`: nothing gets before what is pending already, in the same moment or under a clock
# that was set back.
LATEST = "(SELECT max(created_at) FROM outbox WHERE key=$2 AND ended_at IS NULL)"
ADD_REPLY = (
    "INSERT INTO outbox (id, key, turn, kind, platform, source, text, state, due_at, valid_until, instance,"
    " created_at, ended_at, file, claim) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11,"
    f" CASE WHEN {LATEST}>=$9 THEN {LATEST}+0.000001 ELSE $9 END, $12, $13, $14) ON CONFLICT (id) DO NOTHING"
)
EVENTS_AT_ONCE = 4  # no operation stores more
ANY_OPEN_REPLY = "SELECT 1 FROM outbox WHERE key=$1 AND ended_at IS NULL AND state<>'open' LIMIT 1"


Fact = tuple[str, str, float]


def fact(kind: str, at: float, **data: object) -> Fact:
    """An event before it has a number."""
    return kind, _encode(data).decode(), at


def append_events(key: str, last: int, facts: list[Fact], operation: int | None) -> Op[tuple[Event, ...]]:
    """Store facts under the entry's lock; the caller has moved event_seq past them, `last` is where it stood. By the number of
    the operation its second run finds them; None where a second run returns nothing.
    """
    events = tuple(Event(last + n, *each) for n, each in enumerate(facts, 1))
    if len(events) == 2:
        one, two = events
        yield sql(EVENTS_2, key, operation, one.seq, one.kind, one.data, one.at, two.seq, two.kind, two.data, two.at)
        return events
    for event in events:
        yield sql(EVENT, key, operation, event.seq, event.kind, event.data, event.at)
    return events


def queue_reply(
    number: int,
    key: str,
    turn: int | None,
    kind: str,
    source: SessionSource,
    text: str,
    at: float,
    delivery: Delivery,
    instance: int,
    file: StoredFile | None = None,
) -> Op[Reply | None]:
    """Queue a reply in the outbox; returns it when this process is to send it at once.

    On an event platform this commit delivers it. A reply to send at once is claimed under its own number.
    """
    sender: int | None = None
    state, ended_at = ("sent", at) if delivery.by_event else ("pending", None)
    if delivery.send_now and not delivery.by_event and not (yield sql(ANY_OPEN_REPLY, key)):
        state, sender = "sending", instance
    valid_until = at + delivery.valid_s if delivery.valid_s else None
    raw = write_source(source).decode()
    stored = None if file is None else _encode(file).decode()
    yield sql(
        ADD_REPLY, number, key, turn, kind, source.platform, raw, text, state, at, valid_until, sender, ended_at, stored,
        None if sender is None else number,
    )  # fmt: skip
    if state != "sending":
        return None
    return Reply(
        id=number,
        key=key,
        kind=kind,
        source=source,
        text=text,
        claim=number,
        attempts=0,
        sent_parts=(),
        marked=False,
        valid_until=valid_until,
        file=file,
        turn=turn,
    )


def name_of(turn: int) -> Op[str]:
    """The prefix of the send keys of the turn's next message: each approval request begins a new one beneath it."""
    rows = yield sql("SELECT count(*) FROM approval WHERE turn=$1", turn)
    return f"{turn}.{rows[0][0]}" if rows[0][0] else str(turn)


def give_own_send_keys(turn: int) -> Op[Bubble | None]:
    """Give the reply that has its turn's number send keys of its own where an earlier message of the turn stands above an
    approval request: that one was sent under the turn's.
    """
    name = yield from name_of(turn)
    if name == str(turn):
        return None
    bubble = Bubble(name=name)
    yield sql("UPDATE outbox SET bubble=$2 WHERE id=$1 AND bubble IS NULL", turn, _encode(bubble).decode())
    return bubble


def queue_notice(
    number: int,
    key: str,
    source: SessionSource | None,
    text: str,
    reason: str,
    at: float,
    delivery: Delivery,
    turn: int | None = None,
) -> Op[list[Fact]]:
    """Queue a notice for the chat of a key; returns the facts that the caller stores with its own."""
    if source is None:
        return []
    yield from queue_reply(number, key, turn, "notice", source, text, at, Delivery(by_event=delivery.by_event), 0)
    if number == turn and not delivery.by_event:  # it ends the turn, in place of an answer
        yield from give_own_send_keys(turn)
    return [fact("notice", at, text=text, reason=reason)] if delivery.by_event else []


def report(key: str, last: int, facts: list[Fact], operation: int | None) -> Op[tuple[Event, ...]]:
    """Store the facts as events and move the key's event number; the caller has locked the entry."""
    if not facts:
        return ()
    yield sql("UPDATE entry SET event_seq=$2 WHERE key=$1", key, last + len(facts))
    return (yield from append_events(key, last, facts, operation))


def events_of(key: str, *operations: int) -> Op[tuple[Event, ...]]:
    """For an operation that runs twice: the events its first run stored, the key's newest with its numbers."""
    rows = yield sql(
        "SELECT seq, kind, data, at, operation FROM event WHERE key=$1 ORDER BY seq DESC LIMIT $2", key, EVENTS_AT_ONCE
    )
    return tuple(Event(*row[:4]) for row in reversed(rows) if row[4] in operations)


def events_after(key: str, after: int, limit: int) -> Op[list[Event]]:
    """The events a watcher missed."""
    rows = yield sql(
        "SELECT seq, kind, data, at FROM event WHERE key=$1 AND seq>$2 ORDER BY seq LIMIT $3", key, after, limit
    )
    return [Event(*row) for row in rows]


def event_range(key: str) -> Op[tuple[int, int]]:
    """The oldest event number still kept (0 when none) and the newest ever given to this key."""
    first = yield sql("SELECT seq FROM event WHERE key=$1 ORDER BY seq LIMIT 1", key)
    last = yield sql("SELECT event_seq FROM entry WHERE key=$1", key)
    return (first[0][0] if first else 0), (last[0][0] if last else 0)


def stored_source(text: object, platform: str) -> SessionSource:
    """A reply's target; a damaged one is refused by the platform later, visibly."""
    return source_of(text) or SessionSource(platform=platform)


def notify_key(
    key: str,
    number: int,
    source: SessionSource,
    text: str,
    reason: str,
    at: float,
    delivery: Delivery,
    turn: int | None = None,
) -> Op[tuple[Event, ...]]:
    """Queue a notice for the chat of a key and report it; with a turn, only while it is the key's."""
    entry = yield from lock_entry(key)
    if entry is None or (turn is not None and entry.turn != turn):
        return ()
    if (yield sql("SELECT 1 FROM outbox WHERE id=$1", number)):
        return (yield from events_of(key, number))  # this operation ran before
    facts = yield from queue_notice(number, key, source, text, reason, at, delivery)
    return (yield from report(key, entry.event_seq, facts, number))
