"""The transcript of a chat's session, as JSON."""

from __future__ import annotations

import msgspec
from starlette.types import Scope, Send

from everturn.model import Message
from everturn.store.interface import Store
from everturn.web.chat.looking import chat_transcript
from everturn.web.wire.answers import CompleteResponse, answer, encode, refusal
from everturn.web.wire.queries import query_of, whole

MOST_MESSAGES = 10_000


class TranscriptCall(msgspec.Struct, frozen=True):
    """A tool call of a transcript."""

    id: str
    name: str
    arguments: str


class TranscriptRow(msgspec.Struct, frozen=True):
    """A message of a transcript."""

    role: str
    content: str
    tool_calls: list[TranscriptCall]
    tool_call_id: str | None
    at: float
    outcome: str | None  # "stopped": an answer that was cut off; "failed", "skipped": a tool call; else null


class TranscriptPage(msgspec.Struct, frozen=True):
    """A transcript or a part of it; `next` is the `after` of the following part.

    `parent` is the session that was compacted into this one.
    """

    session_id: str | None
    messages: list[TranscriptRow]
    next: int | None
    parent: str | None


class Transcripts:
    """`GET /api/chats/{chat}/transcript`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def __call__(self, key: str, scope: Scope, send: Send) -> None:
        """Send the messages of the current session, or of `?session=`."""
        query = query_of(scope)
        after, limit = whole(query, "after", 0), whole(query, "limit", MOST_MESSAGES, MOST_MESSAGES)
        found = await self._store.read(chat_transcript, key, query.get("session"), after, limit)
        if found is None:
            await answer(send, refusal(404, "this chat has no such session; omit `session` for the current one"))
            return
        rows = found.messages
        following = rows[-1].seq if rows and len(rows) == limit else None
        page = TranscriptPage(found.session_id, [_line(row) for row in rows], following, found.parent)
        await answer(send, CompleteResponse(200, encode(page)))


def _line(row: Message) -> TranscriptRow:
    calls = [TranscriptCall(call.id, call.name, call.arguments) for call in row.calls]
    return TranscriptRow(row.role, row.content, calls, row.call_id, row.at, row.outcome)
