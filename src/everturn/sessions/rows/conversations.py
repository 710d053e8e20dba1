"""Rows of conversations as people see them: titles, the list, the sessions before this one, and the search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from everturn.model import Event, Json, Message, SessionEntry
from everturn.people.rules.access import clean_text
from everturn.sessions.rows.entries import MESSAGE_COLUMNS, find_entry, message_of, state_columns
from everturn.store.interface import Op, Row, sql

EVENTS = 300
FOUND_AT_MOST = 50
EXCERPT = 160
TITLE_CHARS = 80
LISTED = (
    "SELECT c.chat, c.key, c.made_at, e.active_at, e.state, e.holder, e.turn, e.waiting, s.title, s.first_text, t.state"
    " FROM conversation c JOIN entry e ON e.key=c.key LEFT JOIN session s ON s.session_id=e.session_id"
    " LEFT JOIN turn t ON t.id=e.turn"
)


class ConversationView(msgspec.Struct, frozen=True, kw_only=True):
    """What the page needs to show a conversation and to follow its events after `event`."""

    entry: SessionEntry | None
    event: int
    title: str | None = None
    rows: list[Message] = []
    earlier: TranscriptPosition | None = None  # where to read on backwards
    events: list[Event] = []
    waiting: list[str] = []  # the stored ids of messages that no turn has taken yet
    turn: Json | None = None
    approvals: list[Json] = []


def clean_title(text: str) -> str | None:
    """A title as it is kept: one short line; None when nothing is left of it."""
    return clean_text(text, TITLE_CHARS) or None


def title_of(session_id: str | None) -> Op[str | None]:
    """The title of a session, empty if it has none; None when there is no such session."""
    rows = yield sql("SELECT title FROM session WHERE session_id=$1", session_id)
    return (rows[0][0] or "") if rows else None


def set_title(session_id: str, title: str) -> Op[None]:
    """Give a session a title."""
    yield sql("UPDATE session SET title=$2 WHERE session_id=$1", session_id, title)


def add_conversation(key: str, chat: str, at: float) -> Op[None]:
    """Store a chat of the page, before its first message is accepted."""
    yield sql(
        "INSERT INTO conversation (key, chat, made_at) VALUES ($1, $2, $3) ON CONFLICT (key) DO NOTHING", key, chat, at
    )


def list_conversations(limit: int) -> Op[list[Json]]:
    """The conversations in which something was said, the last used one first."""
    rows = yield sql(f"{LISTED} ORDER BY e.active_at DESC LIMIT $1", limit)
    return [_listed(row) for row in rows]


def _listed(row: Row) -> Json:
    chat, key, made_at, active_at, state, holder, turn, waiting, title, first_text, turn_state = row
    if turn is not None and state != "suspended":
        state = (
            "working"
            if holder is not None
            else "awaiting_approval"
            if turn_state == "awaiting_approval"
            else "interrupted"
        )
    return {
        "chat": chat, "key": key, "made_at": made_at, "active_at": active_at, "state": state, "queued": waiting,
        "title": title or first_text or "", "named": bool(title),
    }  # fmt: skip


def search_conversations(query: str, limit: int) -> Op[list[Json]]:
    """The conversations whose title or visible messages contain the query, the last used first, each with an excerpt."""
    pattern = "%" + query.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "%"
    rows = yield sql(
        f"{LISTED} WHERE lower(coalesce(s.title, '')) LIKE lower($1) ESCAPE '\\'"
        " OR EXISTS (SELECT 1 FROM session o JOIN message m ON m.session_id=o.session_id"
        "  WHERE o.key=c.key AND m.hidden=0 AND m.role IN ('user', 'assistant')"
        "  AND (lower(m.content) LIKE lower($1) ESCAPE '\\' OR m.content LIKE $1 ESCAPE '\\'))"
        " ORDER BY e.active_at DESC LIMIT $2",
        pattern,
        min(limit, FOUND_AT_MOST),
    )
    found = []
    for row in rows:
        found.append({**_listed(row), "where": (yield from _where(row[1], query, pattern))})  # noqa: PERF401  cannot yield
    return found


def _where(key: str, query: str, pattern: str) -> Op[str]:
    """The newest match, with the text around it."""
    rows = yield sql(
        "SELECT m.content FROM session o JOIN message m ON m.session_id=o.session_id WHERE o.key=$1 AND m.hidden=0"
        " AND m.role IN ('user', 'assistant') AND (lower(m.content) LIKE lower($2) ESCAPE '\\'"
        " OR m.content LIKE $2 ESCAPE '\\') ORDER BY m.at DESC LIMIT 1",
        key,
        pattern,
    )
    text = " ".join(rows[0][0].split()) if rows else ""
    place = max(0, text.lower().find(query.lower()) - EXCERPT // 3)
    return ("…" if place else "") + text[place : place + EXCERPT]


def show_earlier(key: str, session_id: str, before: int) -> Op[EarlierRows | None]:
    """The rows before a position in the key's conversation; None when that position is in another one."""
    entry = yield from find_entry(key)
    return (yield from earlier_rows(entry.session_id if entry else None, session_id, before))


