"""Session boundaries: opening and ending sessions, pointing the key at one, ending its open turn."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from msgspec.structs import replace

from everturn.inbox.rules import OUTCOME_UNKNOWN, skipped
from everturn.model import (
    ACTIVE,
    TURN_MOVES,
    InboxState,
    ResumePending,
    RowOutcome,
    SessionEntry,
    ToolCall,
    TurnState,
    may_become,
)
from everturn.outbox.rows.replies import Fact, fact, queue_notice
from everturn.outbox.rows.streaming import break_off, on_screen
from everturn.outbox.rules import outbox_texts
from everturn.outbox.rules.streaming import not_said_before, said_before
from everturn.sessions.rows.entries import ADD_MESSAGE, MESSAGE_COLUMNS, calls_of, message_of, open_tail
from everturn.sessions.rules import notices
from everturn.sessions.rules.notes import tail_key
from everturn.sessions.rules.reset_policy import has_activity, notify_user
from everturn.store.interface import Op, sql
from everturn.turns.rows.approval_requests import CLOSE_REQUESTS
from everturn.turns.rows.spending import count_lost_call
from everturn.turns.rows.turn_values import QueuedMessage, Start, Streamed

LAST_ROLE = "SELECT role FROM message WHERE session_id=$1 AND hidden=0 AND role<>'user' ORDER BY seq DESC LIMIT 1"
FIRST_CHARS = 80
LAST_CALLS = (
    "SELECT m.calls, m.seq, t.attempt FROM turn t JOIN message m ON m.session_id=t.session_id AND m.seq>=t.first_seq"
    " AND m.turn=t.id WHERE t.id=$1 AND m.calls IS NOT NULL ORDER BY m.seq DESC LIMIT 1"
)
LATER_THAN = "SELECT 1 FROM message WHERE session_id=$1 AND turn=$2 AND seq>$3 AND role IN ('assistant','tool') LIMIT 1"
WITH_CALLS = f"SELECT {MESSAGE_COLUMNS} FROM message WHERE session_id=$1 AND turn=$2 AND hidden=0 AND calls IS NOT NULL ORDER BY seq"
ADD_STOPPED = (
    "INSERT INTO message (session_id, seq, role, content, turn, attempt, at, outcome)"
    " SELECT $1, $2, 'assistant', $3, t.id, t.attempt, $5, $6 FROM turn t WHERE t.id=$4"
    " ON CONFLICT (session_id, seq) DO NOTHING"
)
END_TURN: dict[str, str] = {
    state: f"UPDATE turn SET state='{state}', ended_at=$2, why=$3, ended_by=$4 WHERE id=$1 AND {may_become(TURN_MOVES, state)}"
    for state in (TurnState.FAILED, TurnState.STOPPED, TurnState.ROLLED_BACK, TurnState.SUSPENDED)
}
END_MESSAGES: dict[str, str] = {
    state: f"UPDATE inbox SET state='{state}', ended_at=$3, why=$4, dead_at=$5"
    " WHERE key=$1 AND ended_at IS NULL AND turn=$2 AND state='claimed'"
    for state in (InboxState.WITHDRAWN, InboxState.EXPIRED, InboxState.DEAD)
}
NOTHING_ELSE: Mapping[str, str] = MappingProxyType({})
_BECAUSE = {
    "/stop": "the user stopped the task",
    "/new": "the user began a new conversation",
    "operator": "an operator ended the task",
    "interrupted": "the user interrupted the task with a new message",
}


def open_session(session_id: str, key: str, parent: str | None, first_text: str, at: float) -> Op[None]:
    """Store a new session under a key."""
    yield sql(
        "INSERT INTO session (session_id, key, parent, started_at, first_text) VALUES ($1, $2, $3, $4, $5)"
        " ON CONFLICT (session_id) DO NOTHING",
        session_id,
        key,
        parent,
        at,
        first_text[:FIRST_CHARS],
    )


def end_session(session_id: str | None, reason: str, messages: int, at: float) -> Op[None]:
    """End a session: nothing is written into it any more. An earlier, explicit end is kept."""
    yield sql(
        "UPDATE session SET ended_at=$3, end_reason=$2, messages=$4 WHERE session_id=$1 AND ended_at IS NULL",
        session_id,
        reason,
        at,
        messages,
    )


def reset_entry(
    entry: SessionEntry, reason: str, start: Start, first: QueuedMessage
) -> Op[tuple[SessionEntry, list[Fact]]]:
    """End the key's session and point the key at a fresh one; the sender gets a notice with the true reason."""
    facts: list[Fact] = []
    yield from keep_mark(entry)
    if entry.turn is not None:
        yield from end_open_turn(entry, "failed", "expired", reason, start.at)
        facts = [fact("turn", start.at, turn=str(entry.turn), state="failed")] if start.delivery.by_event else []
    yield from end_session(entry.session_id, reason, (yield from length_of(entry.session_id)), start.at)
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
        model=None,
    )
    if not notify_user(reason, start.policy, had_activity, first.source.platform):
        return fresh, facts
    text = notices.reset(reason, entry.session_id)
    told = yield from queue_notice(
        start.notice, entry.key, first.source, text, reason, start.at, start.delivery, start.turn
    )
    return fresh, facts + told


