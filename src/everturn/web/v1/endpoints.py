"""`/v1`: the OpenAI API on top of sessions. A request is a message: committed first, answered by its turn, found again by its key."""

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

from everturn.decide.client_answer import Answered, Problem, verdict
from everturn.decide.client_request import (
    Asked,
    Malformed,
    Said,
    check_results,
    fingerprint,
    read_chat,
    read_response,
    to_fresh,
    to_session,
)
from everturn.decide.keys import agent_of, session_key
from everturn.decide.sharing import may_take
from everturn.errors import Conflict, Full, StoreUnavailable, TooLong
from everturn.model import Brought, Inbound, Json, SessionSource
from everturn.store.interface import Store
from everturn.store.operations.requests import Request, calls_asked, first_start, request_by_id, request_by_name
from everturn.web.access import Access, still_in
from everturn.web.answers import Reply, answer, encode, retry_after
from everturn.web.events import Hub, until_gone
from everturn.web.messages import Accept, bounded_body, person_of
from everturn.web.queries import header_of
from everturn.web.v1.chat import ChatStream, completion
from everturn.web.v1.errors import (
    NotPossible,
    error_reply,
    malformed,
    not_accepted,
    not_possible,
    problem_reply,
    stopping,
)
from everturn.web.v1.following import Following, Silence
from everturn.web.v1.responses import ResponseStream, response

BELOW = b"/v1/"
CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"
MOST_OPEN = 2_000
MOST_OF_ONE = 256
FULL_S = 10.0
LONGEST_NUMBER = 19


