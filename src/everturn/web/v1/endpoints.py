"""`/v1`: the OpenAI API on top of sessions. A request is an inbox message: stored first, answered by its turn, found by its key."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import unquote

from starlette.types import Receive, Scope, Send

from everturn.errors import Conflict, Full, StoreUnavailable, TooLong
from everturn.model import Inbound, Json, RequestExtras, SessionSource
from everturn.sessions.rules.keys import agent_of, session_key
from everturn.store.interface import Store
from everturn.web.access import Access, access_check
from everturn.web.events import EventSource, until_gone
from everturn.web.messages import Accept, bounded_body, person_of
from everturn.web.v1.answers import (
    ChatStream,
    Following,
    NoAudience,
    NotPossible,
    ResponseStream,
    completion,
    error_reply,
    malformed,
    not_accepted,
    not_possible,
    problem_reply,
    response,
    stopping,
)
from everturn.web.v1.rows import RequestRow, begun_request, calls_asked, first_start, request_by_id, request_by_name
from everturn.web.v1.rules import (
    CompletionError,
    FinishedAnswer,
    MalformedRequest,
    ParsedRequest,
    SessionInput,
    check_results,
    fingerprint,
    read_chat,
    read_response,
    to_session,
    to_standalone,
    verdict,
)
from everturn.web.wire.limits import may_take
from everturn.web.wire.requests import CompleteResponse, answer, encode, header_of, retry_after

BELOW = b"/v1/"
CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"
MOST_OPEN = 2_000
MOST_OF_ONE = 256
FULL_S = 10.0
LONGEST_NUMBER = 19


class Clients(Protocol):
    """Maps clients and their sessions to sources and ids; a ValueError's text tells the sender what is wrong."""

    @property
    def name(self) -> str:
        """The platform's name."""
        ...

    def session(self, client: str, name: str) -> SessionSource:
        """Return the source of a session that its client named."""
        ...

    def call(self, client: str, name: str) -> SessionSource:
        """Return the source of a standalone call."""
        ...

    def stored_id(self, client: str, key: str) -> str:
        """Return the stored id of a client's request."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class V1Parts:
    """What the endpoints need of the gateway."""

    clients: Clients
    models: tuple[str, ...]
    most_body: int


@dataclass(frozen=True, slots=True)
class V1Call:
    """One parsed request."""

    path: str
    client: str
    asked: ParsedRequest
    body: bytes
    key: str | None  # its Idempotency-Key
    session: str | None
    admitted: Callable[[], Awaitable[bool]] | None

    @property
    def param(self) -> str:
        """The field of the body that has the conversation."""
        return "messages" if self.path == CHAT else "input"


class V1:
    """The ASGI application below `/v1/`. Requests are authenticated before."""

    def __init__(
        self, parts: V1Parts, *, accept: Accept, store: Store, hub: EventSource, access: Access, heartbeat_s: float
    ) -> None:
        self._parts = parts
        self._accept = accept
        self._store = store
        self._access = access
        self._platform = parts.clients.name
        self.following = Following(hub, store, self._platform, heartbeat_s)
        self._open: dict[asyncio.Future[Any], str] = {}
        self._clients: Counter[str] = Counter()
        self._closing = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        try:
            await self._answer(scope, receive, send)
        except NotPossible as error:
            await answer(send, error.reply)
        except MalformedRequest as error:
            await answer(send, malformed(error))

    def close(self) -> None:
        """End all waiting requests: their clients retry with their Idempotency-Key."""
        self._closing = True
        for task in list(self._open):
            task.cancel()

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        path, method = scope["path"], scope["method"]
        if path in (CHAT, RESPONSES):
            _only("POST", method, path)
            call = await self._call(path, scope, receive)
            if call is not None:
                await self._following(call, receive, send)
            return
        _only("GET", method, path)
        await answer(send, CompleteResponse(200, encode(await self._look(path, scope))))

    async def _look(self, path: str, scope: Scope) -> Json:
        """Answer a GET."""
        if path == "/v1/models":
            return {"object": "list", "data": [await self._model(name) for name in self._parts.models]}
        if path.startswith("/v1/models/"):
            return await self._model(self._known(unquote(path.removeprefix("/v1/models/"))))
        if path.startswith(RESPONSES + "/"):
            found = await self._response(path.removeprefix(RESPONSES + "/"), client_of(scope))
            return response(found, verdict(found.seen))
        raise not_possible(404, f"no such endpoint: {path[:200]}")

    async def _model(self, name: str) -> Json:
        made = int(await self._store.read(first_start))
        return {"id": name, "object": "model", "created": made, "owned_by": "everturn"}

    def _known(self, model: str) -> str:
        if model not in self._parts.models:
            there = ", ".join(self._parts.models)
            raise not_possible(404, f"no such model: {model[:100]!r}; available: {there}", "model", "model_not_found")
        return model

    async def _response(self, given: str, client: str) -> RequestRow:
        """Return a stored response of this client; one of another client looks as if it did not exist."""
        number = given.removeprefix("resp_")
        plain = number != given and number.isascii() and number.isdecimal() and len(number) <= LONGEST_NUMBER
        found = await self._store.read(request_by_id, int(number), self._platform) if plain else None
        about = found.extras.about if found is not None else {}
        if found is None or found.source.user_id != client or about.get("store") is not True:
            raise not_possible(404, f"no such response: {given[:100]!r}", "response_id")
        return found

    async def _call(self, path: str, scope: Scope, receive: Receive) -> V1Call | None:
        most = self._parts.most_body
        body = await bounded_body(scope, receive, most)
        if body is None:
            return None
        if len(body) > most:
            raise not_possible(413, f"the body is larger than {most} bytes")
        asked = (read_chat if path == CHAT else read_response)(body)
        self._known(asked.model)
        session = _header(scope, b"x-everturn-session") or asked.session
        key = _header(scope, b"idempotency-key")
        return V1Call(path, client_of(scope), asked, body, key, session, access_check(self._access, scope))

    async def _inbound(self, call: V1Call) -> Inbound:
        """Convert the request to an inbox message."""
        clients, asked = self._parts.clients, call.asked
        name = call.key if call.key is not None else secrets.token_hex(16)
        try:
            number = clients.stored_id(call.client, name)
            source, said = await self._place(call, hashlib.sha256(name.encode()).hexdigest()[:32])
        except MalformedRequest:
            raise
        except ValueError as error:
            raise not_possible(400, str(error)) from None
        about: Json = {
            "store": asked.store and call.path == RESPONSES,
            "metadata": asked.metadata,
            "previous": asked.previous,
        }
        extras = RequestExtras(rows=said.rows, instructions=asked.instructions, tools=asked.tools, about=about)
        # Nobody repeats a request whose id was made here.
        mark = fingerprint(call.path, call.session or "", call.body) if call.key is not None else None
        return Inbound(id=number, source=source, text=said.text, agent=asked.model, extras=extras, fingerprint=mark)

    async def _place(self, call: V1Call, fresh: str) -> tuple[SessionSource, SessionInput]:
        """Return the request's source, and its input that is new there."""
        clients, asked = self._parts.clients, call.asked
        if asked.previous is not None:
            before = await self._response(asked.previous, call.client)
            if agent_of(before.key) != asked.model:
                raise not_possible(400, f"previous_response_id is of the model {agent_of(before.key)!r}", "model")
            return before.source, await self._new(before.source, asked, call.param)
        if call.session is not None:
            source = clients.session(call.client, call.session)
            return source, await self._new(source, asked, call.param)
        return clients.call(call.client, fresh), to_standalone(asked, call.param)

    async def _new(self, source: SessionSource, asked: ParsedRequest, param: str) -> SessionInput:
        """Return the input that is new in an existing session."""
        said = to_session(asked)
        if any(row.role == "tool" for row in said.rows):
            key = session_key(source, agent=asked.model)  # a direct chat: no isolation changes it
            check_results(said, await self._store.read(calls_asked, key), param)
        return said

    async def _stored(self, inbound: Inbound) -> RequestRow:
        """Store the request, unless it was stored before, and return its row. One whose turn began with that is not read back."""
        try:
            accepted = await self._accept(inbound)
        except (Conflict, Full, TooLong, StoreUnavailable) as error:
            raise NotPossible(not_accepted(error)) from None
        found = begun_request(accepted, inbound) or await self._store.read(request_by_name, inbound.id, self._platform)
        if found is None:
            raise not_possible(503, "the request was stored but cannot be found; send it again")
        return found

    async def _following(self, call: V1Call, receive: Receive, send: Send) -> None:
        """Store the request, then follow it until it ends, its client leaves, or the gateway stops. The turn continues anyway."""
        if not may_take(self._clients[call.client], MOST_OF_ONE, MOST_OPEN - len(self._open)):
            await answer(send, error_reply(429, "too many of your requests wait for an answer", retry_after(FULL_S)))
            return
        inbound = await self._inbound(call)
        # Watched before it is stored, a direct chat's key by no isolation: no change is missed, and nothing is read for it.
        with self.following.watch(session_key(inbound.source, agent=call.asked.model)) as watch:
            request = await self._stored(inbound)
            if self._closing:  # meanwhile: nothing would end it
                raise NotPossible(stopping())
            exchange = _Exchange(self.following, call, request, watch, send)
            working = asyncio.ensure_future(exchange.run())
            left = asyncio.ensure_future(until_gone(receive))
            self._open[working] = call.client
            self._clients[call.client] += 1
            try:
                await asyncio.wait({working, left}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                del self._open[working]
                self._clients[call.client] -= 1
                left.cancel()
                working.cancel()
                await asyncio.wait({working, left})
            if not left.done() or left.cancelled():
                await exchange.conclude(working)


class _Exchange:
    """Follows one request and sends its answer."""

    def __init__(self, following: Following, call: V1Call, request: RequestRow, watch: object, send: Send) -> None:
        self._following = following
        self._watch = watch
        self._call = call
        self._request = request
        self._send = send
        self._stream = self._make_stream() if call.asked.stream else None

    def _make_stream(self) -> ChatStream | ResponseStream:
        asked = self._call.asked
        if self._call.path == CHAT:
            return ChatStream(self._send, self._request, asked.model, include_usage=asked.include_usage)
        return ResponseStream(self._send, self._request)

    async def run(self) -> None:
        """Follow the request and send its answer. A request that has failed already gets an error, not a stream."""
        found = verdict(self._request.seen)
        if self._stream is not None and not isinstance(found, CompletionError):
            await self._stream.begin()
        audience = self._stream if self._stream is not None and self._stream.started else NoAudience()
        request, ended = await self._following.ended(self._request, audience, self._call.admitted, self._watch)
        if isinstance(ended, FinishedAnswer):
            await self._answered(request, ended)
        else:
            await self._unanswered(request, ended)

    async def _answered(self, request: RequestRow, ended: FinishedAnswer) -> None:
        if self._stream is not None:
            await self._stream.end(request, ended)
            return
        chat = self._call.path == CHAT
        whole = completion(request, ended, self._call.asked.model) if chat else response(request, ended)
        await answer(self._send, CompleteResponse(200, encode(whole)))

    async def _unanswered(self, request: RequestRow, problem: CompletionError) -> None:
        if self._stream is None or not self._stream.started:
            await answer(self._send, problem_reply(problem))
        elif isinstance(self._stream, ResponseStream) and problem.final:
            await self._stream.failed(request, problem)
        else:
            await self._stream.break_off(problem_reply(problem).body)

    async def conclude(self, working: asyncio.Future[None]) -> None:
        """Send the error of an exchange that failed or was cancelled."""
        if not working.cancelled():
            error = working.exception()
            if error is None:
                return
            if not isinstance(error, NotPossible):
                raise error
            reply, body = error.reply, error.reply.body
        else:
            reply, body = stopping(), stopping().body
        if self._stream is not None and self._stream.started:
            await self._stream.break_off(body)
        else:
            await answer(self._send, reply)


def client_of(scope: Scope) -> str:
    """Return the client's id, which scopes sessions and Idempotency-Keys. No key can be named owner."""
    return person_of(scope) or "owner"


def _only(method: str, given: str, path: str) -> None:
    if given != method and path in {CHAT, RESPONSES}:
        raise not_possible(405, f"use {method} here, not {given}")
    if given != method:
        raise not_possible(404 if given == "POST" else 405, f"the method {given} is not allowed for {path[:200]}")


def _header(scope: Scope, name: bytes) -> str | None:
    value = header_of(scope, name)
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise not_possible(400, f"the header {name.decode()} is not UTF-8") from None