def show_conversation(key: str) -> Op[ConversationView]:
    """The current view of a conversation. Its event number is read first: events meanwhile are repeated, not missed."""
    entry = yield from find_entry(key)
    if entry is None:
        return ConversationView(entry=None, event=0)
    newest = yield from rows_before(entry.session_id, None)
    title, since = None, 0.0
    about = yield sql("SELECT title, first_text, started_at FROM session WHERE session_id=$1", entry.session_id)
    if about:
        title, since = about[0][0] or about[0][1], about[0][2]
    return ConversationView(
        entry=entry,
        event=entry.event_seq,
        title=title,
        rows=newest.rows,
        earlier=newest.place,
        events=(yield from _recent_events(key, since)),
        waiting=(yield from _waiting(key)),
        turn=(yield from _open_turn(entry.turn)),
        approvals=(yield from _requests(entry.turn)),
    )


def messages_after(key: str, after: int) -> Op[tuple[str | None, list[Message]]]:
    """The key's session, which may be another one by now, and the rows added to its transcript."""
    entry = yield from find_entry(key)
    rows = yield sql(
        f"SELECT {MESSAGE_COLUMNS} FROM message WHERE session_id=$1 AND seq>$2 AND hidden=0 ORDER BY seq LIMIT $3",
        entry.session_id if entry else None,
        after,
        ROWS,
    )
    return (entry.session_id if entry else None), [message_of(row) for row in rows]


def _recent_events(key: str, since: float) -> Op[list[Event]]:
    rows = yield sql("SELECT seq, kind, data, at FROM event WHERE key=$1 ORDER BY seq DESC LIMIT $2", key, EVENTS)
    return [Event(*row) for row in reversed(rows) if row[3] >= since]


def _waiting(key: str) -> Op[list[str]]:
    rows = yield sql("SELECT ext_id FROM inbox WHERE key=$1 AND ended_at IS NULL ORDER BY place", key)
    return [row[0] for row in rows]


def _open_turn(turn: int | None) -> Op[Json | None]:
    if turn is None:
        return None
    rows = yield sql("SELECT id, state, attempt, started_at FROM turn WHERE id=$1", turn)
    if not rows:
        return None
    number, state, attempt, started_at = rows[0]
    return {"turn": str(number), "state": state, "attempt": attempt, "at": started_at}


def _requests(turn: int | None) -> Op[list[Json]]:
    if turn is None:
        return []
    rows = yield sql(
        "SELECT id, tool, request, asked_at, expires_at FROM approval WHERE turn=$1 AND answered_at IS NULL ORDER BY id",
        turn,
    )
    names = ("id", "tool", "request", "at", "expires_at")
    return [{**dict(zip(names, row, strict=True)), "id": str(row[0]), "turn": str(turn)} for row in rows]


def state_name(entry: SessionEntry | None) -> str:
    """active, resume_pending or suspended."""
    return state_columns(entry.state)[0] if entry else "active"


# Pages of transcript rows backwards: through a session, then through the sessions that were compacted into it.


ROWS = 200
NEWEST = 2**53  # a number that every reader of JSON can hold
LONGEST = 1_000  # generations
COPIED_AT_MOST = 1_000  # rows that a compaction takes over; its tail is far shorter


class TranscriptPosition(msgspec.Struct, frozen=True):
    """Where the next page begins: in this session, before this row. `depth` counts the compactions since."""

    session_id: str
    before: int
    depth: int


class EarlierRows(msgspec.Struct, frozen=True):
    """A page of rows in order, `depth` compactions ago, and the position before them; None at the beginning."""

    rows: list[Message]
    place: TranscriptPosition | None
    depth: int


