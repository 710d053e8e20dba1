"""Read operations of the HTTP endpoints, composed of those of the store."""

from __future__ import annotations

from dataclasses import dataclass

from everturn.model import Json, Message
from everturn.operator.rows.reading import explain, transcript
from everturn.sessions.rows.conversations import parent_of
from everturn.sessions.rows.entries import find_entry
from everturn.store.interface import Op, sql

SESSION_OF_KEY = "SELECT 1 FROM session WHERE session_id=$1 AND key=$2"


@dataclass(frozen=True, slots=True)
class ChatTranscript:
    """A session of a chat and its messages; no session before the first message."""

    session_id: str | None
    messages: list[Message]
    parent: str | None = None  # the session that was compacted into this one


def chat_transcript(key: str, session_id: str | None, after: int, limit: int) -> Op[ChatTranscript | None]:
    """Return the transcript of the key's session, or of another session of the key; None if the key has no such session."""
    if session_id is not None:
        if not (yield sql(SESSION_OF_KEY, session_id, key)):
            return None
    else:
        entry = yield from find_entry(key)
        session_id = entry.session_id if entry else None
    if session_id is None:
        return ChatTranscript(None, [])
    return ChatTranscript(
        session_id, (yield from transcript(session_id, after, limit)), (yield from parent_of(session_id))
    )


def timelines(names: list[str]) -> Op[list[Json]]:
    """Return the timelines of the messages with any of these ids."""
    found: dict[object, Json] = {}
    for name in names:
        for message in (yield from explain(name)):
            found.setdefault((message["platform"], message["account"], message["id"]), message)
    return list(found.values())
