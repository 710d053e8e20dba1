"""Rows for the search over past conversations: the sessions of one key, rows to index, and rows that were found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from everturn.model import Message
from everturn.sessions.rows.transcripts import MESSAGE_COLUMNS, message_of
from everturn.store.interface import Op, sql

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
