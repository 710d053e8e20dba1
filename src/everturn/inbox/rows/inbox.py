"""Accepting messages: the commit after which a platform gets its acknowledgement."""

from __future__ import annotations

from enum import StrEnum

import msgspec
from msgspec.structs import replace

from everturn.inbox.rows.attachments import write_attachments, write_extras
from everturn.inbox.rows.backlog import (
    COLLECTING,
    EXPIRED,
    ROWS,
    TOO_OLD,
    end_backlog,
    ended_by,
    notify_once,
    take_over,
)
from everturn.inbox.rules import MOST_WAITING, TAKES_OVER, Arriving, BacklogPolicy, BusyMode, before_newest, busy_of
from everturn.model import INBOX_MOVES, Attachment, Event, RequestExtras, SessionSource, has_not_ended
from everturn.outbox.rows.replies import Fact, append_events, events_of, fact, queue_notice, report
from everturn.outbox.rules.delivery import Delivery
from everturn.people.rows.access import admitted
from everturn.people.rows.pairing import AccessRequest, request_access
from everturn.people.rules import people_texts
from everturn.people.rules.access import AccessVerdict, Admission
from everturn.sessions.rows.entries import lock_or_make_entry
from everturn.sessions.rules import notices
from everturn.store.interface import Op, Statement, sql
from everturn.turns.rows.beginning import begun_again, start_turn, suspected
from everturn.turns.rows.turn_values import QueuedMessage, Start, StartedTurn, Streamed

JOIN_QUEUE = (
    "UPDATE entry SET waiting=waiting+$2, event_seq=event_seq+$3, arrivals=arrivals+$2 WHERE key=$1"
    " RETURNING waiting, event_seq, arrivals, busy, turn, holder"
)
ADD = (
    "INSERT INTO inbox (id, ext_id, platform, account, key, kind, source, body, state, place, turn, accepted_at, busy,"
    " extras, fingerprint, attachments, album, edition) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13,"
    " $14, $15, $16, $17, $18) ON CONFLICT (ext_id, platform, account) DO NOTHING/*did*/"
)
SAME = (
    "SELECT id, body, key, turn, busy, fingerprint, edited_at FROM inbox WHERE ext_id=$1 AND platform=$2 AND account=$3"
)
SAME_NOTICE = "SELECT 1 FROM outbox WHERE key=$1 AND ended_at IS NULL AND kind='notice' AND text=$2 LIMIT 1"


class AcceptOutcome(StrEnum):
    """The outcome of accepting a message."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    CONFLICT = "conflict"
    FULL = "full"
    EXPIRED = "expired"  # it is stored, and too old to be answered
    DENIED = "denied"  # its author has no access: nothing of it is kept
    UNADDRESSED = "unaddressed"  # it is not addressed to us: nothing of it is kept


WAITING_COMMANDS = (
    f"SELECT id, key FROM inbox WHERE ended_at IS NULL AND kind='command' AND {has_not_ended(INBOX_MOVES)} ORDER BY +id"
)


class Arrival(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A message to accept, with the id its row will have."""

    id: int
    ext_id: str
    source: SessionSource
    raw_source: str
    key: str
    kind: str
    text: str
    at: float
    by_event: bool
    cursor: str | None = None  # how far the platform account is read with this message
    busy: str = BusyMode.STEER  # what it does to a running turn, as configured for its platform
    forced: str | None = None  # the same, as it says itself (/steer, /queue)
    extras: RequestExtras | None = None  # what an API request has beside its text
    fingerprint: str | None = None
    admission: Admission | None = None  # who has access; None: they showed a key, a token or a cookie
    code: str = ""  # the pairing code for an unknown author who may request access
    salt: str = ""
    arriving: Arriving = Arriving.NOW  # what its age means for it
    backlog: str = BacklogPolicy.ALL  # the backlog policy, if it is part of one
    outage_id: int = 0  # the outage that ended last
    attachments: tuple[Attachment, ...] = ()  # files that are fetched at the beginning of its turn
    album: str | None = None
    edition: int | None = None
    streamed: Streamed | None = None  # what the turn that runs here has streamed, should the message end it


