"""Lists for an operator: turns, conversations, messages and replies, a bounded page at a time. Nothing here changes a row.

A page ends with the place of its last row, from which the next one goes on.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from everturn.decide.ops_words import step_words
from everturn.model import Json, SessionSource
from everturn.store.interface import Op, Row, sql
from everturn.store.operations.entries import source_of
from everturn.store.operations.outbox import READABLE
from everturn.store.operations.spending import USED

LOOKED_AT = 10_000  # of the conversations, the newest so many are put in order of their use, or searched
MESSAGE_CHARS = 200
REPLY_CHARS = 300
BEYOND = 2**63 - 1
TURN = (
    "SELECT t.id, t.key, t.session_id, t.state, t.attempt, t.started_at, t.attempt_at, t.ended_at, t.why, t.reason,"
    " t.first_seq, s.title, s.first_words, e.origin, o.source, "
    + ", ".join(f"t.{name}" for name in USED.split(", "))
    + " FROM turn t LEFT JOIN session s ON s.session_id=t.session_id LEFT JOIN entry e ON e.key=t.key"
    " LEFT JOIN outbox o ON o.id=t.id "
)
ENTRY = (
    "SELECT e.id, e.key, e.session_id, e.state, e.reason, e.marked_at, e.unclean_ends, e.origin, e.active_at,"
    " e.created_at, e.turns, e.waiting, e.turn, e.holder, s.title, s.first_words"
)
SESSION_OF_ENTRY = " LEFT JOIN session s ON s.session_id=e.session_id"
NEWEST = f" FROM (SELECT * FROM entry ORDER BY id DESC LIMIT {LOOKED_AT}) AS e"
AFTER = (
    " AND (coalesce({0}, 0)<$1 OR (coalesce({0}, 0)=$1 AND e.id<$2)) ORDER BY coalesce({0}, 0) DESC, e.id DESC LIMIT $3"
)
HOLDS = (
    " AND (lower(e.key) LIKE $4 ESCAPE '\\' OR lower(coalesce(s.title, '')) LIKE $4 ESCAPE '\\'"
    " OR lower(coalesce(s.first_words, '')) LIKE $4 ESCAPE '\\' OR lower(coalesce(e.origin, '')) LIKE $4 ESCAPE '\\')"
)
INBOX = (
    "SELECT id, ext_id, platform, key, source, kind, body, state, why, accepted_at, ended_at, turn FROM inbox WHERE "
)
OUTBOX = (
    f"SELECT id, key, platform, source, kind, {READABLE}, state, attempts, due_at, valid_until, error, created_at, ended_at,"
    " parts, turn FROM outbox WHERE "
)
WHICH_INBOX = {"waiting": "ended_at IS NULL AND state='waiting'", "dead": "dead_at IS NOT NULL"}
WHICH_OUTBOX = {
    "owed": "ended_at IS NULL AND state IN ('owed','sending','open')",
    "doubtful": "ended_at IS NULL AND state='doubtful'",
    "dead": "dead_at IS NOT NULL",
}
_parts = msgspec.json.Decoder(list[str]).decode


class Place(NamedTuple):
    """Where a page of conversations begins: behind this time and number."""

    at: float = 1e18
    number: int = BEYOND


# -- turns -------------------------------------------------------------------------------------------------------------


def open_turns(after: int, limit: int) -> Op[list[Json]]:
    """The turns that run, wait for a person or were cut off, the oldest first."""
    rows = yield sql(TURN + "WHERE t.ended_at IS NULL AND t.id>$1 ORDER BY +t.id LIMIT $2", after, limit)
    return (yield from _turns(rows))


def recent_turns(before: int, limit: int) -> Op[list[Json]]:
    """The turns that have ended, the last begun first."""
    rows = yield sql(
        TURN + "WHERE t.id<$1 AND t.ended_at IS NOT NULL ORDER BY t.id DESC LIMIT $2", before or BEYOND, limit
    )
    return (yield from _turns(rows))


def _turns(rows: list[Row]) -> Op[list[Json]]:
    turns = []
    for row in rows:
        turns.append((yield from _turn(row)))  # noqa: PERF401  a comprehension cannot yield
    return turns


def _turn(row: Row) -> Op[Json]:
    number, key, session_id, state, attempt, started_at, attempt_at, ended_at, why, reason, first_seq = row[:11]
    title, first_words, origin, target, *used = row[11:]
    steps, step, step_at = yield from _steps(session_id, number, first_seq, state, attempt_at)
    return {
        "turn": str(number), "key": key, "title": title or first_words or "", **_where(target or origin),
        "session_id": session_id, "state": state, "attempt": attempt, "started_at": started_at,
        "attempt_at": attempt_at, "ended_at": ended_at, "why": why or reason, "steps": steps, "step": step,
        "step_at": step_at, **dict(zip(USED.split(", "), used, strict=True)),
    }  # fmt: skip


def _steps(session_id: str, turn: int, first_seq: int, state: str, attempt_at: float) -> Op[tuple[int, str, float]]:
    """How many responses a turn has, what it does now in words, and since when."""
    counted = yield sql(
        "SELECT count(*) FROM message WHERE session_id=$1 AND seq>=$2 AND turn=$3 AND role='assistant'",
        session_id,
        first_seq,
        turn,
    )
    effects = yield sql(
        "SELECT name, state, begun_at, done_at FROM effect WHERE turn=$1 ORDER BY begun_at DESC, call_id LIMIT 1", turn
    )
    name, effect, begun_at, done_at = effects[0] if effects else (None, None, None, None)
    last = yield sql(
        "SELECT at FROM message WHERE session_id=$1 AND seq>=$2 AND turn=$3 ORDER BY seq DESC LIMIT 1",
        session_id,
        first_seq,
        turn,
    )
    at = max([attempt_at, *(row[0] for row in last), *(each for each in (begun_at, done_at) if each is not None)])
    return counted[0][0], step_words(state, name, effect), at


# -- conversations -----------------------------------------------------------------------------------------------------


def conversations(state: str, words: str, place: Place, limit: int) -> Op[list[tuple[Place, Json]]]:
    """Those of a state (`all` for every one) that hold the words, the last marked or last used first; each with its place."""
    pattern = "%" + words.lower().replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "%"
    marked = state in {"suspended", "resume_pending"}
    # Written out: the index of what is marked is found by it.
    which = (
        f"e.state='{state}' AND e.state<>'active'" if marked else "e.state='active'" if state == "active" else "true"
    )
    order = AFTER.format("e.marked_at" if marked else "e.active_at")
    rows = yield sql(
        ENTRY + (" FROM entry AS e" if marked else NEWEST) + SESSION_OF_ENTRY
        + f" WHERE {which} AND e.session_id IS NOT NULL" + (HOLDS if words else "") + order,
        *place,
        limit,
        *([pattern] if words else []),
    )  # fmt: skip
    return [(Place((row[5] if marked else row[8]) or 0.0, row[0]), _conversation(row)) for row in rows]


def _conversation(row: Row) -> Json:
    _, key, session_id, state, reason, marked_at, unclean_ends, origin, active_at, created_at, turns, waiting = row[:12]
    turn, holder, title, first_words = row[12:]
    return {
        "key": key, "session_id": session_id, "title": title or first_words or "", "state": state, "reason": reason,
        "marked_at": marked_at, "unclean_ends": unclean_ends, **_where(origin), "active_at": active_at,
        "created_at": created_at, "turns": turns, "waiting": waiting, "turn": str(turn) if turn else None,
        "running": str(turn) if turn and holder is not None else None,
    }  # fmt: skip


# -- messages and replies ----------------------------------------------------------------------------------------------


def messages(state: str, after: int, limit: int) -> Op[list[Json]]:
    """Messages that wait, or dead letters that nobody put away; the oldest first."""
    rows = yield sql(f"{INBOX}{WHICH_INBOX[state]} AND id>$1 ORDER BY +id LIMIT $2", after, limit)
    return [_message(row) for row in rows]


def _message(row: Row) -> Json:
    number, ext_id, platform, key, source, kind, body, state, why, accepted_at, ended_at, turn = row
    return {
        "id": str(number), "ext_id": ext_id, "key": key, **_where(source), "platform": platform, "message": ext_id,
        "kind": kind, "text": body[:MESSAGE_CHARS], "state": state, "why": why, "accepted_at": accepted_at,
        "ended_at": ended_at, "turn": str(turn) if turn else None,
    }  # fmt: skip


def replies(state: str, after: int, limit: int) -> Op[list[Json]]:
    """Replies that are owed, in doubt, or dead letters that nobody put away; the oldest first."""
    rows = yield sql(f"{OUTBOX}{WHICH_OUTBOX[state]} AND id>$1 ORDER BY +id LIMIT $2", after, limit)
    return [_reply(row) for row in rows]


def _reply(row: Row) -> Json:
    number, key, platform, source, kind, text, state, attempts, due_at, valid_until, error = row[:11]
    created_at, ended_at, parts, turn = row[11:]
    return {
        "reply": str(number), "key": key, **_where(source), "platform": platform, "kind": kind,
        "text": text[:REPLY_CHARS], "state": state, "attempts": attempts, "due_at": due_at, "valid_until": valid_until,
        "error": error, "created_at": created_at, "ended_at": ended_at, "parts_out": len(_parts(parts)),
        "turn": str(turn) if turn else None,
    }  # fmt: skip


def _where(stored: object) -> Json:
    """Where something was said, and by whom, as a person would name it; and the id by which it is explained."""
    source = source_of(stored) or SessionSource(platform="")
    return {
        "platform": source.platform, "chat": source.chat_name or source.chat_id,
        "who": source.user_name or source.user_id, "message": source.message_id,
    }  # fmt: skip
