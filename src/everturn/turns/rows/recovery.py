"""Recover the running turns of a dead instance: judge them together, then interrupt or suspend each; the same for
turns that a planned drain had to cut off.
"""

from __future__ import annotations

from dataclasses import dataclass

from everturn.errors import Damaged
from everturn.model import TURN_MOVES, Event, ResumePending, SessionEntry, Suspended, has_not_ended
from everturn.outbox.rows.replies import Fact, events_of, fact, queue_notice, report
from everturn.outbox.rows.streaming import pause
from everturn.outbox.rules.delivery import Delivery
from everturn.sessions.rows.boundaries import end_open_turn, release
from everturn.sessions.rows.entries import lock_entry
from everturn.sessions.rules import notices
from everturn.sessions.rules.reset_policy import ResetDecision, choose
from everturn.store.interface import Op, sql
from everturn.turns.rows.approval_requests import CLOSE_REQUESTS
from everturn.turns.rows.spending import count_lost_call
from everturn.turns.rows.turn_values import Start
from everturn.turns.rules.recovery import CutOff, RecoveryVerdict, blame, drain_counts

_CUT_OFF = (
    "SELECT t.id, t.key, e.unclean_ends, t.called, t.proven, t.attempt, t.verdict,"
    " (SELECT count(*) FROM message m WHERE m.session_id=t.session_id AND m.seq>=t.first_seq AND m.turn=t.id AND m.attempt=t.attempt"
    "  AND m.role='assistant')"
    " FROM turn t JOIN entry e ON e.key=t.key WHERE "
)
CUT_OFF_ALL = _CUT_OFF + "t.instance=$1 AND t.ended_at IS NULL AND t.state='running' ORDER BY t.id"
KEEP_QUEUED = "UPDATE inbox SET why='suspended' WHERE key=$1 AND ended_at IS NULL AND state='queued' AND kind='message'"
UNBEGUN = (
    "SELECT DISTINCT i.key FROM inbox i JOIN entry e ON e.key=i.key WHERE i.ended_at IS NULL AND i.state='queued'"
    " AND i.backlog IS NULL AND i.why IS NULL AND i.accepted_at<$1 AND e.holder IS NULL AND e.turn IS NULL LIMIT 1000"
)
UNSENT = (
    "SELECT DISTINCT key FROM outbox WHERE ended_at IS NULL AND state='pending' AND due_at<$1 AND key NOT IN"
    " (SELECT key FROM outbox WHERE ended_at IS NULL AND (state='sending' OR due_at>$2)) LIMIT 1000"
)
THE_GATEWAY_ENDED = "the gateway ended"
CUT_OFF_ONE = _CUT_OFF + "t.id=$1 AND t.state='running'"