class Accepted(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The result of accepting a message; `begun` when its turn was begun in the same commit."""

    outcome: AcceptOutcome
    key: str
    begun: StartedTurn | None = None
    at: float = 0.0  # when the message was accepted that began its turn
    events: tuple[Event, ...] = ()
    busy: str | None = None  # what it does to the turn behind which it is queued
    stopped: int | None = None  # the turn that it ended
    spoke: bool = False  # a notice was queued as well


def accept(arrival: Arrival, queue_limit: int, start: Start | None) -> Op[Accepted]:
    """Store a message once. If its lane is idle and a slot is free (`start`), the turn begins with the same commit.

    The platform's cursor moves with it; not past a message that finds the queue full, which has no row yet.
    """
    accepted = yield from _accept(arrival, queue_limit, start)
    if arrival.cursor is not None and accepted.outcome is not AcceptOutcome.FULL:
        yield from move_cursor(arrival.source.platform, arrival.source.account, arrival.cursor, arrival.at)
    return accepted


def _accept(arrival: Arrival, queue_limit: int, start: Start | None) -> Op[Accepted]:
    welcome = yield from admitted(arrival.admission, arrival.source, lock=True)
    if welcome is not AccessVerdict.ALLOWED:
        return (yield from _deny(arrival, welcome))
    if arrival.arriving is Arriving.EXPIRE:
        return (yield from _too_old(arrival))
    facts = []
    if arrival.by_event:
        number = arrival.source.message_id or arrival.ext_id
        facts.append(fact("message", arrival.at, id=number, text=arrival.text))
    if start is None or arrival.arriving is Arriving.HOLD:
        return (yield from _queue(arrival, queue_limit, None, facts))
    entry = yield from lock_or_make_entry(arrival.key, arrival.raw_source, arrival.at)
    # Only the scheduler begins the turn of a suspect: one unproven at a time.
    if entry.waiting or entry.holder is not None or entry.turn is not None or suspected(entry, start):
        return (yield from _queue(arrival, queue_limit, start, facts))
    if not (yield _row(arrival, "claimed", start.turn)):
        return (yield from _known(arrival, start, AcceptOutcome.DUPLICATE))
    rows = arrival.extras.rows if arrival.extras is not None else ()
    row = QueuedMessage(
        arrival.id, arrival.text, arrival.source, arrival.raw_source, arrival.at, stored=False, extras=rows,
        attachments=arrival.attachments,
    )  # fmt: skip
    begun = yield from start_turn(entry, [row], start, facts)
    return Accepted(outcome=AcceptOutcome.ACCEPTED, key=arrival.key, begun=begun, at=arrival.at, events=begun.events)


def _deny(arrival: Arrival, welcome: AccessVerdict) -> Op[Accepted]:
    """Deny a message of somebody without access: no row, no session; a stranger who may request access gets a code, once."""
    told = False
    if welcome is AccessVerdict.PAIR and arrival.code:
        access_request = AccessRequest(
            id=arrival.id, key=arrival.key, source=arrival.source, code=arrival.code, salt=arrival.salt, at=arrival.at
        )
        told = yield from request_access(access_request)
    return Accepted(outcome=AcceptOutcome.DENIED, key=arrival.key, spoke=told)


def _queue(arrival: Arrival, queue_limit: int, start: Start | None, facts: list[Fact]) -> Op[Accepted]:
    """Queue a message. One statement locks the entry, counts, and draws the event's number; it is undone for a message
    that is known already or finds the queue full.
    """
    rows = yield sql(JOIN_QUEUE, arrival.key, 1, len(facts))
    if not rows:
        yield from lock_or_make_entry(arrival.key, arrival.raw_source, arrival.at)
        rows = yield sql(JOIN_QUEUE, arrival.key, 1, len(facts))
    waiting, last, place, chosen, turn, holder = rows[0]
    in_backlog = arrival.arriving is Arriving.HOLD
    full = waiting > (MOST_WAITING if in_backlog else queue_limit) and arrival.kind == "message"
    busy = _busy(arrival, chosen, turn_open=turn is not None, others_wait=waiting > 1)
    busy = None if in_backlog and busy in TAKES_OVER else busy  # an old message ends nothing that runs
    over = busy if busy in TAKES_OVER and holder is not None else None  # what is not running is met when it goes on
    if full or not (yield _row(arrival, "queued", None, place, BusyMode.STEER if over else busy)):
        yield sql(JOIN_QUEUE, arrival.key, -1, -len(facts))
        return (yield from _known(arrival, start, AcceptOutcome.FULL if full else AcceptOutcome.DUPLICATE))
    spoke = (yield from _add_to_backlog(arrival)) if in_backlog else False
    events = (yield from append_events(arrival.key, last - len(facts), facts, arrival.id)) if facts else ()
    accepted = Accepted(outcome=AcceptOutcome.ACCEPTED, key=arrival.key, events=events, busy=busy, spoke=spoke)
    return (yield from _take_over(arrival, over, accepted)) if over else accepted


def _add_to_backlog(arrival: Arrival) -> Op[bool]:
    """Add a message to the backlog. Where only the newest is answered, those before it end now; True if a notice says so."""
    rows = yield sql(ROWS, arrival.key, COLLECTING)
    before = rows[: before_newest([*(row[3] for row in rows), arrival.album])]
    yield sql("UPDATE inbox SET backlog=$2 WHERE id=$1", arrival.id, COLLECTING)
    if arrival.backlog != BacklogPolicy.NEWEST or not before:
        return False
    yield from end_backlog(arrival.key, before, "expired", EXPIRED, arrival.at)
    text = people_texts.only_newest()
    return (yield from notify_once(arrival.key, arrival.outage_id, arrival.id, arrival.source, text, arrival.at))


def _too_old(arrival: Arrival) -> Op[Accepted]:
    """Store a message as expired, and queue one notice for its sender."""
    yield from lock_or_make_entry(arrival.key, arrival.raw_source, arrival.at)
    if not (yield _row(arrival, "expired", None)):
        known = yield from _known(arrival, None, AcceptOutcome.DUPLICATE)
        return replace(known, outcome=AcceptOutcome.EXPIRED) if known.outcome is AcceptOutcome.ACCEPTED else known
    yield sql("UPDATE inbox SET ended_at=$2, why=$3 WHERE id=$1", arrival.id, arrival.at, TOO_OLD)
    text = people_texts.too_old()
    told = yield from notify_once(arrival.key, arrival.outage_id, arrival.id, arrival.source, text, arrival.at)
    return Accepted(outcome=AcceptOutcome.EXPIRED, key=arrival.key, spoke=told)


def _busy(arrival: Arrival, chosen: str | None, *, turn_open: bool, others_wait: bool) -> BusyMode | None:
    if arrival.kind != "message":
        return None
    if arrival.extras is not None:
        return BusyMode.QUEUE  # it joins no turn and closes no approval request
    return busy_of(arrival.forced, chosen, arrival.busy, turn_open=turn_open, others_wait=others_wait)


def _take_over(arrival: Arrival, busy: BusyMode, accepted: Accepted) -> Op[Accepted]:
    """End the running turn with the commit of the message, which stays queued."""
    entry = yield from lock_or_make_entry(arrival.key, arrival.raw_source, arrival.at)
    ended = yield from take_over(entry, busy, arrival.at, arrival.id, arrival.streamed)
    delivery = Delivery(by_event=arrival.by_event)
    text = notices.taken_back() if busy is BusyMode.ROLLBACK else notices.interrupted()
    told = yield from queue_notice(arrival.id, arrival.key, arrival.source, text, busy, arrival.at, delivery)
    events = yield from report(arrival.key, entry.event_seq, [ended, *told] if arrival.by_event else [], arrival.id)
    return replace(accepted, busy=BusyMode.STEER, events=accepted.events + events, stopped=entry.turn, spoke=True)


def _row(arrival: Arrival, state: str, turn: int | None, place: int = 0, busy: str | None = None) -> Statement:
    """The statement that stores a message; `place` is drawn under the entry's lock: the order of arrival, not of ids."""
    source = arrival.source
    return sql(
        ADD, arrival.id, arrival.ext_id, source.platform, source.account, arrival.key, arrival.kind, arrival.raw_source,
        arrival.text, state, place, turn, arrival.at, busy,
        None if arrival.extras is None else write_extras(arrival.extras), arrival.fingerprint,
        write_attachments(arrival.attachments) if arrival.attachments else None, arrival.album, arrival.edition,
    )  # fmt: skip


def store_dead_letter(arrival: Arrival, why: str, text: str) -> Op[tuple[Event, ...]]:
    """Store a rejected message of a platform that cannot be refused as a dead letter, with a notice for its sender."""
    if arrival.cursor is not None:
        yield from move_cursor(arrival.source.platform, arrival.source.account, arrival.cursor, arrival.at)
    if (yield from admitted(arrival.admission, arrival.source)) is not AccessVerdict.ALLOWED:
        return ()
    entry = yield from lock_or_make_entry(arrival.key, arrival.raw_source, arrival.at)
    if not (yield _row(arrival, "dead", None)):
        return (yield from events_of(arrival.key, arrival.id))  # this operation ran before
    yield sql("UPDATE inbox SET ended_at=$2, dead_at=$2, why=$3 WHERE id=$1", arrival.id, arrival.at, why)
    if (yield sql(SAME_NOTICE, arrival.key, text)):
        return ()  # a sender of a hundred messages too many gets one notice, not a hundred
    delivery = Delivery(by_event=arrival.by_event)
    facts = yield from queue_notice(arrival.id, arrival.key, arrival.source, text, why, arrival.at, delivery)
    return (yield from report(arrival.key, entry.event_seq, facts, arrival.id))


def _known(arrival: Arrival, start: Start | None, otherwise: AcceptOutcome) -> Op[Accepted]:
    """The outcome for an id that is taken: by an earlier run of this operation, the same message, or another message."""
    rows = yield sql(SAME, arrival.ext_id, arrival.source.platform, arrival.source.account)
    if not rows:
        return Accepted(outcome=otherwise, key=arrival.key)
    number, body, key, turn, busy, fingerprint, edited_at = rows[0]
    if number == arrival.id:
        mine = start if start is not None and turn == start.turn else None
        return replace((yield from _accepted_before(arrival, mine)), busy=busy)
    # An old body is forgotten before its id, and what came first may have been edited since.
    same = (body in {"", arrival.text} or edited_at is not None) and key == arrival.key
    same = same and fingerprint == arrival.fingerprint
    return Accepted(outcome=AcceptOutcome.DUPLICATE if same else AcceptOutcome.CONFLICT, key=key)


def _accepted_before(arrival: Arrival, start: Start | None) -> Op[Accepted]:
    """For an operation that runs twice: the result of its first run. `start` is the turn that it began, if any."""
    events = yield from events_of(arrival.key, arrival.id, *(() if start is None else (start.turn,)))
    begun = (yield from begun_again(arrival.key, start)) if start is not None else None
    begun = begun and replace(begun, events=events)
    notice = yield sql("SELECT 1 FROM outbox WHERE id=$1", arrival.id)
    stopped = (yield from ended_by(arrival.key, arrival.id)) if notice else None
    return Accepted(
        outcome=AcceptOutcome.ACCEPTED, key=arrival.key, begun=begun, at=arrival.at if begun else 0.0, events=events,
        stopped=stopped, spoke=bool(notice),
    )  # fmt: skip


def move_cursor(platform: str, account: str, value: str, at: float) -> Op[None]:
    """Store how far a platform account was read; its messages were committed before."""
    yield sql(
        "INSERT INTO cursor (platform, account, value, at) VALUES ($1, $2, $3, $4)"
        " ON CONFLICT (platform, account) DO UPDATE SET value=excluded.value, at=excluded.at",
        platform,
        account,
        value,
        at,
    )


def knows_album(key: str, album: str) -> Op[bool]:
    """Whether a message of the album was stored under this key."""
    return bool((yield sql("SELECT 1 FROM inbox WHERE key=$1 AND album=$2 LIMIT 1", key, album)))


def read_cursor(platform: str, account: str) -> Op[str | None]:
    """The cursor from which to read a platform account on."""
    rows = yield sql("SELECT value FROM cursor WHERE platform=$1 AND account=$2", platform, account)
    return str(rows[0][0]) if rows else None


def keys_with_work() -> Op[list[str]]:
    """The keys that have a queued message, oldest first."""
    rows = yield sql(
        "SELECT key, min(id) FROM inbox WHERE ended_at IS NULL AND state='queued' AND kind='message'"
        " AND backlog IS NULL GROUP BY key ORDER BY 2"
    )
    return [row[0] for row in rows]


def waiting_commands() -> Op[list[tuple[int, str]]]:
    """Commands that were accepted and not applied yet, oldest first. (`+id`: by the small index of what is open.)"""
    rows = yield sql(WAITING_COMMANDS)
    return [(row[0], row[1]) for row in rows]
