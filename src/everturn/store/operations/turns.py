"""The life of a turn in the database: begin, calling, step, effect, finish, fail. Every write of a running turn is fenced:
the entry's row is locked under the fence first, so a late writer is refused by the database and by no earlier check.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from everturn.decide import words
from everturn.decide.notes import Note, choose_note
from everturn.decide.recovery import is_suspect, resumes_by_itself
from everturn.decide.session import Reset, ResetPolicy, Resume, choose, has_activity, notify_user
from everturn.errors import FenceLost
from everturn.model import (
    ACTIVE,
    Event,
    Message,
    Reply,
    ResumePending,
    SessionEntry,
    SessionSource,
    Suspended,
    ToolCall,
)
from everturn.store.interface import Op, Row, Statement, sql
from everturn.store.operations.entries import lock_entry, source_of, write_source
from everturn.store.operations.outbox import sent_at_once
from everturn.store.operations.telling import (
    Delivery,
    Fact,
    append_events,
    events_of,
    fact,
    owe,
    report,
    tell,
)

_encode = msgspec.json.Encoder().encode
_decode_calls = msgspec.json.Decoder(tuple[ToolCall, ...]).decode

MESSAGE_COLUMNS = "role, content, seq, calls, call_id, unknown, turn, at"
ADD_MESSAGE = (
    "INSERT INTO message (session_id, seq, role, content, calls, call_id, unknown, turn, attempt, at)"
    " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT (session_id, seq) DO NOTHING"
)
ADD_TURN = (
    "INSERT INTO turn (id, key, session_id, state, attempt, instance, note, started_at, attempt_at, first_seq)"
    " VALUES ($1, $2, $3, 'running', 1, $4, $5, $6, $6, $7)"
)
TAKE_KEY = (
    "UPDATE entry SET holder=$2, turn=$3, fence=$4, seq=$5, active_at=$6, event_seq=$7, origin=$8, waiting=waiting-$9"
    " WHERE key=$1"
)
FENCED = "SELECT 1 FROM entry WHERE key=$1 AND fence=$2 AND turn=$3/*lock*/"
ADD_EFFECT = (
    "INSERT INTO effect (turn, call_id, name, effect, state, attempt, begun_at) VALUES ($1, $2, $3, $4, 'begun', $5, $6)"
    " ON CONFLICT (turn, call_id) DO NOTHING"
)
EFFECT_DONE = "UPDATE effect SET state='done', done_at=$3 WHERE turn=$1 AND call_id=$2 AND state='begun'"
RELEASE_KEY = (
    "UPDATE entry SET state='active', reason=NULL, marked_at=NULL, unclean_ends=0, tail=0, holder=NULL, turn=NULL,"
    " seq=$4, turns=turns+1, event_seq=event_seq+$5 WHERE key=$1 AND fence=$2 AND turn=$3 RETURNING event_seq, waiting"
)
NEXT_WAITING = (
    "SELECT id, body, source, accepted_at, kind FROM inbox"
    " WHERE key=$1 AND ended_at IS NULL AND state='waiting' ORDER BY place LIMIT 1"
)
CLAIM_MESSAGE = "UPDATE inbox SET state='claimed', turn=$2, why=NULL WHERE id=$1 AND state='waiting'"
LAST_ROLE = "SELECT role FROM message WHERE session_id=$1 AND role<>'user' ORDER BY seq DESC LIMIT 1"
INBOX_DONE = "UPDATE inbox SET state='done', ended_at=$2 WHERE id=$1 AND state='claimed'"
FIRST_WORDS = 80
TAIL_ROWS = 64


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """What the beginning of a turn may need; every id is made by the caller."""

    instance: int
    turn: int
    session_id: str
    notice: int
    at: float
    policy: ResetPolicy
    fresh_s: float
    resume: str
    delivery: Delivery
    stuck_after: int = 0
    suspects: bool = True  # whether a suspect may begin now


class Waiting(msgspec.Struct, frozen=True):
    """An inbox row that a turn takes up."""

    id: int
    text: str
    source: SessionSource
    raw_source: str
    accepted_at: float
    stored: bool = True  # False: this very operation inserts it, already claimed


class Begun(msgspec.Struct, frozen=True, kw_only=True):
    """A turn that is ours to run."""

    turn: int
    key: str
    session_id: str
    attempt: int
    fence: int
    seq: int  # the last transcript row that is stored
    first_seq: int  # the turn's first own row
    inbox: tuple[int, ...]
    words: tuple[str, ...]
    source: SessionSource
    note: Note | None = None
    unclean_ends: int = 0
    events: tuple[Event, ...] = ()
    spoke: bool = False  # a notice is owed as well


class NotYet(msgspec.Struct, frozen=True):
    """A suspect: its turn begins when no other suspect is unproven."""

    key: str


class Finished(msgspec.Struct, frozen=True, kw_only=True):
    """What came of finishing: the reply that is ours to send at once, and whether the key has more to do."""

    events: tuple[Event, ...]
    reply: Reply | None
    more: bool


def message_of(row: Row) -> Message:
    """A transcript row as the agent sees it."""
    role, content, seq, calls, call_id, unknown, turn, at = row
    return Message(
        role=role,
        content=content,
        seq=seq,
        calls=_calls_of(calls) if calls else (),
        call_id=call_id,
        unknown=bool(unknown),
        turn=turn,
        at=at,
    )


def _written(begun: Begun, message: Message) -> Statement:
    calls = _encode(message.calls).decode() if message.calls else None
    return sql(
        ADD_MESSAGE,
        begun.session_id,
        message.seq,
        message.role,
        message.content,
        calls,
        message.call_id,
        int(message.unknown),
        begun.turn,
        begun.attempt,
        message.at,
    )


def _calls_of(text: str) -> tuple[ToolCall, ...]:
    try:
        return _decode_calls(text)
    except msgspec.MsgspecError:
        return ()  # damaged: the rest of the transcript is still worth reading


def begin_next(key: str, start: Start) -> Op[Begun | NotYet | None]:
    """Take the key if it is free and has work: an interrupted turn that resumes by itself, else its oldest message."""
    entry = yield from lock_entry(key)
    if entry is None:
        return None
    if entry.holder is not None:
        ours = entry.holder == start.instance and entry.turn is not None
        return (yield from _as_begun(entry, start)) if ours else None  # our own commit, of which we had not heard
    if not start.suspects and suspected(entry, start):
        return NotYet(key)
    if entry.turn is not None and (yield from _goes_on_by_itself(entry, start)):
        return (yield from _resume(entry, None, start, []))
    rows = yield sql(NEXT_WAITING, key)
    # A command that waits in front is applied first, and wakes the key.
    if not rows or rows[0][4] == "command" or (isinstance(entry.state, Suspended) and (yield from _held(entry))):
        return None
    number, text, raw, accepted_at, _ = rows[0]
    source = source_of(raw) or entry.origin or SessionSource(platform="")
    return (yield from start_turn(entry, Waiting(number, text, source, raw, accepted_at), start, []))


def _goes_on_by_itself(entry: SessionEntry, start: Start) -> Op[bool]:
    if not isinstance(entry.state, ResumePending):
        return True  # begun, but the model was never called: simply begin again
    if resumes_by_itself(entry.state.marked_at, start.at, start.fresh_s, start.resume):
        return True
    rows = yield sql("SELECT reason FROM turn WHERE id=$1", entry.turn)
    return bool(rows) and rows[0][0] is None  # a message had woken it, and its attempt never called the model


def suspected(entry: SessionEntry, start: Start) -> bool:
    """Whether the key's next turn may be the one that kills the process; what is suspended is left by a fresh one."""
    return is_suspect(entry.unclean_ends, start.stuck_after) and not isinstance(entry.state, Suspended)


