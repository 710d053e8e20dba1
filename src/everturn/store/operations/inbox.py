"""Accepting messages: the commit that allows a platform to be told "received"."""

from __future__ import annotations

from enum import StrEnum

import msgspec
from msgspec.structs import replace

from everturn.decide import admission_words, words
from everturn.decide.admission import Admission, Verdict
from everturn.decide.backlog import MOST, Arriving, Policy, before_newest
from everturn.decide.busy import TAKES_OVER, BusyMode, busy_of
from everturn.model import Attachment, Brought, Event, SessionEntry, SessionSource
from everturn.store.interface import Op, Statement, sql
from everturn.store.operations.admission import admitted
from everturn.store.operations.attachments import write_attachments
from everturn.store.operations.backlog import EXPIRED, HELD, ROWS, TOO_OLD, end_held, tell_once
from everturn.store.operations.beginning import begun_again, start_turn, suspected
from everturn.store.operations.bringing import write_brought
from everturn.store.operations.entries import lock_or_make_entry
from everturn.store.operations.pairing import Knock, knock
from everturn.store.operations.taking_over import ended_by, take_over
from everturn.store.operations.telling import Delivery, Fact, append_events, events_of, fact, report, tell
from everturn.store.operations.turn_values import Begun, Start, Streamed, Waiting

JOIN_QUEUE = (
    "UPDATE entry SET waiting=waiting+$2, event_seq=event_seq+$3, arrivals=arrivals+$2 WHERE key=$1"
    " RETURNING waiting, event_seq, arrivals, busy, turn, holder"
)
ADD = (
    "INSERT INTO inbox (id, ext_id, platform, account, key, kind, source, body, state, place, turn, accepted_at, busy,"
    " brought, fingerprint, attachments, album, edition) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13,"
    " $14, $15, $16, $17, $18) ON CONFLICT (ext_id, platform, account) DO NOTHING/*did*/"
)
SAME = (
    "SELECT id, body, key, turn, busy, fingerprint, edited_at FROM inbox WHERE ext_id=$1 AND platform=$2 AND account=$3"
)
SAYS_SO = "SELECT 1 FROM outbox WHERE key=$1 AND ended_at IS NULL AND kind='notice' AND text=$2 LIMIT 1"


class Outcome(StrEnum):
    """What became of an arriving message."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    CONFLICT = "conflict"
    FULL = "full"
    EXPIRED = "expired"  # it is stored, and too old to be answered
    DENIED = "denied"  # its author may not speak there: nothing of it is kept
    UNADDRESSED = "unaddressed"  # nobody said it to us: nothing of it is kept


class Arrival(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A message at the door, with the id its row will have."""

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
    brought: Brought | None = None  # what it brings beside its words
    fingerprint: str | None = None
    admission: Admission | None = None  # who may speak; None: they showed a key, a token or a cookie
    code: str = ""  # what its author is given if they are unknown and may ask to be let in
    salt: str = ""
    arriving: Arriving = Arriving.NOW  # what its age makes of it
    backlog: str = Policy.ALL  # the policy for what piled up, if it is held
    absence: int = 0  # the silence that ended last, by its name
    attachments: tuple[Attachment, ...] = ()  # files that are fetched at the beginning of its turn
    album: str | None = None
    edition: int | None = None
    streamed: Streamed | None = None  # what the turn that runs here has streamed, should the message end it