def rows_before(
    session_id: str | None, before: int | None, child: str | None = None, depth: int = 0
) -> Op[EarlierRows]:
    """Return the newest rows before a position, without those that a compaction copied into `child`."""
    rows = yield sql(
        f"SELECT {MESSAGE_COLUMNS} FROM message WHERE session_id=$1 AND hidden=0 AND seq<$2 ORDER BY seq DESC LIMIT $3",
        session_id,
        NEWEST if before is None else before,
        ROWS + 1,
    )
    found = [message_of(row) for row in reversed(rows)]
    more, found = len(found) > ROWS, found[-ROWS:]
    place = (
        TranscriptPosition(session_id, found[0].seq, depth)
        if more and session_id
        else (yield from _before(session_id, depth))
    )
    if child is not None:
        taken = yield from _taken_over(child)
        found = [row for row in found if (row.role, row.at, row.turn, row.call_id, row.content) not in taken]
    return EarlierRows(found, place, depth)


def earlier_rows(current: str | None, session_id: str, before: int) -> Op[EarlierRows | None]:
    """Return the rows before a position in the current session or one compacted into it; None when it is neither."""
    child, depth, here = None, 0, current
    while here is not None and here != session_id and depth < LONGEST:
        child, here, depth = here, (yield from parent_of(here)), depth + 1
    if here != session_id:
        return None
    return (yield from rows_before(session_id, before, child, depth))


def parent_of(session_id: str | None) -> Op[str | None]:
    """Return the session that was compacted into this one. One that was left by a reset is another conversation."""
    rows = yield sql(
        "SELECT p.session_id FROM session s JOIN session p ON p.session_id=s.parent AND p.end_reason='compaction'"
        " WHERE s.session_id=$1 AND EXISTS (SELECT 1 FROM message m WHERE m.session_id=$1 AND m.seq=1 AND m.role='summary')",
        session_id,
    )
    return rows[0][0] if rows else None


def _before(session_id: str | None, depth: int) -> Op[TranscriptPosition | None]:
    parent = yield from parent_of(session_id)
    return TranscriptPosition(parent, NEWEST, depth + 1) if parent is not None else None


def _taken_over(child: str) -> Op[set[Row]]:
    """Return the rows that a compaction copied, hidden ones included: what was undone later stays undone."""
    rows = yield sql(
        "SELECT role, at, turn, call_id, content FROM message WHERE session_id=$1 AND seq>1 AND seq<=$2",
        child,
        COPIED_AT_MOST,
    )
    return {tuple(row) for row in rows}


# Rows for the search over past conversations: the sessions of one key, rows to index, and rows that were found.


SESSIONS = 500  # the newest of a key


def sessions_of_key(key: str) -> Op[list[str]]:
    """The sessions that belong to a key now, the newest first."""
    rows = yield sql("SELECT session_id FROM session WHERE key=$1 ORDER BY id DESC LIMIT $2", key, SESSIONS)
    return [str(row[0]) for row in rows]


def rows_after(places: Mapping[str, int], turn: int, limit: int) -> Op[list[tuple[str, int, str, str]]]:
    """Rows of sessions after the given places, a bounded number in all: session, place, role, content.

    Hidden ones are among them: what is hidden today may be shown again. Those of the running turn, the last of their
    session, are left for later: a search must not find its own request.
    """
    found: list[tuple[str, int, str, str]] = []
    for session, seq in places.items():
        if len(found) >= limit:
            break
        rows = yield sql(
            "SELECT session_id, seq, role, content FROM message WHERE session_id=$1 AND seq>$2"
            " AND (turn IS NULL OR turn<>$3) ORDER BY seq LIMIT $4",
            session,
            seq,
            turn,
            limit - len(found),
        )
        found += [(str(row[0]), int(row[1]), str(row[2]), str(row[3])) for row in rows]
    return found


def rows_found(key: str, turn: int, places: Sequence[tuple[str, int]]) -> Op[list[tuple[str, Message]]]:
    """The rows at these places, as far as they belong to the key's conversations, are not hidden and not of this turn."""
    found = []
    for session, seq in places:
        rows = yield sql(
            f"SELECT {MESSAGE_COLUMNS} FROM message WHERE session_id=$1 AND seq=$2 AND hidden=0"
            " AND (turn IS NULL OR turn<>$3) AND EXISTS (SELECT 1 FROM session WHERE session_id=$1 AND key=$4)",
            session,
            seq,
            turn,
            key,
        )
        found += [(session, message_of(row)) for row in rows]
    return found