class Clients(Protocol):
    """How programs and their sessions are addressed; a ValueError's text tells the sender what is wrong."""

    @property
    def name(self) -> str:
        """The platform."""
        ...

    def session(self, client: str, name: str) -> SessionSource:
        """A session that its client has named."""
        ...

    def call(self, client: str, name: str) -> SessionSource:
        """A call that stands alone."""
        ...

    def stored_id(self, client: str, key: str) -> str:
        """The id of a client's request."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class V1Parts:
    """What the endpoints need of the gateway."""

    clients: Clients
    models: tuple[str, ...]
    most_body: int


@dataclass(frozen=True, slots=True)
class Call:
    """One request that was read."""

    path: str
    client: str
    asked: Asked
    body: bytes
    key: str | None  # its Idempotency-Key
    session: str | None
    admitted: Callable[[], Awaitable[bool]] | None

    @property
    def param(self) -> str:
        """Where the conversation stands in its body."""
        return "messages" if self.path == CHAT else "input"


class V1:
    """An ASGI application for everything below `/v1/`. Who is here was let in."""

    def __init__(
        self, parts: V1Parts, *, accept: Accept, store: Store, hub: Hub, access: Access, heartbeat_s: float
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
        except Malformed as error:
            await answer(send, malformed(error))

    def close(self) -> None:
        """End what waits, now or after its commit: its clients come back with their keys."""
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
        await answer(send, Reply(200, encode(await self._look(path, scope))))

    async def _look(self, path: str, scope: Scope) -> Json:
        """What is only looked at."""
        if path == "/v1/models":
            return {"object": "list", "data": [await self._model(name) for name in self._parts.models]}
        if path.startswith("/v1/models/"):
            return await self._model(self._known(unquote(path.removeprefix("/v1/models/"))))
        if path.startswith(RESPONSES + "/"):
            found = await self._response(path.removeprefix(RESPONSES + "/"), client_of(scope))
            return response(found, verdict(found.seen))
        raise not_possible(404, f"there is nothing at {path[:200]}")

    async def _model(self, name: str) -> Json:
        made = int(await self._store.read(first_start))
        return {"id": name, "object": "model", "created": made, "owned_by": "everturn"}

    def _known(self, model: str) -> str:
        if model not in self._parts.models:
            there = ", ".join(self._parts.models)
            raise not_possible(404, f"there is no model {model[:100]!r}; there is: {there}", "model", "model_not_found")
        return model

    async def _response(self, given: str, client: str) -> Request:
        """A response of this client's that may be seen again; nobody learns whether another's exists."""
        number = given.removeprefix("resp_")
        plain = number != given and number.isascii() and number.isdecimal() and len(number) <= LONGEST_NUMBER
        found = await self._store.read(request_by_id, int(number), self._platform) if plain else None
        about = found.brought.about if found is not None else {}
        if found is None or found.source.user_id != client or about.get("store") is not True:
            raise not_possible(404, f"there is no response {given[:100]!r}", "response_id")
        return found

    async def _call(self, path: str, scope: Scope, receive: Receive) -> Call | None:
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
        return Call(path, client_of(scope), asked, body, key, session, still_in(self._access, scope))

    async def _inbound(self, call: Call) -> Inbound:
        """The request as a message."""
        clients, asked = self._parts.clients, call.asked
        name = call.key if call.key is not None else secrets.token_hex(16)
        try:
            number = clients.stored_id(call.client, name)
            source, said = await self._place(call, hashlib.sha256(name.encode()).hexdigest()[:32])
        except Malformed:
            raise
        except ValueError as error:
            raise not_possible(400, str(error)) from None
        about: Json = {
            "store": asked.store and call.path == RESPONSES,
            "metadata": asked.metadata,
            "previous": asked.previous,
        }
        brought = Brought(rows=said.rows, instructions=asked.instructions, tools=asked.tools, about=about)
        mark = fingerprint(call.path, call.session or "", call.body)
        return Inbound(id=number, source=source, text=said.words, agent=asked.model, brought=brought, fingerprint=mark)

    async def _place(self, call: Call, fresh: str) -> tuple[SessionSource, Said]:
        """Where it is said, and what of it is new there."""
        clients, asked = self._parts.clients, call.asked
        if asked.previous is not None:
            before = await self._response(asked.previous, call.client)
            if agent_of(before.key) != asked.model:
                raise not_possible(400, f"that response is of the model {agent_of(before.key)!r}", "model")
            return before.source, await self._new(before.source, asked, call.param)
        if call.session is not None:
            source = clients.session(call.client, call.session)
            return source, await self._new(source, asked, call.param)
        return clients.call(call.client, fresh), to_fresh(asked, call.param)

    async def _new(self, source: SessionSource, asked: Asked, param: str) -> Said:
        """What of it is new in a session that goes on."""
        said = to_session(asked)
        if any(row.role == "tool" for row in said.rows):
            key = session_key(source, agent=asked.model)  # a direct chat: no isolation changes it
            check_results(said, await self._store.read(calls_asked, key), param)
        return said

    async def _stored(self, call: Call) -> Request:
        """The request's rows, committed: now, or when it was asked first."""
        inbound = await self._inbound(call)
        try:
            await self._accept(inbound)
        except (Conflict, Full, TooLong, StoreUnavailable) as error:
            raise NotPossible(not_accepted(error)) from None
        found = await self._store.read(request_by_name, inbound.id, self._platform)
        if found is None:
            raise not_possible(503, "the request was stored and cannot be found; send it again")
        return found

    async def _following(self, call: Call, receive: Receive, send: Send) -> None:
        """Store it, then follow it until it ends, its client goes, or we do. The turn goes on whoever goes."""
        if not may_take(self._clients[call.client], MOST_OF_ONE, MOST_OPEN - len(self._open)):
            await answer(send, error_reply(429, "too many requests of yours wait for an answer", retry_after(FULL_S)))
            return
        request = await self._stored(call)
        if self._closing:  # meanwhile: nobody would end it
            raise NotPossible(stopping())
        exchange = _Exchange(self.following, call, request, send)
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
    """One request and the way its answer takes."""

    def __init__(self, following: Following, call: Call, request: Request, send: Send) -> None:
        self._following = following
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
        """To its end. What has failed already is an error, not a stream."""
        found = verdict(self._request.seen)
        if self._stream is not None and not isinstance(found, Problem):
            await self._stream.begin()
        audience = self._stream if self._stream is not None and self._stream.started else Silence()
        request, ended = await self._following.ended(self._request, audience, self._call.admitted)
        if isinstance(ended, Answered):
            await self._answered(request, ended)
        else:
            await self._unanswered(request, ended)

    async def _answered(self, request: Request, ended: Answered) -> None:
        if self._stream is not None:
            await self._stream.end(request, ended)
            return
        chat = self._call.path == CHAT
        whole = completion(request, ended, self._call.asked.model) if chat else response(request, ended)
        await answer(self._send, Reply(200, encode(whole)))

    async def _unanswered(self, request: Request, problem: Problem) -> None:
        if self._stream is None or not self._stream.started:
            await answer(self._send, problem_reply(problem))
        elif isinstance(self._stream, ResponseStream) and problem.final:
            await self._stream.failed(request, problem)
        else:
            await self._stream.break_off(problem_reply(problem).body)

    async def conclude(self, working: asyncio.Future[None]) -> None:
        """What to say when it did not come to its own end."""
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
    """Who asks: sessions and Idempotency-Keys are theirs alone. No key's name is that of the owner."""
    return person_of(scope) or "owner"


def _only(method: str, given: str, path: str) -> None:
    if given != method and path in {CHAT, RESPONSES}:
        raise not_possible(405, f"use {method} here, not {given}")
    if given != method:
        raise not_possible(404 if given == "POST" else 405, f"{given} is not possible at {path[:200]}")


def _header(scope: Scope, name: bytes) -> str | None:
    value = header_of(scope, name)
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise not_possible(400, f"the header {name.decode()} is not UTF-8") from None
