"""Rows of what an agent keeps of a session: the frozen prompt, and compaction."""

from __future__ import annotations

import hashlib

import msgspec
from msgspec.structs import replace

from everturn.errors import FenceLost
from everturn.model import Usage
from everturn.sessions.rows.boundaries import end_session
from everturn.sessions.rows.entries import ADD_MESSAGE, last_messages, lock_entry
from everturn.sessions.rules.keys import agent_of
from everturn.sessions.rules.transcript import back_off_s, first_kept
from everturn.store.interface import Op, sql
from everturn.turns.rows.spending import count_call_apart, count_usage
from everturn.turns.rows.turn_values import StartedTurn, fenced
from everturn.turns.rows.turns import NOTHING, add_failure

MORE_ROWS = 256  # how far back a call may stand before its result
COPIED = "role, content, calls, call_id, unknown, extra, author, turn, attempt, at, outcome"
COPY = (
    f"INSERT INTO message (session_id, seq, {COPIED}) SELECT $1, 1 + row_number() OVER (ORDER BY seq), {COPIED}"
    " FROM message WHERE session_id=$2 AND hidden=0 AND (seq>=$3 OR (seq>=$4 AND turn=$5 AND role='user'))"
)
OPEN_CHILD = (
    "INSERT INTO session (session_id, key, parent, started_at, first_text, title, model, frozen)"
    " SELECT $1, key, session_id, $3, first_text, title, model, frozen FROM session WHERE session_id=$2"
)
KEEP_ALLOWANCES = (
    "INSERT INTO allowance (agent, tool, scope, granted_by, at)"
    " SELECT agent, tool, replace(scope, $2, $3), granted_by, at FROM allowance"
    " WHERE agent=$1 AND substr(scope, 1, length($2))=$2 ON CONFLICT (agent, tool, scope) DO NOTHING"
)
URGENT = (
    "SELECT 1 FROM inbox WHERE key=$1 AND ended_at IS NULL AND state='queued'"
    " AND (kind='command' OR busy IN ('interrupt','rollback')) LIMIT 1"
)


class Compaction(msgspec.Struct, frozen=True, kw_only=True):
    """What a compaction needs; the child's id is made by the caller."""

    session_id: str
    summary: str
    keep: int
    at: float
    usage: Usage = NOTHING


class MovedTurn(msgspec.Struct, frozen=True, kw_only=True):
    """The turn in its new session, and the last row that is stored there."""

    begun: StartedTurn
    last: int


def compact(begun: StartedTurn, move: Compaction) -> Op[MovedTurn]:
    """Move the key and its running turn to a child session: the summary, then the newest rows. The parent is ended."""
    entry = yield from lock_entry(begun.key)
    if entry is None or entry.fence != begun.fence or entry.turn != begun.turn:
        raise FenceLost(f"{begun.key}: the turn {begun.turn} no longer owns its conversation")
    if entry.session_id == move.session_id:
        return (yield from _moved(begun, move))  # this operation ran before
    yield sql(OPEN_CHILD, move.session_id, begun.session_id, move.at)
    yield sql(
        ADD_MESSAGE, move.session_id, 1, "summary", move.summary, None, None, 0, None, None, None, 1, move.at, None
    )
    first = yield from _first_kept(begun.session_id, move.keep)
    yield sql(COPY, move.session_id, begun.session_id, first, begun.first_seq, begun.turn)
    scopes = (f"session:{begun.session_id}:", f"session:{move.session_id}:")
    yield sql(KEEP_ALLOWANCES, agent_of(begun.key), *scopes)
    length = yield sql("SELECT max(seq) FROM message WHERE session_id=$1", begun.session_id)
    yield from end_session(begun.session_id, "compaction", length[0][0] or 0, move.at)
    moved = yield from _moved(begun, move)
    yield from _point_at_child(moved, begun.session_id)
    if move.usage.requests:
        yield from count_usage(moved.begun, move.usage)
    return moved


