"""What a death left behind: running turns of a dead instance, judged together, then put right one by one; and the same
for turns that a planned drain had to cut off.
"""

from __future__ import annotations

from dataclasses import dataclass

from everturn.decide import words
from everturn.decide.recovery import CutOff, Verdict, blame, drain_counts
from everturn.decide.session import Reset, choose
from everturn.model import Event, ResumePending, SessionEntry
from everturn.store.interface import Op, sql
from everturn.store.operations.boundaries import end_open_turn, release
from everturn.store.operations.bubbles import pause
from everturn.store.operations.entries import lock_entry
from everturn.store.operations.spending import count_lost_call
from everturn.store.operations.telling import Delivery, Fact, events_of, fact, report, tell
from everturn.store.operations.turn_values import Start

_CUT_OFF = (
    "SELECT t.id, t.key, e.unclean_ends, t.called, t.proven, t.attempt, t.verdict,"
    " (SELECT count(*) FROM message m WHERE m.session_id=t.session_id AND m.seq>=t.first_seq AND m.turn=t.id AND m.attempt=t.attempt"
    "  AND m.role='assistant')"
    " FROM turn t JOIN entry e ON e.key=t.key WHERE "
)
CUT_OFF_ALL = _CUT_OFF + "t.instance=$1 AND t.ended_at IS NULL AND t.state='running' ORDER BY t.id"
THE_GATEWAY_ENDED = "the gateway ended"
CUT_OFF_ONE = _CUT_OFF + "t.id=$1 AND t.state='running'"


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
    """What became of one cut-off turn."""

    key: str
    verdict: Verdict
    events: tuple[Event, ...] = ()


def judge(instance: int, stuck_after: int) -> Op[list[tuple[int, str, Verdict]]]:
    """Blame for the turns of one dead instance, decided over all of them at once and kept: a death in the middle of
    recovery must not change what the rest is judged by.
    """
    rows = yield sql(CUT_OFF_ALL, instance)
    turns = [
        CutOff(
            turn=row[0],
            key=row[1],
            unclean_ends=row[2],
            called=row[3] == row[5] or row[7] > 0,
            proven=row[4] == row[5],
            attempt=row[5],
            progressed=row[7] > 0,
        )
        for row in rows
    ]
    verdicts = blame(turns, stuck_after)
    kept = {row[0]: Verdict(row[6]) for row in rows if row[6]}
    for turn in turns:
        if turn.turn not in kept and verdicts[turn.turn] in {Verdict.SPARE, Verdict.SUSPEND}:
            yield sql("UPDATE turn SET verdict=$2 WHERE id=$1", turn.turn, verdicts[turn.turn])
    return [(turn.turn, turn.key, kept.get(turn.turn, verdicts[turn.turn])) for turn in turns]


def cut_off(turn: int, key: str, verdict: Verdict, cause: Interruption, delivery: Delivery) -> Op[Recovered | None]:
    """Put one cut-off turn right, once: None when somebody else already did."""
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
    if verdict is Verdict.SUSPEND:
        return (yield from _suspend(entry, turn, cause, delivery))
    yield from _interrupt(entry, turn, verdict, cause)
    facts = [fact("turn", cause.now, turn=str(turn), state="interrupted")] if delivery.by_event else []
    events = yield from report(key, entry.event_seq, facts)
    return Recovered(key=key, verdict=verdict, events=events)


def _interrupt(entry: SessionEntry, turn: int, verdict: Verdict, cause: Interruption) -> Op[None]:
    yield sql(
        "UPDATE turn SET state='interrupted', instance=NULL, reason=$2, marked_at=$3 WHERE id=$1 AND state='running'",
        turn,
        None if verdict is Verdict.REQUEUE else cause.reason,
        cause.at,
    )
    yield from pause(turn, cause.now)
    yield from release(entry, keep_turn=True)
    if verdict is Verdict.REQUEUE:
        return
    yield sql(
        "UPDATE entry SET state='resume_pending', reason=$2, marked_at=$3, unclean_ends=unclean_ends+$4 WHERE key=$1",
        entry.key,
        cause.reason,
        cause.at,
        int(verdict is Verdict.COUNT),
    )