def _held(entry: SessionEntry) -> Op[bool]:
    """Messages queued behind a suspended turn wait until their sender writes again."""
    rows = yield sql(
        "SELECT 1 FROM inbox WHERE key=$1 AND ended_at IS NULL AND state='waiting' AND kind='message'"
        " AND why IS NULL LIMIT 1",
        entry.key,
    )
    return not rows


def start_turn(entry: SessionEntry, first: Waiting, start: Start, facts: list[Fact]) -> Op[Begun]:
    """Begin a turn for a message: decide which session it belongs to, and store all of it. The entry is locked."""
    decision = choose(entry, first.accepted_at, start.policy, start.fresh_s)
    if isinstance(decision, Resume) and entry.turn is not None:
        return (yield from _resume(entry, first, start, facts))
    reset_reason: str | None = None
    spoke = False
    if isinstance(decision, Reset):
        reset_reason = decision.reason
        entry, told = yield from reset_entry(entry, decision.reason, start, first)
        facts, spoke = facts + told, True
    elif entry.session_id is None:
        yield from open_session(start.session_id, entry.key, None, first.text, first.accepted_at)
        yield sql("UPDATE entry SET session_id=$2 WHERE key=$1", entry.key, start.session_id)
        entry = replace(entry, session_id=start.session_id, seq=0)
    elif entry.seq == 0:  # a session that /new opened is known by what was said in it first
        yield sql("UPDATE session SET first_words=$2 WHERE session_id=$1", entry.session_id, first.text[:FIRST_WORDS])
    note = yield from _note(entry, start, reset_reason)
    begun = Begun(
        turn=start.turn,
        key=entry.key,
        session_id=entry.session_id or "",
        attempt=1,
        fence=entry.fence + 1,
        seq=entry.seq + 1,
        first_seq=entry.seq + 1,
        inbox=(first.id,),
        words=(first.text,),
        source=first.source,
        note=note,
        unclean_ends=entry.unclean_ends,
        spoke=spoke,
    )
    kind = note.kind if note else None
    yield sql(ADD_TURN, begun.turn, entry.key, begun.session_id, start.instance, kind, start.at, begun.seq)
    return (yield from _take(entry, begun, first, start, facts))