def keep_mark(entry: SessionEntry) -> Op[None]:
    """Store the resume mark in a session that is left mid-turn: when it is resumed, it gets the interruption note."""
    if isinstance(entry.state, ResumePending):
        yield sql("UPDATE session SET mark=$2 WHERE session_id=$1", entry.session_id, entry.state.reason)


def point_at(
    key: str, session_id: str, previous: str | None, reason: str | None, *, had_activity: bool, seq: int = 0
) -> Op[None]:
    """Point the key at another session, which inherits no mark, count or tail."""
    yield sql(
        "UPDATE entry SET session_id=$2, previous_session_id=$3, reset_reason=$4, reset_had_activity=$5,"
        " state='active', reason=NULL, marked_at=NULL, unclean_ends=0, tail=0, tail_key=NULL, tail_at=NULL,"
        " expired=NULL, rolled_back=NULL, turn=NULL, holder=NULL, seq=$6, turns=0,"
        " model=(SELECT s.model FROM session s WHERE s.session_id=$2) WHERE key=$1",
        key,
        session_id,
        previous,
        reason,
        int(had_activity),
        seq,
    )


def end_open_turn(
    entry: SessionEntry,
    state: str,
    inbox_state: str,
    why: str,
    at: float,
    said: str | None = None,
    *,
    streamed: Streamed | None = None,
    by: int | None = None,
) -> Op[None]:
    """End the key's open turn without an answer, and with it its messages, approval requests, open calls and streaming
    message. `said` is the notice to its user. What a stopped turn has streamed stays, as an answer that was cut off.
    `by` is the number of what ends it, by which an operation that runs twice finds the turn.
    """
    streamed = streamed if streamed is not None and streamed.turn == entry.turn else None
    text = (yield from _streamed_text(entry, streamed)) if state == "stopped" else ""
    yield from break_off(
        entry.turn,
        said or outbox_texts.ended(why),
        at,
        streamed.shown if streamed else "",
        whole=state == "rolled_back",
    )
    if state != "failed":  # a call that failed was seen to
        yield from count_lost_call(entry.turn, at)
    yield sql(CLOSE_REQUESTS, entry.turn, at, why)
    yield from pair_calls(entry, skipped(_BECAUSE.get(why, "the task ended before it was begun")), at)
    if text:
        yield sql(
            ADD_STOPPED, entry.session_id, 1 + (yield from length_of(entry.session_id)), text, entry.turn, at,
            RowOutcome.STOPPED,
        )  # fmt: skip
    yield sql(END_TURN[state], entry.turn, at, why, by)
    yield sql(END_MESSAGES[inbox_state], entry.key, entry.turn, at, why, at if inbox_state == "dead" else None)


