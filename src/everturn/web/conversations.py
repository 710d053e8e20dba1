"""The conversations of a person: the list, the transcripts, the search, titles, and what the page asks for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from everturn.clock import Clock
from everturn.model import Json, Message, SessionSource
from everturn.operator.rows.reading import explain
from everturn.sessions.rows.conversations import (
    ConversationView,
    add_conversation,
    list_conversations,
    messages_after,
    parent_of,
    search_conversations,
    show_conversation,
    show_earlier,
    state_name,
)
from everturn.sessions.rows.entries import find_entry, transcript
from everturn.store.interface import Op, Store, sql
from everturn.web.access import Access, access_check
from everturn.web.events import EventStreams, Watched
from everturn.web.messages import Chats, Messages
from everturn.web.wire.requests import (
    NO_STORE,
    BadRequest,
    CompleteResponse,
    answer,
    encode,
    json_response,
    place_of,
    query_of,
    refusal,
    wants_added,
    whole,
)

SESSION_OF_KEY = "SELECT 1 FROM session WHERE session_id=$1 AND key=$2"
MOST_MESSAGES = 10_000
LISTED = 200
MOST_LISTED = 1_000
SEARCH_CHARS = 200
RESULT_CHARS = 4_000
KNOWN = 10_000
ALL_OF_WEB = "all of web"


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


class PageRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """A transcript row as the page draws it."""

    seq: int
    role: str
    content: str
    at: float
    turn: str | None = None
    calls: list[Json] = []
    call_id: str | None = None
    unknown: bool = False
    outcome: str | None = None  # null, "stopped", "failed" or "skipped"
    cut: bool = False  # only the beginning of a long tool result is sent


class PageEvent(msgspec.Struct, frozen=True):
    """An event in the format of the stream."""

    seq: int
    kind: str
    data: msgspec.Raw
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """What `GET /web/me` answers when the page opens."""

    version: str = ""
    commands: tuple[Json, ...] = ()
    message_chars: int = 100_000
    file_bytes: int = 0


class Conversations:
    """The endpoints of the page; only for the owner (people/rules/rights.py)."""

    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        chats: Chats,
        key_of: Callable[[SessionSource], str],
        messages: Messages,
        events: EventStreams,
        access: Access,
        about: About = About(),  # noqa: B008  frozen
    ) -> None:
        self._store = store
        self._clock = clock
        self._chats = chats
        self._key_of = key_of
        self._messages = messages
        self._events = events
        self._access = access
        self._about = about
        self._known: set[str] = set()

    def routes(self) -> list[Route]:
        """Return the routes."""
        one = "/web/conversations/{chat}"
        return [
            Route("/web/me", self.me),
            Route("/web/conversations", self.all),
            Route(one, self.show),
            Route(one + "/rows", self.rows),
            Route(one + "/earlier", self.earlier),
            Route(one + "/messages", AsgiEndpoint(self.post), methods=["POST"]),
            Route(one + "/events", AsgiEndpoint(self.watch), methods=["GET"]),
        ]

    async def me(self, _: Request) -> Response:
        """`GET /web/me`: works only when logged in; version, commands and limits."""
        about = self._about
        return json_response(
            {
                "name": "owner", "version": about.version, "commands": list(about.commands), "now": self._clock.now(),
                "message_chars": about.message_chars, "file_bytes": about.file_bytes,
            }
        )  # fmt: skip

    async def all(self, request: Request) -> Response:
        """`GET /web/conversations`; with `search`, those that contain the text."""
        given = query_of(request.scope)
        limit = whole(given, "limit", LISTED, MOST_LISTED)
        query = given.get("search", "").strip()[:SEARCH_CHARS]
        found = (
            self._store.read(search_conversations, query, limit)
            if query
            else self._store.read(list_conversations, limit)
        )
        return json_response({"conversations": await found, "now": self._clock.now()})

    async def show(self, request: Request) -> Response:
        """`GET /web/conversations/{chat}`: the conversation, and the event id to continue from."""
        shown = await self._store.read(show_conversation, self._key(request.scope))
        return Response(encode(_shown(shown, self._clock.now())), 200, NO_STORE, "application/json")

    async def earlier(self, request: Request) -> Response:
        """`GET .../earlier?session=ID&before=SEQ`: earlier rows, also of the session that was compacted into this one."""
        query = query_of(request.scope)
        session_id, before = query.get("session", ""), whole(query, "before", 0)
        found = await self._store.read(show_earlier, self._key(request.scope), session_id, before)
        if found is None:
            raise HTTPException(404, "this conversation does not continue that session; load it again")
        body = {"depth": found.depth, "rows": [_row(row) for row in found.rows], "earlier": found.place}
        return Response(encode(body), 200, NO_STORE, "application/json")

    async def rows(self, request: Request) -> Response:
        """`GET .../rows?after=SEQ`: rows added to the transcript."""
        after = whole(query_of(request.scope), "after", 0)
        session_id, found = await self._store.read(messages_after, self._key(request.scope), after)
        body = encode({"session_id": session_id, "rows": [_row(row) for row in found]})
        return Response(body, 200, NO_STORE, "application/json")

    async def post(self, scope: Scope, receive: Receive, send: Send) -> None:
        """`POST .../messages`: as for the api; the conversation is listed from its first message on."""
        chat, key = self._chat(scope), self._key(scope)
        if key not in self._known:
            await self._store.run(add_conversation, key, chat, self._clock.now())
            if len(self._known) >= KNOWN:
                self._known.clear()
            self._known.add(key)
        await self._messages(scope["path_params"]["chat"].encode(), scope, receive, send)

    async def watch(self, scope: Scope, receive: Receive, send: Send) -> None:
        """`GET .../events`: the conversation's events, and a hint when another one changed."""
        key, added = self._key(scope), wants_added(scope)
        watched = Watched(key, (ALL_OF_WEB,), "owner", access_check(self._access, scope), added=added)
        await self._events(watched, place_of(scope), receive, send)

    def _chat(self, scope: Scope) -> str:
        try:
            return self._chats.chat(scope["path_params"]["chat"].encode())
        except ValueError as error:
            raise BadRequest(str(error)) from None

    def _key(self, scope: Scope) -> str:
        return self._key_of(self._chats.source(self._chat(scope)))