def _take(entry: SessionEntry, begun: Begun, first: Waiting, start: Start, facts: list[Fact]) -> Op[Begun]:
    """Store the user's words and make the key ours."""
    yield _written(begun, Message(role="user", content=first.text, seq=begun.seq, at=first.accepted_at))
    if first.stored:
        yield sql(CLAIM_MESSAGE, first.id, begun.turn)
    return (yield from _hold(entry, begun, first, start, facts))


def _hold(entry: SessionEntry, begun: Begun, first: Waiting | None, start: Start, facts: list[Fact]) -> Op[Begun]:
    if start.delivery.by_event:
        facts = [*facts, fact("turn", start.at, turn=str(begun.turn), state="running", attempt=begun.attempt)]
    yield sql(
        TAKE_KEY,
        entry.key,
        start.instance,
        begun.turn,
        begun.fence,
        begun.seq,
        first.accepted_at if first else entry.active_at,
        entry.event_seq + len(facts),
        first.raw_source if first else write_source(begun.source).decode(),
        int(first is not None and first.stored),
    )
    if not facts:
        return begun
    return replace(begun, events=(yield from append_events(entry.key, entry.event_seq, facts)))


def _resume(entry: SessionEntry, joining: Waiting | None, start: Start, facts: list[Fact]) -> Op[Begun]:
    """The same turn, its next attempt, from the last committed step; a message that wakes it joins it."""
    note = yield from _note(entry, start, None)
    rows = yield sql(
        "UPDATE turn SET state='running', attempt=attempt+1, instance=$2, attempt_at=$3, verdict=NULL, note=$4"
        " WHERE id=$1 AND state='interrupted' RETURNING attempt, session_id, first_seq",
        entry.turn,
        start.instance,
        start.at,
        note.kind if note else None,
    )
    attempt, session_id, first_seq = rows[0]
    begun = yield from _begun_of(entry, attempt, session_id, first_seq, note)
    begun = replace(begun, fence=entry.fence + 1)
    if joining is None:
        return (yield from _hold(entry, begun, None, start, facts))
    begun = replace(
        begun,
        seq=entry.seq + 1,
        inbox=(*begun.inbox, joining.id),
        words=(*begun.words, joining.text),
        source=joining.source,
    )
    return (yield from _take(entry, begun, joining, start, facts))


