"""A message that joins the running turn: it stays in the inbox until the transcript that holds it is committed."""

from __future__ import annotations

import msgspec

from everturn.inbox.rows.attachments import attachments_of
from everturn.inbox.rules.busy import BusyMode, steers
from everturn.model import Event, Message, SessionSource
from everturn.outbox.rows.notices import events_of, fact, report
from everturn.outbox.rules.delivery import Delivery
from everturn.people.rows.admission import filter_allowed
from everturn.people.rules.admission import Admission
from everturn.sessions.rows.boundaries import open_calls
from everturn.sessions.rows.entries import lock_entry, source_of
from everturn.sessions.rules.keys import Isolation
from everturn.store.interface import Op, Row, sql
from everturn.turns.rows.beginning import CARRIES, TOGETHER, WAITING, add_texts, spoken, with_text
from everturn.turns.rows.turn_values import QueuedMessage, StartedTurn, fenced

CLAIMED = (
    f"SELECT {CARRIES} FROM inbox WHERE key=$1 AND ended_at IS NULL AND turn=$2 AND state='claimed' ORDER BY place, id"
)


class JoinedTurn(msgspec.Struct, frozen=True, kw_only=True):
    """The turn with what joined it; `messages` are the rows that were added to its transcript."""

    begun: StartedTurn
    messages: tuple[Message, ...] = ()
    events: tuple[Event, ...] = ()


def join_turn(
    begun: StartedTurn,
    number: int,
    isolation: Isolation,
    at: float,
    delivery: Delivery,
    admission: Admission | None = None,
) -> Op[JoinedTurn]:
    """Make the messages that steer part of the running turn; `begun.seq` is the last row that its runner has stored, `number`
    is made by the caller for the events.
    """
    waiting = yield from fenced(begun)
    before = [row for row in (yield sql(CLAIMED, begun.key, begun.turn)) if row[0] not in begun.inbox]
    if before:
        return (yield from _joined_before(begun, number, before, waiting, isolation))
    rows = yield sql(WAITING, begun.key, TOGETHER)
    count = steers([row[5] if row[4] == "message" else None for row in rows])
    if not count or (yield from open_calls(begun.turn, begun.session_id)):  # never between a call and its result
        return JoinedTurn(begun=replace_waiting(begun, waiting))
    joining = [_waiting(row, begun) for row in (yield from filter_allowed(begun.key, rows[:count], admission, at))]
    waiting -= count
    if not joining:
        return JoinedTurn(begun=replace_waiting(begun, waiting))
    now, said = yield from add_texts(begun, joining, isolation)
    yield sql(
        "UPDATE entry SET waiting=waiting-$2, active_at=$3, origin=$4 WHERE key=$1",
        begun.key,
        len(joining),
        joining[-1].accepted_at,
        joining[-1].raw_source,
    )
    events = yield from _report(begun, number, joining, at, delivery)
    return JoinedTurn(begun=replace_waiting(now, waiting), messages=tuple(said), events=events)


def _joined_before(
    begun: StartedTurn, number: int, rows: list[Row], waiting: int, isolation: Isolation
) -> Op[JoinedTurn]:
    """For an operation that runs twice: what its first run added."""
    joined = [_waiting(row, begun) for row in rows]
    said = spoken(begun, joined, isolation)
    now = replace_waiting(with_text(begun, joined), waiting)
    return JoinedTurn(begun=now, messages=tuple(said), events=(yield from events_of(begun.key, number)))


def _report(
    begun: StartedTurn, number: int, joining: list[QueuedMessage], at: float, delivery: Delivery
) -> Op[tuple[Event, ...]]:
    if not delivery.by_event:
        return ()
    entry = yield from lock_entry(begun.key)
    ids = [each.source.message_id for each in joining]
    told = fact("joined", at, turn=str(begun.turn), ids=ids)
    return (yield from report(begun.key, entry.event_seq if entry else 0, [told], number))


def replace_waiting(begun: StartedTurn, waiting: int) -> StartedTurn:
    """The same turn with so many messages queued behind it."""
    return msgspec.structs.replace(begun, waiting=waiting)


def _waiting(row: Row, begun: StartedTurn) -> QueuedMessage:
    number, text, raw, accepted_at, _, busy = row[:6]
    source: SessionSource = source_of(raw) or begun.source
    return QueuedMessage(number, text, source, raw, accepted_at, busy=busy, attachments=attachments_of(row[7]))


def steer_waits(key: str) -> Op[bool]:
    """Whether the next queued message joins the running turn: calls that have not begun are skipped for it."""
    rows = yield sql(WAITING, key, 1)
    return bool(rows) and rows[0][4] == "message" and rows[0][5] == BusyMode.STEER


def choose_busy(key: str, mode: str | None) -> Op[bool]:
    """Set the busy mode of a key; None: as configured. False for an unknown key."""
    return bool((yield sql("UPDATE entry SET busy=$2 WHERE key=$1 RETURNING key", key, mode)))


def busy_chosen(key: str) -> Op[str | None]:
    """The busy mode that /busy chose for this key; None when it chose nothing."""
    rows = yield sql("SELECT busy FROM entry WHERE key=$1", key)
    return str(rows[0][0]) if rows and rows[0][0] else None
