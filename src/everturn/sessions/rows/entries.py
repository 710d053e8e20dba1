"""Rows of sessions: the entry of each session key, and the transcript of each session."""

from __future__ import annotations

import math
from typing import cast

import msgspec

from everturn.model import (
    ACTIVE,
    HistoryPosition,
    Json,
    Message,
    ResumePending,
    SessionEntry,
    SessionSource,
    State,
    Suspended,
    ToolCall,
    TranscriptPart,
)
from everturn.store.interface import Op, Row, Statement, sql
from everturn.turns.rows.turn_values import StartedTurn

COLUMNS = (
    "key, session_id, state, reason, marked_at, unclean_ends, tail, tail_key, tail_at, previous_session_id,"
    " reset_reason, reset_had_activity, expired, origin, created_at, active_at, fence, holder, turn, seq, event_seq, turns, waiting, rolled_back, model"
)
LOCK_ENTRY = f"SELECT {COLUMNS} FROM entry WHERE key=$1/*lock*/"
MAKE_ENTRY = (
    "INSERT INTO entry (key, origin, created_at, active_at) VALUES ($1, $2, $3, $3) ON CONFLICT (key) DO NOTHING/*did*/"
)

_read_source = msgspec.json.Decoder(SessionSource).decode
_read_turns = msgspec.json.Decoder(tuple[int, ...]).decode
write_source = msgspec.json.Encoder().encode


def source_of(text: object) -> SessionSource | None:
    """A stored source; None when the text is missing or damaged."""
    if not isinstance(text, str):
        return None
    try:
        return _read_source(text)
    except msgspec.MsgspecError:
        return None


def _turns_of(text: object) -> tuple[int, ...]:
    try:
        return _read_turns(text) if isinstance(text, str) else ()
    except msgspec.MsgspecError:
        return ()


def _number(value: object) -> float | None:
    if type(value) is not float:
        return float(value) if isinstance(value, int) else None
    return value if math.isfinite(value) else None


def state_of(name: object, reason: object, marked_at: object) -> State:
    """One state value from three columns; an unknown reason is kept, a damaged time only loses itself."""
    why = reason if isinstance(reason, str) and reason else None
    if name == "suspended":
        return Suspended(why or "stuck", _number(marked_at))
    if name == "resume_pending":
        return ResumePending(why or "restart_timeout", _number(marked_at))
    return ACTIVE


def entry_of(row: Row) -> SessionEntry:
    """The entry in a row; what is damaged falls back to its default and harms no other row."""
    return SessionEntry(
        key=row[0],
        session_id=row[1],
        state=ACTIVE if row[2] == "active" else state_of(row[2], row[3], row[4]),
        unclean_ends=row[5],
        tail=bool(row[6]),
        tail_key=row[7],
        tail_at=row[8],
        previous_session_id=row[9],
        auto_reset_reason=row[10],
        reset_had_activity=bool(row[11]),
        expired=row[12],
        origin=source_of(row[13]),
        created_at=_number(row[14]) or 0.0,
        active_at=_number(row[15]) or 0.0,
        fence=row[16],
        holder=row[17],
        turn=row[18],
        seq=row[19],
        event_seq=row[20],
        turns=row[21],
        waiting=row[22],
        rolled_back=_turns_of(row[23]) if row[23] else (),
        model=row[24],
    )


def lock_entry(key: str) -> Op[SessionEntry | None]:
    """The key's entry, locked until this operation commits."""
    rows = yield sql(LOCK_ENTRY, key)
    return entry_of(rows[0]) if rows else None


def lock_or_make_entry(key: str, source: str, at: float) -> Op[SessionEntry]:
    """The key's entry, locked; a new key gets an entry without a session."""
    entry = yield from lock_entry(key)
    if entry is not None:
        return entry
    made = yield sql(MAKE_ENTRY, key, source, at)
    if made:
        return SessionEntry(key=key, session_id=None, origin=source_of(source), created_at=at, active_at=at)
    return cast("SessionEntry", (yield from lock_entry(key)))


def find_entry(key: str) -> Op[SessionEntry | None]:
    """The key's entry, read without a lock."""
    rows = yield sql(f"SELECT {COLUMNS} FROM entry WHERE key=$1", key)
    return entry_of(rows[0]) if rows else None


def list_entries(after: str, limit: int) -> Op[list[Json]]:
    """The current session of each key, in order of the keys, as JSON."""
    rows = yield sql(
        f"SELECT {COLUMNS} FROM entry WHERE key>$1 AND session_id IS NOT NULL ORDER BY key LIMIT $2", after, limit
    )
    entries = [entry_of(row) for row in rows]
    ended = yield from _previous_ends([entry.previous_session_id for entry in entries if entry.previous_session_id])
    return [entry_json(entry, ended.get(entry.previous_session_id or "")) for entry in entries]


def _previous_ends(sessions: list[str]) -> Op[dict[str, str]]:
    ends: dict[str, str] = {}
    for session_id in sessions:
        rows = yield sql("SELECT end_reason FROM session WHERE session_id=$1", session_id)
        if rows and rows[0][0]:
            ends[session_id] = rows[0][0]
    return ends


def entry_json(entry: SessionEntry, previous_end: str | None) -> Json:
    """An entry as `everturn sessions --json` prints it."""
    state, reason, marked_at = state_columns(entry.state)
    return {
        "key": entry.key,
        "session_id": entry.session_id,
        "state": state,
        "reason": reason,
        "marked_at": marked_at,
        "unclean_ends": entry.unclean_ends,
        "auto_reset_reason": entry.auto_reset_reason,
        "previous_session_id": entry.previous_session_id,
        "end_reason": entry.expired or previous_end,
        "expired": entry.expired,
        "turn": str(entry.turn) if entry.turn else None,
        "running": entry.holder is not None,
        "messages": entry.seq,
        "turns": entry.turns,
        "queued": entry.waiting,
        "created_at": entry.created_at,
        "active_at": entry.active_at,
    }