def _begun_of(entry: SessionEntry, attempt: int, session_id: str, first_seq: int, note: Note | None) -> Op[Begun]:
    turn = entry.turn or 0
    rows = yield sql(
        "SELECT id, body, source FROM inbox WHERE key=$1 AND ended_at IS NULL AND turn=$2 ORDER BY id", entry.key, turn
    )
    source = (source_of(rows[-1][2]) if rows else None) or entry.origin or SessionSource(platform="")
    return Begun(
        turn=turn,
        key=entry.key,
        session_id=session_id,
        attempt=attempt,
        fence=entry.fence,
        seq=entry.seq,
        first_seq=first_seq,
        inbox=tuple(row[0] for row in rows),
        words=tuple(row[1] for row in rows),
        source=source,
        note=note,
        unclean_ends=entry.unclean_ends,
    )


def _as_begun(entry: SessionEntry, start: Start) -> Op[Begun | None]:
    """The turn that an earlier run of this very operation began."""
    rows = yield sql(
        "SELECT attempt, session_id, first_seq, note FROM turn WHERE id=$1 AND state='running'", entry.turn
    )
    if not rows:
        return None
    attempt, session_id, first_seq, kind = rows[0]
    reset_reason = kind.removeprefix("reset:") if kind and kind.startswith("reset:") else None
    note = (yield from _note(entry, start, reset_reason)) if kind else None
    begun = yield from _begun_of(entry, attempt, session_id, first_seq, note)
    events = yield from events_of(entry.key, start.at)
    return replace(begun, events=events, spoke=reset_reason is not None)


def begun_again(key: str, start: Start) -> Op[Begun | None]:
    """For an operation that runs twice: what its first run began."""
    entry = yield from lock_entry(key)
    if entry is None or entry.holder != start.instance or entry.turn != start.turn:
        return None
    return (yield from _as_begun(entry, start))


def _note(entry: SessionEntry, start: Start, reset_reason: str | None) -> Op[Note | None]:
    """Only a session that was cut off, or may end with a tool result, costs a look at its last rows."""
    if reset_reason is None and not entry.tail and entry.state == ACTIVE:
        return None
    tail = yield from open_tail(entry.session_id or "")
    return choose_note(entry, tail, start.at, start.fresh_s, reset_reason)


def open_tail(session_id: str) -> Op[list[Message]]:
    """The newest rows up to the last that is not the user's: words nobody answered do not hide an open tool result."""
    rows = yield from last_messages(session_id, TAIL_ROWS)
    while rows and rows[-1].role == "user":
        rows.pop()
    return rows


def last_messages(session_id: str, limit: int) -> Op[list[Message]]:
    """The newest rows of a transcript, oldest first; what was undone is left out."""
    rows = yield sql(
        f"SELECT {MESSAGE_COLUMNS} FROM message WHERE session_id=$1 AND hidden=0 ORDER BY seq DESC LIMIT $2",
        session_id,
        limit,
    )
    return [message_of(row) for row in reversed(rows)]


def open_session(session_id: str, key: str, parent: str | None, words_: str, at: float) -> Op[None]:
    """A new incarnation of the conversation under a key."""
    yield sql(
        "INSERT INTO session (session_id, key, parent, started_at, first_words) VALUES ($1, $2, $3, $4, $5)"
        " ON CONFLICT (session_id) DO NOTHING",
        session_id,
        key,
        parent,
        at,
        words_[:FIRST_WORDS],
    )


def end_session(session_id: str | None, reason: str, messages: int, at: float) -> Op[None]:
    """Nothing is written into an ended session; an earlier, explicit end is kept."""
    yield sql(
        "UPDATE session SET ended_at=$3, end_reason=$2, messages=$4 WHERE session_id=$1 AND ended_at IS NULL",
        session_id,
        reason,
        at,
        messages,
    )