VERDICTS = frozenset(RecoveryVerdict)
# Of an instance's open turns, those that no rule below knows what to do with.
DAMAGED = (
    "SELECT id, key, state, verdict FROM turn WHERE instance=$1 AND ended_at IS NULL"
    " AND (state NOT IN ('running','awaiting_approval','interrupted') OR verdict NOT IN ('requeue','count','spare','suspend'))"
)
DAMAGE = "damaged"
END_UNREAD = (
    f"UPDATE turn SET state='suspended', ended_at=$2, why=$3, verdict=NULL WHERE id=$1 AND {has_not_ended(TURN_MOVES)}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Interruption:
    """Why and when running turns were cut off."""

    instance: int
    reason: str
    at: float  # when they were cut off, as well as it is known
    now: float
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """The outcome for one cut-off turn."""

    key: str
    verdict: RecoveryVerdict
    events: tuple[Event, ...] = ()


def judge(instance: int, stuck_after: int) -> Op[list[tuple[int, str, RecoveryVerdict]]]:
    """Decide and store a verdict for each turn of one dead instance, over all at once: a crash in the middle of recovery
    must not change what the rest is judged by.
    """
    rows = yield sql(CUT_OFF_ALL, instance)
    turns = [
        CutOff(
            turn=row[0],
            key=row[1],
            unclean_ends=row[2],
            called=row[3] == row[5] or row[7] > 0,
            proven=row[4] == row[5],
        )
        for row in rows
    ]
    verdicts = blame(turns, stuck_after)
    kept = {row[0]: RecoveryVerdict(row[6]) for row in rows if row[6] in VERDICTS}  # an unknown one is decided anew
    for turn in turns:
        if turn.turn not in kept and verdicts[turn.turn] in {RecoveryVerdict.SPARE, RecoveryVerdict.SUSPEND}:
            yield sql("UPDATE turn SET verdict=$2 WHERE id=$1", turn.turn, verdicts[turn.turn])
    return [(turn.turn, turn.key, kept.get(turn.turn, verdicts[turn.turn])) for turn in turns]


def cut_off(
    turn: int, key: str, verdict: RecoveryVerdict, cause: Interruption, delivery: Delivery
) -> Op[Recovered | None]:
    """Interrupt or suspend one cut-off turn, once: None when another process already did."""
    entry = yield from lock_entry(key)
    if entry is None or entry.turn != turn or entry.holder != cause.instance:
        return None
    yield sql(
        "INSERT INTO attempt (turn, attempt, instance, note, started_at, ended_at, why)"
        " SELECT id, attempt, instance, note, attempt_at, $2, $3 FROM turn WHERE id=$1"
        " ON CONFLICT (turn, attempt) DO NOTHING",
        turn,
        cause.at,
        cause.why,
    )
    yield from count_lost_call(turn, cause.at)
    if verdict is RecoveryVerdict.SUSPEND:
        return (yield from _suspend(entry, turn, cause, delivery))
    yield from _interrupt(entry, turn, verdict, cause)
    facts = [fact("turn", cause.now, turn=str(turn), state="interrupted")] if delivery.by_event else []
    events = yield from report(key, entry.event_seq, facts, None)
    return Recovered(key=key, verdict=verdict, events=events)


def _interrupt(entry: SessionEntry, turn: int, verdict: RecoveryVerdict, cause: Interruption) -> Op[None]:
    marked = yield sql(
        "UPDATE turn SET state='interrupted', instance=NULL, reason=$2, marked_at=$3"
        " WHERE id=$1 AND state='running' RETURNING id",
        turn,
        None if verdict is RecoveryVerdict.REQUEUE else cause.reason,
        cause.at,
    )
    if not marked:  # the key's lock is ours: nobody ended the turn, so its row has a state that no rule knows
        raise Damaged(f"turn {turn} is held, and its state is not 'running'")
    yield from pause(turn, cause.now)
    yield from release(entry, keep_turn=True)
    if verdict is RecoveryVerdict.REQUEUE:
        return
    yield sql(
        "UPDATE entry SET state='resume_pending', reason=$2, marked_at=$3, unclean_ends=unclean_ends+$4 WHERE key=$1",
        entry.key,
        cause.reason,
        cause.at,
        int(verdict is RecoveryVerdict.COUNT),
    )


def _suspend(entry: SessionEntry, turn: int, cause: Interruption, delivery: Delivery) -> Op[Recovered]:
    """Suspend the session after too many unclean ends in a row, with a notice for its user."""
    yield sql("UPDATE turn SET reason=$2, marked_at=$3 WHERE id=$1", turn, cause.reason, cause.at)
    queued = yield sql(
        "SELECT count(*) FROM inbox WHERE key=$1 AND ended_at IS NULL AND state='queued' AND kind='message'", entry.key
    )
    text = notices.suspended(queued[0][0], entry.unclean_ends + 1)
    yield from _suspend_entry(entry, cause.reason, "stuck", cause.now, text)
    yield sql("UPDATE entry SET unclean_ends=unclean_ends+1 WHERE key=$1", entry.key)
    facts: list[Fact] = yield from queue_notice(
        turn,
        entry.key,
        entry.origin,
        text,
        "suspended",
        cause.now,
        delivery,
        turn,
    )
    if delivery.by_event:
        facts = [*facts, fact("turn", cause.now, turn=str(turn), state="suspended")]
    events = yield from report(entry.key, entry.event_seq, facts, None)
    return Recovered(key=entry.key, verdict=RecoveryVerdict.SUSPEND, events=events)


def damaged_turns(instance: int) -> Op[list[tuple[int, str, str, bool]]]:
    """The open turns of an instance with an unknown state or verdict: turn, key, what is wrong, and whether it is the state."""
    rows = yield sql(DAMAGED, instance)
    known = {"running", "awaiting_approval", "interrupted"}
    return [
        (
            turn,
            key,
            f"unknown verdict {verdict!r}" if state in known else f"unknown state {state!r}",
            state not in known,
        )
        for turn, key, state, verdict in rows
    ]


def quarantine(
    key: str, turn: int | None, holder: int | None, notice: int, at: float, delivery: Delivery
) -> Op[Recovered | None]:
    """Suspend a session whose rows cannot be read, and read none of them: the messages of its open turn are dead letters, its
    user gets a notice, and only an explicit /resume returns to it. `turn` and `holder` are its fence; None when the entry
    points elsewhere by now.
    """
    entry = yield from lock_entry(key)
    if entry is None or entry.session_id is None or (entry.turn, entry.holder) != (turn, holder):
        return None
    if entry.turn is not None:
        yield from _end_unread(key, entry.turn, at)
    yield from release(entry)
    yield sql(KEEP_QUEUED, key)
    yield sql("UPDATE entry SET state='suspended', reason=$2, marked_at=$3 WHERE key=$1", key, DAMAGE, at)
    facts = yield from queue_notice(notice, key, entry.origin, notices.DAMAGED, "suspended", at, delivery, turn)
    if delivery.by_event and turn is not None:
        facts = [*facts, fact("turn", at, turn=str(turn), state="suspended")]
    events = yield from report(key, entry.event_seq, facts, None)
    return Recovered(key=key, verdict=RecoveryVerdict.SUSPEND, events=events)


def end_orphan(turn: int, key: str, instance: int, at: float) -> Op[bool]:
    """End a running turn at which its key does not point: nothing else would, and recovery would find it at every start. False
    when there is no such turn.
    """
    entry = yield from lock_entry(key)
    if entry is not None and (entry.turn, entry.holder) == (turn, instance):
        return False
    rows = yield sql(
        "SELECT id FROM turn WHERE id=$1 AND instance=$2 AND ended_at IS NULL AND state='running'", turn, instance
    )
    if rows:
        yield from _end_unread(key, turn, at)
    return bool(rows)


def _end_unread(key: str, turn: int, at: float) -> Op[None]:
    """End a turn without reading its rows: what was sent stays, its tool calls get no results."""
    yield sql("DELETE FROM outbox WHERE id=$1 AND state='open'", turn)
    yield sql(CLOSE_REQUESTS, turn, at, DAMAGE)
    yield sql(END_UNREAD, turn, at, DAMAGE)
    # A state that says it has ended, without an end, is damage as well.
    yield sql("UPDATE turn SET ended_at=$2, verdict=NULL WHERE id=$1 AND ended_at IS NULL", turn, at)
    yield sql(
        "UPDATE inbox SET state='dead', ended_at=$3, dead_at=$3, why='suspended'"
        " WHERE key=$1 AND turn=$2 AND ended_at IS NULL AND state='claimed'",
        key, turn, at,
    )  # fmt: skip


def quarantine_idle(key: str, notice: int, at: float, delivery: Delivery) -> Op[Recovered | None]:
    """Quarantine the session of a key that no instance holds, whatever turn it points at."""
    entry = yield from lock_entry(key)
    if entry is None or entry.holder is not None or isinstance(entry.state, Suspended):
        return None
    return (yield from quarantine(key, entry.turn, None, notice, at, delivery))


def suspend_session(key: str, at: float, reason: str = "stuck") -> Op[bool]:
    """Suspend the session of a key; nothing is deleted. False for a key without a session."""
    entry = yield from lock_entry(key)
    if entry is None or entry.session_id is None:
        return False
    mark = "restart_interrupted" if entry.turn is not None else None
    yield from _suspend_entry(entry, entry.state.reason if isinstance(entry.state, ResumePending) else mark, reason, at)
    return True


def _suspend_entry(entry: SessionEntry, mark: str | None, reason: str, at: float, said: str | None = None) -> Op[None]:
    """Set the entry to suspended and end its open turn; the mark is kept, so that `/resume` still gives the note."""
    if entry.turn is not None:
        yield from end_open_turn(entry, "suspended", "dead", "suspended", at, said)
        yield from release(entry)
    if mark is not None:
        yield sql("UPDATE session SET mark=$2 WHERE session_id=$1", entry.session_id, mark)
    yield sql(KEEP_QUEUED, entry.key)
    yield sql("UPDATE entry SET state='suspended', reason=$2, marked_at=$3 WHERE key=$1", entry.key, reason, at)


def cut_off_by_drain(
    turn: int, key: str, stuck_after: int, cause: Interruption, delivery: Delivery
) -> Op[Recovered | None]:
    """Mark and count a turn that a planned drain cut off, in one transaction and only once."""
    rows = yield sql(CUT_OFF_ONE, turn)
    verdict = RecoveryVerdict.REQUEUE
    for row in rows:
        if row[3] == row[5] or row[7] > 0:
            verdict = drain_counts(row[5], row[7] > 0, row[2], stuck_after)
    return (yield from cut_off(turn, key, verdict, cause, delivery))


def interrupted_keys() -> Op[list[tuple[str, int, str | None, float | None, float | None]]]:
    """The keys with an interrupted turn: key, turn, reason of its mark, when, and when its user got the notice that it is too old."""
    rows = yield sql(
        "SELECT key, id, reason, marked_at, notice_at FROM turn"
        " WHERE ended_at IS NULL AND state='interrupted' ORDER BY +id"
    )
    return [(row[0], row[1], row[2], row[3], row[4]) for row in rows]


def unbegun_since(at: float) -> Op[list[str]]:
    """The keys with a message or command that is queued since then, though no turn of theirs is open."""
    return [row[0] for row in (yield sql(UNBEGUN, at))]


def unsent_since(at: float, now: float) -> Op[list[str]]:
    """The keys with a reply that is due since then, though nothing of theirs is being sent or waits to be sent again."""
    return [row[0] for row in (yield sql(UNSENT, at, now))]


def notify_too_old(turn: int, key: str, start: Start) -> Op[tuple[Event, ...]]:
    """Store one notice that an interrupted task will not resume by itself, and what the next message will do."""
    now, delivery = start.at, start.delivery
    entry = yield from lock_entry(key)
    told = yield sql(
        "UPDATE turn SET notice_at=$2 WHERE id=$1 AND state='interrupted' AND notice_at IS NULL RETURNING id", turn, now
    )
    if entry is None or not told:
        return (yield from events_of(key, start.notice))  # the events of an earlier run of this operation
    text = notices.too_old(isinstance(choose(entry, now, start.policy, start.fresh_s), ResetDecision))
    facts = yield from queue_notice(start.notice, key, entry.origin, text, "resume_too_old", now, delivery, turn)
    return (yield from report(key, entry.event_seq, facts, start.notice))