def _suspend(entry: SessionEntry, turn: int, cause: Interruption, delivery: Delivery) -> Op[Recovered]:
    """The third unclean end in a row: the session is set aside, its user told, everybody else goes on."""
    yield sql("UPDATE turn SET reason=$2, marked_at=$3 WHERE id=$1", turn, cause.reason, cause.at)
    held = yield sql(
        "SELECT count(*) FROM inbox WHERE key=$1 AND ended_at IS NULL AND state='waiting' AND kind='message'", entry.key
    )
    text = words.suspended(held[0][0], entry.unclean_ends + 1)
    yield from _set_aside(entry, cause.reason, "stuck", cause.now, text)
    yield sql("UPDATE entry SET unclean_ends=unclean_ends+1 WHERE key=$1", entry.key)
    facts: list[Fact] = yield from tell(
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
    events = yield from report(entry.key, entry.event_seq, facts)
    return Recovered(key=entry.key, verdict=Verdict.SUSPEND, events=events)


def suspend_session(key: str, at: float, reason: str = "stuck") -> Op[bool]:
    """Quarantine what the key points at; nothing is deleted. False for a key without a session."""
    entry = yield from lock_entry(key)
    if entry is None or entry.session_id is None:
        return False
    mark = "restart_interrupted" if entry.turn is not None else None
    yield from _set_aside(entry, entry.state.reason if isinstance(entry.state, ResumePending) else mark, reason, at)
    return True


def _set_aside(entry: SessionEntry, mark: str | None, reason: str, at: float, said: str | None = None) -> Op[None]:
    """Suspended: what was running ends with its messages; the mark is kept, so that `/resume` still gives the note."""
    if entry.turn is not None:
        yield from end_open_turn(entry, "suspended", "dead", "suspended", at, said)
        yield from release(entry)
    if mark is not None:
        yield sql("UPDATE session SET mark=$2 WHERE session_id=$1", entry.session_id, mark)
    yield sql(
        "UPDATE inbox SET why='held' WHERE key=$1 AND ended_at IS NULL AND state='waiting' AND kind='message'",
        entry.key,
    )
    yield sql("UPDATE entry SET state='suspended', reason=$2, marked_at=$3 WHERE key=$1", entry.key, reason, at)


def cut_off_by_drain(
    turn: int, key: str, stuck_after: int, cause: Interruption, delivery: Delivery
) -> Op[Recovered | None]:
    """A planned stop that ran out of patience: the turn is marked and counted in one transaction, never again later."""
    rows = yield sql(CUT_OFF_ONE, turn)
    if not rows:
        return None
    row = rows[0]
    verdict = Verdict.REQUEUE
    if row[3] == row[5] or row[7] > 0:
        verdict = drain_counts(row[5], row[7] > 0, row[2], stuck_after)
    return (yield from cut_off(turn, key, verdict, cause, delivery))


def interrupted_keys() -> Op[list[tuple[str, int, str | None, float | None, float | None]]]:
    """The keys with an interrupted turn: key, turn, reason of its mark, when, and when its user was told it is too old."""
    rows = yield sql(
        "SELECT key, id, reason, marked_at, told_at FROM turn"
        " WHERE ended_at IS NULL AND state='interrupted' ORDER BY +id"
    )
    return [(row[0], row[1], row[2], row[3], row[4]) for row in rows]


def tell_too_old(turn: int, key: str, start: Start) -> Op[tuple[Event, ...]]:
    """Say once that an interrupted task will not go on by itself, and what the next message will do."""
    now, delivery = start.at, start.delivery
    entry = yield from lock_entry(key)
    told = yield sql(
        "UPDATE turn SET told_at=$2 WHERE id=$1 AND state='interrupted' AND told_at IS NULL RETURNING id", turn, now
    )
    if entry is None or not told:
        return (yield from events_of(key, now))  # what this operation told when it ran before
    text = words.too_old(isinstance(choose(entry, now, start.policy, start.fresh_s), Reset))
    facts = yield from tell(start.notice, key, entry.origin, text, "resume_too_old", now, delivery, turn)
    return (yield from report(key, entry.event_seq, facts))