def reset_entry(entry: SessionEntry, reason: str, start: Start, first: Waiting) -> Op[tuple[SessionEntry, list[Fact]]]:
    """End what the key points at and point it at a fresh session; the user is told the true reason."""
    facts: list[Fact] = []
    if entry.turn is not None:
        yield from end_open_turn(entry, "failed", "expired", reason, start.at)
        facts = [fact("turn", start.at, turn=str(entry.turn), state="failed")] if start.delivery.by_event else []
    yield from end_session(entry.session_id, reason, entry.seq, start.at)
    yield from open_session(start.session_id, entry.key, entry.session_id, first.text, first.accepted_at)
    had_activity = has_activity(entry)
    yield from point_at(entry.key, start.session_id, entry.session_id, reason, had_activity=had_activity)
    fresh = replace(
        entry,
        session_id=start.session_id,
        state=ACTIVE,
        unclean_ends=0,
        tail=False,
        tail_key=None,
        tail_at=None,
        previous_session_id=entry.session_id,
        auto_reset_reason=reason,
        reset_had_activity=had_activity,
        expired=None,
        turn=None,
        seq=0,
        turns=0,
    )
    if not notify_user(reason, start.policy, had_activity, first.source.platform):
        return fresh, facts
    text = words.reset(reason, entry.session_id)
    told = yield from tell(start.notice, entry.key, first.source, text, reason, start.at, start.delivery, start.turn)
    return fresh, facts + told


def point_at(
    key: str, session_id: str, previous: str | None, reason: str | None, *, had_activity: bool, seq: int = 0
) -> Op[None]:
    """A boundary: the key points at another session, which inherits no mark, count or tail."""
    yield sql(
        "UPDATE entry SET session_id=$2, previous_session_id=$3, reset_reason=$4, reset_had_activity=$5,"
        " state='active', reason=NULL, marked_at=NULL, unclean_ends=0, tail=0, tail_key=NULL, tail_at=NULL,"
        " expired=NULL, turn=NULL, holder=NULL, seq=$6, turns=0 WHERE key=$1",
        key,
        session_id,
        previous,
        reason,
        int(had_activity),
        seq,
    )


def end_open_turn(entry: SessionEntry, state: str, inbox_state: str, why: str, at: float) -> Op[None]:
    """End the key's open turn without an answer; its messages end visibly with it."""
    yield sql(
        "UPDATE turn SET state=$2, ended_at=$3, why=$4 WHERE id=$1 AND state IN ('running','waiting','interrupted')",
        entry.turn,
        state,
        at,
        why,
    )
    yield sql(
        "UPDATE inbox SET state=$3, ended_at=$4, why=$5"
        " WHERE key=$1 AND ended_at IS NULL AND turn=$2 AND state='claimed'",
        entry.key,
        entry.turn,
        inbox_state,
        at,
        why,
    )


def calling(turn: int) -> Op[None]:
    """The agent is about to call the model: from now on an end of the process is an interruption."""
    yield sql("UPDATE turn SET called=attempt WHERE id=$1 AND state='running'", turn)


def prove(turn: int) -> Op[None]:
    """A suspect lived through its calm time: it is not the one that kills the process."""
    yield sql("UPDATE turn SET proven=attempt WHERE id=$1 AND state='running'", turn)


def _fenced(begun: Begun) -> Op[None]:
    if not (yield sql(FENCED, begun.key, begun.fence, begun.turn)):
        raise FenceLost(f"{begun.key}: the turn {begun.turn} no longer owns its conversation")


def step(
    begun: Begun, message: Message, begin: ToolCall | None, acknowledge: str | None, *, prove_it: bool
) -> Op[None]:
    """Commit a model response, and with it the beginning of its first effect."""
    yield from _fenced(begun)
    yield _written(begun, message)
    if begin is not None:
        yield sql(ADD_EFFECT, begun.turn, begin.id, begin.name, begin.effect, begun.attempt, message.at)
    if acknowledge is not None:
        yield sql("UPDATE entry SET tail_key=$2, tail_at=$3 WHERE key=$1", begun.key, acknowledge, message.at)
    if prove_it:
        yield from prove(begun.turn)


def begin_effect(begun: Begun, call: ToolCall, at: float) -> Op[None]:
    """Commit that a tool call is about to run."""
    yield from _fenced(begun)
    yield sql(ADD_EFFECT, begun.turn, call.id, call.name, call.effect, begun.attempt, at)


def finish_effect(begun: Begun, result: Message, begin: ToolCall | None) -> Op[None]:
    """Commit a tool's result, and with it the beginning of the next call."""
    yield from _fenced(begun)
    yield sql(EFFECT_DONE, begun.turn, result.call_id, result.at)
    yield _written(begun, result)
    if begin is not None:
        yield sql(ADD_EFFECT, begun.turn, begin.id, begin.name, begin.effect, begun.attempt, result.at)