def state_columns(state: State) -> tuple[str, str | None, float | None]:
    """The three columns one state value is stored in."""
    match state:
        case ResumePending(reason, marked_at):
            return "resume_pending", reason, marked_at
        case Suspended(reason, marked_at):
            return "suspended", reason, marked_at
        case _:
            return "active", None, None


# Transcript rows: storing and reading them.


_encode = msgspec.json.Encoder().encode
_decode_calls = msgspec.json.Decoder(tuple[ToolCall, ...]).decode
MESSAGE_COLUMNS = "role, content, seq, calls, call_id, unknown, extra, author, turn, at, outcome"
ADD_MESSAGE = (
    "INSERT INTO message (session_id, seq, role, content, calls, call_id, unknown, extra, author, turn, attempt, at, outcome)"
    " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13) ON CONFLICT (session_id, seq) DO NOTHING"
)
ADD_AND_TELL = f"{ADD_MESSAGE}/*did*/"
# Rows that somebody may know were hidden, or have another text: what agents keep of them is no longer true.
REVISED = "UPDATE session SET revision=revision+1 WHERE session_id=$1"
ALL_ROWS = 1_000_000  # of a session: a window that moves would change the beginning of every request
TAIL_ROWS = 64
# A compaction inside the turn leaves its rows in the parent: go up as long as there are some.
CALLS_OF_TURN = (
    "WITH RECURSIVE place(session_id) AS (SELECT session_id FROM session WHERE session_id=$1"
    " UNION SELECT s.parent FROM place p JOIN session s ON s.session_id=p.session_id"
    " JOIN message m ON m.session_id=s.parent AND m.turn=$2)"
    " SELECT m.calls FROM place p JOIN message m ON m.session_id=p.session_id"
    " WHERE m.turn=$2 AND m.calls IS NOT NULL"
)


def message_of(row: Row) -> Message:
    """A transcript row as the agent sees it."""
    role, content, seq, calls, call_id, unknown, extra, author, turn, at, outcome = row
    return Message(
        role=role,
        content=content,
        seq=seq,
        calls=calls_of(calls) if calls else (),
        call_id=call_id,
        unknown=bool(unknown),
        extra=extra,
        author=author,
        turn=turn,
        at=at,
        outcome=outcome,
    )


def insert_message(begun: StartedTurn, message: Message, *, tell: bool = False) -> Statement:
    """The statement that stores a transcript row, once; with `tell` it returns a row if that was new."""
    return sql(
        ADD_AND_TELL if tell else ADD_MESSAGE,
        begun.session_id,
        message.seq,
        message.role,
        message.content,
        write_calls(message.calls) if message.calls else None,
        message.call_id,
        int(message.unknown),
        message.extra,
        message.author,
        begun.turn,
        begun.attempt,
        message.at,
        message.outcome,
    )


def write_calls(calls: tuple[ToolCall, ...]) -> str | None:
    """Tool calls as JSON for the column `calls`; None when there are none."""
    return _encode(calls).decode() if calls else None


def calls_of(text: str) -> tuple[ToolCall, ...]:
    """The tool calls in a stored column `calls`."""
    try:
        return _decode_calls(text)
    except msgspec.MsgspecError:
        return ()  # damaged: the rest of the transcript is still worth reading


def calls_of_turn(session_id: str, turn: int) -> Op[dict[str, ToolCall]]:
    """All tool calls of a turn by id, through all sessions that compactions moved it to."""
    rows = yield sql(CALLS_OF_TURN, session_id, turn)
    return {call.id: call for row in rows for call in calls_of(row[0])}


def open_tail(session_id: str) -> Op[list[Message]]:
    """The newest rows up to the last that is not the user's: unanswered messages do not hide an open tool result."""
    rows = yield from last_messages(session_id, TAIL_ROWS)
    while rows and rows[-1].role == "user":
        rows.pop()
    return rows


def transcript(session_id: str, after: int, limit: int) -> Op[list[Message]]:
    """The visible messages of a session, oldest first."""
    rows = yield sql(
        f"SELECT {MESSAGE_COLUMNS} FROM message WHERE session_id=$1 AND seq>$2 AND hidden=0 ORDER BY seq LIMIT $3",
        session_id,
        after,
        limit,
    )
    return [message_of(row) for row in rows]


def history_after(known: HistoryPosition) -> Op[TranscriptPart]:
    """The visible rows of a session behind a position; all of them where that is of an older revision."""
    rows = yield sql("SELECT revision, compact_wanted FROM session WHERE session_id=$1", known.session_id)
    return (yield from rows_of_revision(known, *(rows[0] if rows else (0, 0))))


def rows_of_revision(known: HistoryPosition, revision: int, compact_wanted: int) -> Op[TranscriptPart]:
    """The same, where the session's row was read by the same operation."""
    after = known.seq if revision == known.revision else 0
    newer = yield from transcript(known.session_id, after, ALL_ROWS)
    position = HistoryPosition(known.session_id, newer[-1].seq if newer else after, revision)
    return TranscriptPart(rows=newer, position=position, whole=after == 0, compaction_wanted=bool(compact_wanted))


def last_messages(session_id: str, limit: int) -> Op[list[Message]]:
    """The newest rows of a transcript, oldest first; what was undone is left out."""
    rows = yield sql(
        f"SELECT {MESSAGE_COLUMNS} FROM message WHERE session_id=$1 AND hidden=0 ORDER BY seq DESC LIMIT $2",
        session_id,
        limit,
    )
    return [message_of(row) for row in reversed(rows)]