def _first_kept(session_id: str, keep: int) -> Op[int]:
    """The place of the first row that is kept as it is; beyond the last when none is."""
    rows = yield from last_messages(session_id, keep + MORE_ROWS)
    first = first_kept(rows, keep)
    return rows[first].seq if first < len(rows) else (rows[-1].seq + 1 if rows else 1)


def _moved(begun: StartedTurn, move: Compaction) -> Op[MovedTurn]:
    rows = yield sql(
        "SELECT max(seq), min(CASE WHEN turn=$2 THEN seq END) FROM message WHERE session_id=$1",
        move.session_id,
        begun.turn,
    )
    last, first = rows[0]
    first = first or last + 1
    return MovedTurn(begun=replace(begun, session_id=move.session_id, first_seq=first, seq=first), last=last)


def _point_at_child(moved: MovedTurn, parent: str) -> Op[None]:
    """Point the key and the turn at the child; mark, count of unclean ends and acknowledged tail stay."""
    begun = moved.begun
    yield sql(
        "UPDATE entry SET session_id=$2, previous_session_id=$3, reset_reason=NULL, reset_had_activity=0, seq=$4"
        " WHERE key=$1",
        begun.key,
        begun.session_id,
        parent,
        moved.last,
    )
    yield sql("UPDATE turn SET session_id=$2, first_seq=$3 WHERE id=$1", begun.turn, begun.session_id, begun.first_seq)


def may_compact(begun: StartedTurn, now: float) -> Op[bool]:
    """Whether to compact now: not while a failed compaction backs off or a command or an interrupt is queued."""
    rows = yield sql("SELECT compact_after FROM session WHERE session_id=$1", begun.session_id)
    if not rows or (rows[0][0] is not None and rows[0][0] > now):
        return False
    return not (yield sql(URGENT, begun.key))


def compaction_failed(begun: StartedTurn, number: int, why: str, at: float, usage: Usage = NOTHING) -> Op[None]:
    """Record a failed compaction, under a number that the caller made: the next try waits longer, and a request for one is
    dropped. Run twice it counts once.
    """
    yield from fenced(begun)
    if not (yield from add_failure(begun, number, "compaction", why, 0.0, at)):
        return
    yield from count_call_apart(begun, usage)
    rows = yield sql("SELECT compact_failures FROM session WHERE session_id=$1", begun.session_id)
    failures = rows[0][0] + 1
    yield sql(
        "UPDATE session SET compact_failures=$2, compact_after=$3, compact_wanted=0 WHERE session_id=$1",
        begun.session_id,
        failures,
        at + back_off_s(failures),
    )


def want_compaction(session_id: str) -> Op[bool]:
    """Request a compaction: the next turn compacts before its first model call. False for an ended session."""
    rows = yield sql(
        "UPDATE session SET compact_wanted=1, compact_after=NULL WHERE session_id=$1 AND ended_at IS NULL"
        " RETURNING session_id",
        session_id,
    )
    return bool(rows)


# The frozen system prompt and tool schemas of a session, which keep the provider's cache warm.


def freeze(session_id: str, text: str) -> Op[str]:
    """The session's frozen text: the given one if there was none, else what was frozen first."""
    digest = hashlib.sha256(text.encode()).hexdigest()
    yield sql("INSERT INTO frozen (hash, text) VALUES ($1, $2) ON CONFLICT (hash) DO NOTHING", digest, text)
    yield sql("UPDATE session SET frozen=$2 WHERE session_id=$1 AND frozen IS NULL", session_id, digest)
    return (yield from frozen(session_id)) or text


def frozen(session_id: str) -> Op[str | None]:
    """The session's frozen text; None when nothing was frozen yet."""
    rows = yield sql("SELECT f.text FROM session s JOIN frozen f ON f.hash=s.frozen WHERE s.session_id=$1", session_id)
    return str(rows[0][0]) if rows else None


def thaw(session_id: str) -> Op[None]:
    """Let the next turn freeze anew: the user asked for a reload."""
    yield sql("UPDATE session SET frozen=NULL WHERE session_id=$1", session_id)