def effects_of(turn: int) -> Op[dict[str, str]]:
    """The state of each effect of a turn, by call id."""
    rows = yield sql("SELECT call_id, state FROM effect WHERE turn=$1", turn)
    return {row[0]: row[1] for row in rows}


def finish(begun: Begun, answer: Message, delivery: Delivery, instance: int, acknowledge: str | None) -> Op[Finished]:
    """The answer, the obligation to deliver it, the events and the entry's state: one transaction."""
    at = answer.at
    facts = _answer_facts(begun, answer) if delivery.by_event else []
    rows = yield sql(RELEASE_KEY, begun.key, begun.fence, begun.turn, answer.seq, len(facts))
    if not rows:
        return (yield from _finished_before(begun, at, instance))
    yield _written(begun, answer)
    yield sql("UPDATE turn SET state='answered', ended_at=$2 WHERE id=$1 AND state='running'", begun.turn, at)
    for number in begun.inbox:
        yield sql(INBOX_DONE, number, at)
    if acknowledge is not None:
        yield sql("UPDATE entry SET tail_key=$2, tail_at=$3 WHERE key=$1", begun.key, acknowledge, at)
    reply = yield from owe(
        begun.turn, begun.key, begun.turn, "reply", begun.source, answer.content, at, delivery, instance
    )
    events = (yield from append_events(begun.key, rows[0][0] - len(facts), facts)) if facts else ()
    return Finished(events=events, reply=reply, more=rows[0][1] > 0)


def _answer_facts(begun: Begun, answer: Message) -> list[Fact]:
    turn = str(begun.turn)
    return [
        fact("reply", answer.at, turn=turn, id=turn, text=answer.content, to=begun.source.message_id),
        fact("turn", answer.at, turn=turn, state="answered", attempt=begun.attempt),
    ]


def _finished_before(begun: Begun, at: float, instance: int) -> Op[Finished]:
    """Either this operation ran before (its commit's outcome was unknown), or the key has another owner."""
    rows = yield sql("SELECT state, attempt FROM turn WHERE id=$1", begun.turn)
    if not rows or rows[0] != ("answered", begun.attempt):
        raise FenceLost(f"{begun.key}: the turn {begun.turn} no longer owns its conversation")
    events = yield from events_of(begun.key, at)
    reply = yield from sent_at_once(begun.turn, instance)
    more = yield sql(NEXT_WAITING, begun.key)
    return Finished(events=events, reply=reply, more=bool(more))


def fail(begun: Begun, why: str, text: str, at: float, delivery: Delivery) -> Op[tuple[Event, ...]]:
    """A turn that could not be answered: its messages become dead letters and their sender is told.

    The session's mark and its count of unclean ends stay: only a successful turn clears them.
    """
    entry = yield from lock_entry(begun.key)
    if entry is None or entry.fence != begun.fence or entry.turn != begun.turn:
        return (yield from _failed_before(begun, at))
    yield from end_open_turn(entry, "failed", "dead", why, at)
    yield from release(entry)
    facts = yield from tell(begun.turn, begun.key, begun.source, text, "failed", at, delivery, begun.turn)
    if delivery.by_event:
        facts = [*facts, fact("turn", at, turn=str(begun.turn), state="failed", attempt=begun.attempt)]
    return (yield from report(begun.key, entry.event_seq, facts))


def _failed_before(begun: Begun, at: float) -> Op[tuple[Event, ...]]:
    rows = yield sql("SELECT state, ended_at FROM turn WHERE id=$1", begun.turn)
    return (yield from events_of(begun.key, at)) if rows == [("failed", at)] else ()


def release(entry: SessionEntry, *, keep_turn: bool = False) -> Op[int]:
    """Let go of the key: late writers lose their fence; returns the transcript's true length."""
    rows = yield sql("SELECT max(seq) FROM message WHERE session_id=$1", entry.session_id)
    last = rows[0][0] or 0
    role = yield sql(LAST_ROLE, entry.session_id)
    yield sql(
        "UPDATE entry SET holder=NULL, turn=$2, fence=fence+1, seq=$3, tail=$4 WHERE key=$1",
        entry.key,
        entry.turn if keep_turn else None,
        last,
        int(bool(role) and role[0][0] == "tool"),
    )
    return int(last)