class Accepted(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The answer to an arrival; `begun` when its turn was begun in the same commit."""

    outcome: Outcome
    key: str
    begun: Begun | None = None
    events: tuple[Event, ...] = ()
    busy: str | None = None  # what it does to the turn behind which it waits
    stopped: int | None = None  # the turn that it ended
    spoke: bool = False  # a notice is owed as well


def accept(arrival: Arrival, queue_limit: int, start: Start | None) -> Op[Accepted]:
    """Store a message once. If its lane is idle and a slot is free (`start`), the turn begins with the same commit.

    How far its platform is read moves with it; not past one that finds no room, which has no row yet.
    """
    accepted = yield from _accept(arrival, queue_limit, start)
    if arrival.cursor is not None and accepted.outcome is not Outcome.FULL:
        yield from move_cursor(arrival.source.platform, arrival.source.account, arrival.cursor, arrival.at)
    return accepted


def _accept(arrival: Arrival, queue_limit: int, start: Start | None) -> Op[Accepted]:
    welcome = yield from admitted(arrival.admission, arrival.source, lock=True)
    if welcome is not Verdict.ALLOWED:
        return (yield from _deny(arrival, welcome))
    if arrival.arriving is Arriving.EXPIRE:
        return (yield from _too_old(arrival))
    if start is None or arrival.arriving is Arriving.HOLD:
        return (yield from _queue(arrival, queue_limit, None))
    entry = yield from lock_or_make_entry(arrival.key, arrival.raw_source, arrival.at)
    if entry.waiting or not _is_free(entry, start):
        return (yield from _queue(arrival, queue_limit, start))
    if not (yield _row(arrival, "claimed", start.turn)):
        return (yield from _known(arrival, start, Outcome.DUPLICATE))
    rows = arrival.brought.rows if arrival.brought is not None else ()
    row = Waiting(
        arrival.id, arrival.text, arrival.source, arrival.raw_source, arrival.at, stored=False, brought=rows,
        attachments=arrival.attachments,
    )  # fmt: skip
    begun = yield from start_turn(entry, [row], start, _facts(arrival))
    return Accepted(outcome=Outcome.ACCEPTED, key=arrival.key, begun=begun, events=begun.events)


def _deny(arrival: Arrival, welcome: Verdict) -> Op[Accepted]:
    """Somebody who may not speak: no row, no session; a stranger who may ask to be let in is given a code, once."""
    told = False
    if welcome is Verdict.PAIR and arrival.code:
        knocking = Knock(
            id=arrival.id, key=arrival.key, source=arrival.source, code=arrival.code, salt=arrival.salt, at=arrival.at
        )
        told = yield from knock(knocking)
    return Accepted(outcome=Outcome.DENIED, key=arrival.key, spoke=told)


def _queue(arrival: Arrival, queue_limit: int, start: Start | None) -> Op[Accepted]:
    """Let it wait. One statement locks the entry, counts, and draws the event's number; it is undone for a message that
    is known already or finds the queue full.
    """
    facts = _facts(arrival)
    rows = yield sql(JOIN_QUEUE, arrival.key, 1, len(facts))
    if not rows:
        yield from lock_or_make_entry(arrival.key, arrival.raw_source, arrival.at)
        rows = yield sql(JOIN_QUEUE, arrival.key, 1, len(facts))
    waiting, last, place, chosen, turn, holder = rows[0]
    held = arrival.arriving is Arriving.HOLD
    full = waiting > (MOST if held else queue_limit) and arrival.kind == "message"
    busy = _busy(arrival, chosen, turn_open=turn is not None, others_wait=waiting > 1)
    busy = None if held and busy in TAKES_OVER else busy  # old words end nothing that runs
    over = busy if busy in TAKES_OVER and holder is not None else None  # what is not running is met when it goes on
    if full or not (yield _row(arrival, "waiting", None, place, BusyMode.STEER if over else busy)):
        yield sql(JOIN_QUEUE, arrival.key, -1, -len(facts))
        return (yield from _known(arrival, start, Outcome.FULL if full else Outcome.DUPLICATE))
    spoke = (yield from _hold(arrival)) if held else False
    events = (yield from append_events(arrival.key, last - len(facts), facts, arrival.id)) if facts else ()
    accepted = Accepted(outcome=Outcome.ACCEPTED, key=arrival.key, events=events, busy=busy, spoke=spoke)
    return (yield from _take_over(arrival, over, accepted)) if over else accepted


def _hold(arrival: Arrival) -> Op[bool]:
    """It piled up while nobody read. Where only the newest is answered, those before it end now; True when that is told."""
    rows = yield sql(ROWS, arrival.key, HELD)
    before = rows[: before_newest([*(row[3] for row in rows), arrival.album])]
    yield sql("UPDATE inbox SET held=$2 WHERE id=$1", arrival.id, HELD)
    if arrival.backlog != Policy.NEWEST or not before:
        return False
    yield from end_held(arrival.key, before, "expired", EXPIRED, arrival.at)
    text = admission_words.only_newest()
    return (yield from tell_once(arrival.key, arrival.absence, arrival.id, arrival.source, text, arrival.at))


def _too_old(arrival: Arrival) -> Op[Accepted]:
    """It is stored as expired, and its sender is told so, once."""
    yield from lock_or_make_entry(arrival.key, arrival.raw_source, arrival.at)
    if not (yield _row(arrival, "expired", None)):
        known = yield from _known(arrival, None, Outcome.DUPLICATE)
        return replace(known, outcome=Outcome.EXPIRED) if known.outcome is Outcome.ACCEPTED else known
    yield sql("UPDATE inbox SET ended_at=$2, why=$3 WHERE id=$1", arrival.id, arrival.at, TOO_OLD)
    text = admission_words.too_old()
    told = yield from tell_once(arrival.key, arrival.absence, arrival.id, arrival.source, text, arrival.at)
    return Accepted(outcome=Outcome.EXPIRED, key=arrival.key, spoke=told)


def _busy(arrival: Arrival, chosen: str | None, *, turn_open: bool, others_wait: bool) -> BusyMode | None:
    if arrival.kind != "message":
        return None
    if arrival.brought is not None:
        return BusyMode.QUEUE  # it joins no turn and closes no question, whenever it is looked at
    return busy_of(arrival.forced, chosen, arrival.busy, turn_open=turn_open, others_wait=others_wait)


def _take_over(arrival: Arrival, busy: BusyMode, accepted: Accepted) -> Op[Accepted]:
    """The message ends the running turn with its own commit; what is left for it is to be heard soon."""
    entry = yield from lock_or_make_entry(arrival.key, arrival.raw_source, arrival.at)
    ended = yield from take_over(entry, busy, arrival.at, arrival.id, arrival.streamed)
    delivery = Delivery(by_event=arrival.by_event)
    text = words.taken_back() if busy is BusyMode.ROLLBACK else words.interrupted()
    told = yield from tell(arrival.id, arrival.key, arrival.source, text, busy, arrival.at, delivery)
    events = yield from report(arrival.key, entry.event_seq, [ended, *told] if arrival.by_event else [], arrival.id)
    return replace(accepted, busy=BusyMode.STEER, events=accepted.events + events, stopped=entry.turn, spoke=True)


def _row(arrival: Arrival, state: str, turn: int | None, place: int = 0, busy: str | None = None) -> Statement:
    """`place` is drawn under the entry's lock: the order of arrival, whoever made its id first."""
    source = arrival.source
    return sql(
        ADD, arrival.id, arrival.ext_id, source.platform, source.account, arrival.key, arrival.kind, arrival.raw_source,
        arrival.text, state, place, turn, arrival.at, busy,
        None if arrival.brought is None else write_brought(arrival.brought), arrival.fingerprint,
        write_attachments(arrival.attachments), arrival.album, arrival.edition,
    )  # fmt: skip


def _facts(arrival: Arrival) -> list[Fact]:
    if not arrival.by_event:
        return []
    return [fact("message", arrival.at, id=arrival.source.message_id or arrival.ext_id, text=arrival.text)]


def _is_free(entry: SessionEntry, start: Start) -> bool:
    """A suspect's turn is begun by the scheduler alone, which lets only one of them be unproven at a time."""
    return entry.holder is None and entry.turn is None and not suspected(entry, start)


def turn_away(arrival: Arrival, why: str, text: str) -> Op[tuple[Event, ...]]:
    """A message that cannot be taken from a platform that cannot be refused: a dead letter, and its sender is told."""
    if arrival.cursor is not None:
        yield from move_cursor(arrival.source.platform, arrival.source.account, arrival.cursor, arrival.at)
    if (yield from admitted(arrival.admission, arrival.source)) is not Verdict.ALLOWED:
        return ()
    entry = yield from lock_or_make_entry(arrival.key, arrival.raw_source, arrival.at)
    if not (yield _row(arrival, "dead", None)):
        return (yield from events_of(arrival.key, arrival.id))  # what this operation told when it ran before
    yield sql("UPDATE inbox SET ended_at=$2, dead_at=$2, why=$3 WHERE id=$1", arrival.id, arrival.at, why)
    if (yield sql(SAYS_SO, arrival.key, text)):
        return ()  # who writes a hundred messages too many is told once, not a hundred times
    delivery = Delivery(by_event=arrival.by_event)
    facts = yield from tell(arrival.id, arrival.key, arrival.source, text, why, arrival.at, delivery)
    return (yield from report(arrival.key, entry.event_seq, facts, arrival.id))


def _known(arrival: Arrival, start: Start | None, otherwise: Outcome) -> Op[Accepted]:
    """The id is taken: by an earlier run of this operation, by the same words, or by other words."""
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
    return Accepted(outcome=Outcome.DUPLICATE if same else Outcome.CONFLICT, key=key)


def _accepted_before(arrival: Arrival, start: Start | None) -> Op[Accepted]:
    """For an operation that runs twice: what its first run said. `start` is the turn that it began, if any."""
    events = yield from events_of(arrival.key, arrival.id, *(() if start is None else (start.turn,)))
    begun = (yield from begun_again(arrival.key, start)) if start is not None else None
    begun = begun and replace(begun, events=events)
    notice = yield sql("SELECT 1 FROM outbox WHERE id=$1", arrival.id)
    stopped = (yield from ended_by(arrival.key, arrival.id)) if notice else None
    return Accepted(
        outcome=Outcome.ACCEPTED, key=arrival.key, begun=begun, events=events, stopped=stopped, spoke=bool(notice)
    )


def move_cursor(platform: str, account: str, value: str, at: float) -> Op[None]:
    """How far a platform account was read; its messages were committed before."""
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
    """Where to read on."""
    rows = yield sql("SELECT value FROM cursor WHERE platform=$1 AND account=$2", platform, account)
    return str(rows[0][0]) if rows else None


def keys_with_work() -> Op[list[str]]:
    """The keys that have a waiting message, oldest first."""
    rows = yield sql(
        "SELECT key, min(id) FROM inbox WHERE ended_at IS NULL AND state='waiting' AND kind='message'"
        " AND held IS NULL GROUP BY key ORDER BY 2"
    )
    return [row[0] for row in rows]


def waiting_commands() -> Op[list[tuple[int, str]]]:
    """Commands that were accepted and not applied yet, oldest first. (`+id`: by the small index of what is open.)"""
    rows = yield sql("SELECT id, key FROM inbox WHERE ended_at IS NULL AND kind='command' ORDER BY +id")
    return [(row[0], row[1]) for row in rows]