class AsgiEndpoint:
    """A raw ASGI endpoint, without Starlette's request and response."""

    def __init__(self, run: Callable[[Scope, Receive, Send], object]) -> None:
        self._run = run

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._run(scope, receive, send)  # type: ignore[misc]


def _shown(shown: ConversationView, now: float) -> Json:
    entry = shown.entry
    return {
        "event": shown.event,
        "session_id": entry.session_id if entry else None,
        "state": state_name(entry),
        "title": shown.title or "",
        "rows": [_row(row) for row in shown.rows],
        "earlier": shown.earlier,
        "events": [
            PageEvent(event.seq, event.kind, msgspec.Raw(event.data.encode()), event.at) for event in shown.events
        ],
        "queued": [_own_id(each) for each in shown.waiting],
        "turn": shown.turn,
        "approvals": shown.approvals,
        "now": now,
    }


def _row(row: Message) -> PageRow:
    long = row.role == "tool" and len(row.content) > RESULT_CHARS
    return PageRow(
        seq=row.seq,
        role=row.role,
        content=row.content[:RESULT_CHARS] if long else row.content,
        at=row.at,
        turn=str(row.turn) if row.turn else None,
        calls=[{"id": call.id, "name": call.name, "arguments": call.arguments[:RESULT_CHARS]} for call in row.calls],
        call_id=row.call_id,
        unknown=row.unknown,
        outcome=row.outcome,
        cut=long,
    )


def _own_id(stored: str) -> str:
    """Return the id that its sender gave, from the stored one (platform/posted.py)."""
    return stored.partition("@")[0].replace("%40", "@").replace("%25", "%")
