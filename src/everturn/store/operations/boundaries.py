"""Where one session ends and another begins: opening, ending, pointing the key, letting go of it."""

from __future__ import annotations

from msgspec.structs import replace

from everturn.decide import words
from everturn.decide.session import has_activity, notify_user
from everturn.model import ACTIVE, SessionEntry
from everturn.store.interface import Op, sql
from everturn.store.operations.questions import CLOSE_QUESTIONS
from everturn.store.operations.telling import Fact, fact, tell
from everturn.store.operations.turn_values import Start, Waiting

LAST_ROLE = "SELECT role FROM message WHERE session_id=$1 AND role<>'user' ORDER BY seq DESC LIMIT 1"
FIRST_WORDS = 80


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
    """End the key's open turn without an answer; its messages end visibly with it, and so does what it asked."""
    yield sql(CLOSE_QUESTIONS, entry.turn, at, why)
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
