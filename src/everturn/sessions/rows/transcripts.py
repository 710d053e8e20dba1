"""Transcript rows: storing and reading them."""

from __future__ import annotations

import msgspec

from everturn.model import Message, ToolCall
from everturn.store.interface import Op, Row, Statement, sql
from everturn.turns.rows.turn_values import StartedTurn

_encode = msgspec.json.Encoder().encode
_decode_calls = msgspec.json.Decoder(tuple[ToolCall, ...]).decode
MESSAGE_COLUMNS = "role, content, seq, calls, call_id, unknown, extra, author, turn, at, outcome"
ADD_MESSAGE = (
    "INSERT INTO message (session_id, seq, role, content, calls, call_id, unknown, extra, author, turn, attempt, at, outcome)"
    " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13) ON CONFLICT (session_id, seq) DO NOTHING"
)
ADD_AND_TELL = f"{ADD_MESSAGE}/*did*/"
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
        write_calls(message.calls),
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


def last_messages(session_id: str, limit: int) -> Op[list[Message]]:
    """The newest rows of a transcript, oldest first; what was undone is left out."""
    rows = yield sql(
        f"SELECT {MESSAGE_COLUMNS} FROM message WHERE session_id=$1 AND hidden=0 ORDER BY seq DESC LIMIT $2",
        session_id,
        limit,
    )
    return [message_of(row) for row in reversed(rows)]
