"""Lists for an operator: turns, conversations, messages and replies, a bounded page at a time. Nothing here changes a row.

A page ends with the place of its last row, from which the next one goes on.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from everturn.inbox.rows.attachments import file_of
from everturn.model import Json, SessionSource
from everturn.operator.rows.past_actions import sent_again
from everturn.operator.rows.suspended import why_session_is_suspended, why_turn_was_suspended
from everturn.operator.rules.operator_texts import step_text
from everturn.outbox.rows.attempts import ATTEMPTS_COUNTED
from everturn.outbox.rows.outbox import READABLE
from everturn.sessions.rows.entries import source_of
from everturn.store.interface import Op, Row, sql
from everturn.turns.rows.spending import USED

LOOKED_AT = 10_000  # of the conversations, the newest so many are put in order of their use, or searched
SEARCHED = 5_000  # of the messages, so many are searched
MESSAGE_CHARS = 200
REPLY_CHARS = 300
BEYOND = 2**63 - 1
TURN = (
    "SELECT t.id, t.key, t.session_id, t.state, t.attempt, t.started_at, t.attempt_at, t.ended_at, t.why, t.reason,"
    " t.first_seq, s.title, s.first_text, e.origin, o.source, "
    + ", ".join(f"t.{name}" for name in USED.split(", "))
    + " FROM turn t LEFT JOIN session s ON s.session_id=t.session_id LEFT JOIN entry e ON e.key=t.key"
    " LEFT JOIN outbox o ON o.id=t.id "
)
ENTRY = (
    "SELECT e.id, e.key, e.session_id, e.state, e.reason, e.marked_at, e.unclean_ends, e.origin, e.active_at,"
    " e.created_at, e.turns, e.waiting, e.turn, e.holder, s.title, s.first_text,"
    " (SELECT t.state FROM turn t WHERE t.id=e.turn)"
)
SESSION_OF_ENTRY = " LEFT JOIN session s ON s.session_id=e.session_id"
NEWEST = f" FROM (SELECT * FROM entry ORDER BY id DESC LIMIT {LOOKED_AT}) AS e"
AFTER = (
    " AND (coalesce({0}, 0)<$1 OR (coalesce({0}, 0)=$1 AND e.id<$2)) ORDER BY coalesce({0}, 0) DESC, e.id DESC LIMIT $3"
)
HOLDS = (
    " AND (lower(e.key) LIKE $4 ESCAPE '\\' OR lower(coalesce(s.title, '')) LIKE $4 ESCAPE '\\'"
    " OR lower(coalesce(s.first_text, '')) LIKE $4 ESCAPE '\\' OR lower(coalesce(e.origin, '')) LIKE $4 ESCAPE '\\')"
)
INBOX = (
    "SELECT id, ext_id, platform, key, source, kind, body, state, why, accepted_at, ended_at, turn FROM inbox WHERE "
)
OUTBOX = (
    f"SELECT id, key, platform, source, kind, {READABLE}, state, attempts, due_at, valid_until, error, created_at, ended_at,"
    f" parts, turn, file, {ATTEMPTS_COUNTED} FROM outbox WHERE "
)
WHICH_INBOX = {"queued": "ended_at IS NULL AND state='queued'", "dead": "dead_at IS NOT NULL"}
# A conversation that only keeps a note for its next message is active: there is nothing to resume.
WHICH_ENTRY = {
    "active": "(e.state='active' OR (e.state='resume_pending' AND e.turn IS NULL))",
    "resume_pending": "e.state='resume_pending' AND e.state<>'active' AND e.turn IS NOT NULL",
    "suspended": "e.state='suspended' AND e.state<>'active'",  # written out: the index of what is marked is found by it
    "all": "true",
}
WHICH_OUTBOX = {
    "pending": "ended_at IS NULL AND state IN ('pending','sending','open')",
    "unknown": "ended_at IS NULL AND state='unknown'",
    "dead": "dead_at IS NOT NULL",
}
_parts = msgspec.json.Decoder(list[str]).decode


class ConversationCursor(NamedTuple):
    """Where a page of conversations begins: behind this time and number."""

    at: float = 1e18
    number: int = BEYOND


# -- turns -------------------------------------------------------------------------------------------------------------


def open_turns(after: int, limit: int) -> Op[list[Json]]:
    """The turns that are running, awaiting approval or cut off, the oldest first."""
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
    title, first_text, origin, target, *used = row[11:]
    steps, step, step_at = yield from _steps(session_id, number, first_seq, state, attempt_at)
    return {
        "turn": str(number), "key": key, "title": title or first_text or "", **_where(target or origin),
        "session_id": session_id, "state": state, "attempt": attempt, "started_at": started_at,
        "attempt_at": attempt_at, "ended_at": ended_at, "why": why or reason, "steps": steps, "step": step,
        "step_at": step_at, **dict(zip(USED.split(", "), used, strict=True)),
    }  # fmt: skip


def _steps(session_id: str, turn: int, first_seq: int, state: str, attempt_at: float) -> Op[tuple[int, str, float]]:
    """How many responses a turn has, what it does now as text, and since when."""
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
    return counted[0][0], step_text(state, name, effect), at


# -- conversations -----------------------------------------------------------------------------------------------------


def conversations(
    state: str, query: str, place: ConversationCursor, limit: int
) -> Op[list[tuple[ConversationCursor, Json]]]:
    """Conversations of a state (or `all`) that match the query, the last marked or last used first; each with its cursor."""
    pattern = "%" + query.lower().replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "%"
    marked = state in {"suspended", "resume_pending"}
    order = AFTER.format("e.marked_at" if marked else "e.active_at")
    rows = yield sql(
        ENTRY + (" FROM entry AS e" if marked else NEWEST) + SESSION_OF_ENTRY
        + f" WHERE {WHICH_ENTRY[state]} AND e.session_id IS NOT NULL" + (HOLDS if query else "") + order,
        *place,
        limit,
        *([pattern] if query else []),
    )  # fmt: skip
    found = []
    for row in rows:
        place = ConversationCursor((row[5] if marked else row[8]) or 0.0, row[0])
        found.append((place, (yield from _conversation(row))))
    return found


def _conversation(row: Row) -> Op[Json]:
    _, key, session_id, state, reason, marked_at, unclean_ends, origin, active_at, created_at, turns, waiting = row[:12]
    turn, holder, title, first_text, doing = row[12:]
    note_waits = state == "resume_pending" and turn is None
    why = None
    if state == "suspended":
        why = yield from why_session_is_suspended(session_id, reason, unclean_ends)
    return {
        "key": key, "session_id": session_id, "title": title or first_text or "",
        "state": "active" if note_waits else state, "note_waits": note_waits, "reason": reason, "why": why,
        "resumable": holder is None and doing == "interrupted",
        "marked_at": marked_at, "unclean_ends": unclean_ends, **_where(origin), "active_at": active_at,
        "created_at": created_at, "turns": turns, "queued": waiting, "turn": str(turn) if turn else None,
        "running": str(turn) if turn and holder is not None else None,
    }  # fmt: skip


# -- messages and replies ----------------------------------------------------------------------------------------------


def messages(state: str, after: int, limit: int, query: str = "") -> Op[list[Json]]:
    """Queued messages, or dead letters that nobody dropped, the oldest first; or all, the newest first. With a query: those
    whose person, chat, id or first characters contain it, among the first `SEARCHED` of the list.
    """
    if state == "all":
        text, place = INBOX + "id<$1 ORDER BY id DESC LIMIT $2", after or BEYOND
    else:
        text, place = f"{INBOX}{WHICH_INBOX[state]} AND id>$1 ORDER BY +id LIMIT $2", after
    rows = yield sql(text, place, SEARCHED if query else limit)
    found = []
    for row in [row for row in rows if not query or _holds(row, query.casefold())][:limit]:
        found.append((yield from _message(row)))  # noqa: PERF401  a comprehension cannot yield
    return found


def _holds(row: Row, query: str) -> bool:
    where = _where(row[4])
    return any(
        query in str(text or "").casefold() for text in (where["sender"], where["chat"], row[1], row[6][:MESSAGE_CHARS])
    )


def _message(row: Row) -> Op[Json]:
    number, ext_id, platform, key, source, kind, body, state, why, accepted_at, ended_at, turn = row
    warning = None
    if turn and why == "suspended":
        why, warning = yield from why_turn_was_suspended(turn, body)
    return {
        "id": str(number), "ext_id": ext_id, "key": key, **_where(source), "platform": platform, "message": ext_id,
        "kind": kind, "text": body[:MESSAGE_CHARS], "state": state, "why": why, "warning": warning,
        "accepted_at": accepted_at, "ended_at": ended_at, "turn": str(turn) if turn else None,
    }  # fmt: skip


def replies(state: str, after: int, limit: int) -> Op[list[Json]]:
    """Replies that are pending, of unknown delivery, or dead letters that nobody dropped; the oldest first."""
    rows = yield sql(f"{OUTBOX}{WHICH_OUTBOX[state]} AND id>$1 ORDER BY +id LIMIT $2", after, limit)
    again = (yield from sent_again(min(row[11] for row in rows))) if rows else {}
    return [_reply(row, again.get(str(row[0]), (None, None))) for row in rows]


def _reply(row: Row, again: tuple[float | None, str | None]) -> Json:
    number, key, platform, source, kind, text, state, attempts, due_at, valid_until, error = row[:11]
    created_at, ended_at, parts, turn, file, tries, tried_at, dead_tries = row[11:]
    sent = file_of(file)
    text = f"[{sent.name}] {text}".strip() if sent else text
    return {
        "reply": str(number), "key": key, **_where(source), "platform": platform, "kind": kind,
        "text": text[:REPLY_CHARS], "state": state, "attempts": attempts, "due_at": due_at, "valid_until": valid_until,
        "error": error, "created_at": created_at, "ended_at": ended_at, "parts_out": _count(parts),
        "tries": max(attempts, tries + (state == "sending")), "tried_at": tried_at, "dead_tries": dead_tries,
        "sent_again_at": again[0], "sent_again_by": again[1], "turn": str(turn) if turn else None,
    }  # fmt: skip


def _count(parts: str) -> int:
    """How many parts are out; a damaged list is shown as none, and does not hide the others."""
    try:
        return len(_parts(parts))
    except msgspec.MsgspecError:
        return 0


def _where(stored: object) -> Json:
    """The platform, chat and author of a source as a person would name them, and the message id for `explain`."""
    source = source_of(stored) or SessionSource(platform="")
    return {
        "platform": source.platform, "chat": source.chat_name or source.chat_id,
        "sender": source.user_name or source.user_id, "message": source.message_id,
    }  # fmt: skip
