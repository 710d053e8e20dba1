"""Rows of messages that steer a running turn: those that join it, and edits and deletions of what it answers."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from everturn.inbox.rows.attachments import attachments_of, write_attachments
from everturn.inbox.rows.inbox import ADD, Arrival, move_cursor
from everturn.inbox.rules import BusyMode, edited, steers
from everturn.model import Event, Heard, Message, SessionSource
from everturn.outbox.rows.replies import events_of, fact, report
from everturn.outbox.rules.delivery import Delivery
from everturn.people.rows.access import admitted, filter_allowed
from everturn.people.rules.access import AccessVerdict, Admission, ids_of
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


# Edits and deletions of messages on the platform: applied while the message is queued, without effect later.
# Each change is an inbox row of its own, by which a repetition is recognised and from which its outcome can be read.


FIND = "SELECT id, key, kind, state, source, edition, body FROM inbox WHERE ext_id=$1 AND platform=$2 AND account=$3"
KINDS = {Heard.EDITED: "edit", Heard.DELETED: "deletion"}


class Revision(StrEnum):
    """The outcome of an edit or deletion."""

    APPLIED = "applied"
    TOO_LATE = "too_late"  # its turn has begun or ended
    NOT_THEIRS = "not_theirs"  # somebody else's message stays as it is
    ELSEWHERE = "elsewhere"  # an edit in one chat changes nothing in another
    OTHER_KIND = "other_kind"  # a message that becomes a command, or a command that becomes a message
    OUTDATED = "outdated"  # a later edit came before it
    UNKNOWN = "unknown"  # we never had it
    DENIED = "denied"  # who changed it may not speak


class Revised(msgspec.Struct, frozen=True):
    """The outcome of an edit, and the key of the message that was meant."""

    what: Revision
    key: str


def revise(arrival: Arrival, what: Heard, of: str) -> Op[Revised]:
    """Edit or withdraw the message with the id `of`; the arrival has the new text and the edit's own id."""
    source = arrival.source
    if arrival.cursor is not None:
        yield from move_cursor(source.platform, source.account, arrival.cursor, arrival.at)
    found = yield sql(FIND, of, source.platform, source.account)
    key = found[0][1] if found else arrival.key
    # What strangers wrote was never stored: most of their changes are of messages that are not here.
    if (what is Heard.EDITED or not found) and (
        yield from admitted(arrival.admission, source)
    ) is not AccessVerdict.ALLOWED:
        return Revised(Revision.DENIED, key)
    if not found:
        return Revised(Revision.UNKNOWN, key)
    yield from lock_entry(key)  # beginning a turn locks it, too
    before = yield sql("SELECT why FROM inbox WHERE ext_id=$1 AND platform=$2 AND account=$3", arrival.ext_id, source.platform, source.account)  # fmt: skip
    if before:  # it came before, or this operation ran before
        return Revised(Revision(before[0][0]) if before[0][0] in set(Revision) else Revision.TOO_LATE, key)
    (row,) = yield sql(FIND, of, source.platform, source.account)
    if not _same_chat(source_of(row[4]), source):
        done = Revision.ELSEWHERE
    else:
        done = yield from (_edit(arrival, row) if what is Heard.EDITED else _delete(arrival, row))
    yield sql(
        ADD, arrival.id, arrival.ext_id, source.platform, source.account, key, KINDS[what], arrival.raw_source, "", "done",
        0, None, arrival.at, None, None, None, None, None, None,
    )  # fmt: skip
    yield sql("UPDATE inbox SET ended_at=$2, why=$3 WHERE id=$1", arrival.id, arrival.at, done.value)
    return Revised(done, key)


def _edit(arrival: Arrival, row: Row) -> Op[Revision]:
    number, _, kind, state, raw, edition, body = row
    if not _same_author(source_of(raw), arrival.source):
        return Revision.NOT_THEIRS
    if state != "queued":
        return Revision.TOO_LATE
    if kind != arrival.kind:
        return Revision.OTHER_KIND
    if edition is not None and arrival.edition is not None and arrival.edition < edition:
        return Revision.OUTDATED
    yield sql(
        "UPDATE inbox SET body=$2, edited_at=$3, attachments=coalesce($4, attachments), edition=$5 WHERE id=$1 AND state='queued'",
        number,
        edited(body, arrival.text),
        arrival.at,
        write_attachments(arrival.attachments),
        arrival.edition,
    )
    return Revision.APPLIED


def _delete(arrival: Arrival, row: Row) -> Op[Revision]:
    """Withdraw a message: everybody whom the platform lets delete it may."""
    number, key, _, state, *_ = row
    if state != "queued":
        return Revision.TOO_LATE
    yield sql(
        "UPDATE inbox SET state='withdrawn', ended_at=$2, why='deleted' WHERE id=$1 AND state='queued'",
        number,
        arrival.at,
    )
    yield sql("UPDATE entry SET waiting=waiting-1 WHERE key=$1", key)
    return Revision.APPLIED


def _same_chat(said: SessionSource | None, by: SessionSource) -> bool:
    """Whether an edit comes from the chat of its message: on some platforms a server may choose an id of another chat."""
    if said is None or said.chat_id == by.chat_id:
        return True
    return bool({said.chat_id, said.chat_id_alt} & {by.chat_id, by.chat_id_alt} - {None})


def _same_author(author: SessionSource | None, by: SessionSource) -> bool:
    theirs, own = set(ids_of(author)) if author else set(), set(ids_of(by))
    return bool(theirs & own) or (not theirs and not own)
