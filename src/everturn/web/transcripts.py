"""What was said in a chat's session, as JSON."""

from __future__ import annotations

import msgspec
from starlette.types import Scope, Send

from everturn.model import Message
from everturn.store.interface import Store
from everturn.web.answers import Reply, answer, encode, refusal
from everturn.web.looking import said
from everturn.web.queries import query_of, whole

MOST_MESSAGES = 10_000


class Call(msgspec.Struct, frozen=True):
    """A tool call as programs see it."""

    id: str
    name: str
    arguments: str


class Line(msgspec.Struct, frozen=True):
    """A message as programs see it."""

    role: str
    content: str
    tool_calls: list[Call]
    tool_call_id: str | None
    at: float
    outcome: str | None  # "stopped": an answer that was cut off; "failed", "skipped": a tool call; else null


class Page(msgspec.Struct, frozen=True):
    """A transcript or a part of it; `next` is the `after` of the following part.

    `parent` is the session that was summed up into this one.
    """

    session_id: str | None
    messages: list[Line]
    next: int | None
    parent: str | None


class Transcripts:
    """`GET /api/chats/{chat}/transcript`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def __call__(self, key: str, scope: Scope, send: Send) -> None:
        """The current session's messages, or those of `?session=`."""
        query = query_of(scope)
        after, limit = whole(query, "after", 0), whole(query, "limit", MOST_MESSAGES, MOST_MESSAGES)
        found = await self._store.read(said, key, query.get("session"), after, limit)
        if found is None:
            await answer(send, refusal(404, "this chat has no such session; leave `session` out for the current one"))
            return
        rows = found.messages
        following = rows[-1].seq if rows and len(rows) == limit else None
        page = Page(found.session_id, [_line(row) for row in rows], following, found.parent)
        await answer(send, Reply(200, encode(page)))


def _line(row: Message) -> Line:
    calls = [Call(call.id, call.name, call.arguments) for call in row.calls]
    return Line(row.role, row.content, calls, row.call_id, row.at, row.outcome)