def _streamed_text(entry: SessionEntry, streamed: Streamed | None) -> Op[str]:
    """What the open turn has streamed of an answer that no transcript row has. What this process knows counts; of a turn
    that runs elsewhere, or ran in a process that died, only the row of its streaming message is known.
    """
    if streamed is not None and streamed.text.strip():
        if streamed.session_id != entry.session_id:
            return ""
        later = yield sql(LATER_THAN, entry.session_id, entry.turn, streamed.after)
        return "" if later else streamed.text
    shown = yield from on_screen(entry.turn)
    if not shown:
        return ""
    rows = yield sql(WITH_CALLS, entry.session_id, entry.turn)
    asked = yield sql("SELECT call_id FROM approval WHERE turn=$1", entry.turn)
    return not_said_before(shown, said_before([message_of(row) for row in rows], {row[0] for row in asked}))


def pair_calls(entry: SessionEntry, skip: str, at: float, instead: Mapping[str, str] = NOTHING_ELSE) -> Op[int]:
    """Give each open call of the turn's last response a result: skipped (or what is said of it instead), or of unknown
    outcome when it was begun. Returns how many there were.
    """
    left = yield from open_calls(entry.turn or 0, entry.session_id)
    if not left:
        return 0
    begun = {row[0] for row in (yield sql("SELECT call_id FROM effect WHERE turn=$1", entry.turn))}
    seq = yield from length_of(entry.session_id)
    for place, (call, attempt) in enumerate(left, 1):
        unknown = call.id in begun
        text = OUTCOME_UNKNOWN if unknown else instead.get(call.id, skip)
        yield sql(
            ADD_MESSAGE, entry.session_id, seq + place, "tool", text, None, call.id, int(unknown), None, None, entry.turn,
            attempt, at, None if unknown else RowOutcome.SKIPPED,
        )  # fmt: skip
    return len(left)


def open_calls(turn: int, session_id: str | None) -> Op[list[tuple[ToolCall, int]]]:
    """The calls of a turn's last response that have no result yet, with the attempt that asked for them."""
    rows = yield sql(LAST_CALLS, turn)
    if not rows:
        return []
    calls, asked, attempt = rows[0]
    results = yield sql("SELECT call_id FROM message WHERE session_id=$1 AND seq>$2 AND role='tool'", session_id, asked)
    answered = {row[0] for row in results}
    return [(call, attempt) for call in calls_of(calls) if call.id not in answered]


def length_of(session_id: str | None) -> Op[int]:
    """The transcript's true length, what is hidden included."""
    rows = yield sql("SELECT max(seq) FROM message WHERE session_id=$1", session_id)
    return int(rows[0][0] or 0)


def acknowledge_tail(entry: SessionEntry, at: float) -> Op[None]:
    """Clear the mark and acknowledge the tool tail: the user ended the task, so the next turn does not take it up."""
    tail = tail_key((yield from open_tail(entry.session_id or "")))
    yield sql(
        "UPDATE entry SET state='active', reason=NULL, marked_at=NULL, tail_key=$2, tail_at=$3"
        " WHERE key=$1 AND state<>'suspended'",
        entry.key,
        tail,
        at,
    )


def release(entry: SessionEntry, *, keep_turn: bool = False) -> Op[int]:
    """Release the key: late writers lose their fence. Returns the transcript's true length."""
    last = yield from length_of(entry.session_id)
    role = yield sql(LAST_ROLE, entry.session_id)
    yield sql(
        "UPDATE entry SET holder=NULL, turn=$2, fence=fence+1, seq=$3, tail=$4 WHERE key=$1",
        entry.key,
        entry.turn if keep_turn else None,
        last,
        int(bool(role) and role[0][0] == "tool"),
    )
    return last
