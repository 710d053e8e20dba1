"""The web application: which endpoint answers, and the webhook endpoint of the platforms."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable

import structlog
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from everturn.errors import PlatformError, StoreError, StoreUnavailable
from everturn.model import Inbound, SessionSource
from everturn.platform.interface import TakesWebhooks
from everturn.web import texts
from everturn.web.access import Access, NotAdmitted, access_check, no_database, visitor_of
from everturn.web.conversations import Transcripts
from everturn.web.events import EventStreams, Watched
from everturn.web.keys import Visits
from everturn.web.messages import Chats, Messages
from everturn.web.v1.answers import to_openai_error
from everturn.web.v1.endpoints import BELOW, V1
from everturn.web.wire.requests import (
    RETRY,
    BadRequest,
    CompleteResponse,
    Header,
    answer,
    json_response,
    keepable,
    not_now,
    place_of,
    raw_body,
    refusal,
    wants_added,
)

log = structlog.get_logger()
CHATS = b"/api/chats/"
MESSAGES = b"/messages"
METHODS = {b"messages": "POST", b"events": "GET", b"transcript": "GET"}
MOST_OF_A_KEY = 1_000  # event streams
BROWSERS = frozenset({b"origin", b"sec-fetch-site"})
MOST_BODY = 1 << 20


class WebApp:
    """The ASGI application. Chats are found in the raw path: a name may contain an encoded slash."""

    def __init__(
        self,
        *,
        chats: Chats,
        key_of: Callable[[SessionSource], str],
        access: Access,
        visits: Visits,
        messages: Messages,
        events: EventStreams,
        transcripts: Transcripts,
        others: ASGIApp,
        v1: V1 | None = None,
    ) -> None:
        self._chats = chats
        self._key_of = key_of
        self.access = access
        self.visits = visits
        self._messages = messages
        self._events = events
        self._transcripts = transcripts
        self._others = others
        self._v1 = v1
        self._closing = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; errors become JSON responses."""
        try:
            await self._answer(scope, receive, send)
        except NotAdmitted as error:
            await answer(send, _in_client_format(scope, error.reply))
        except BadRequest as error:
            await answer(send, refusal(400, str(error)))
        except StoreError as error:
            await answer(send, _in_client_format(scope, not_now(no_database(scope, error))))
        except ClientDisconnect:
            return  # the client is gone: no answer, and no log line that strangers could cause
        except (asyncio.CancelledError, Exception) as error:  # noqa: BLE001  reported
            reply = self._error_response(error, scope["method"], scope["path"])
            with contextlib.suppress(RuntimeError):  # the response had begun: it is cut off instead
                await answer(send, _in_client_format(scope, reply))

    def shortcut(self, url: bytes, headers: list[Header]) -> bytes | None:
        """Return the chat, still encoded, if this is the head of an ordinary posted message with the home's token."""
        if not (url.startswith(CHATS) and url.endswith(MESSAGES)):
            return None
        raw, given, announced = url[len(CHATS) : -len(MESSAGES)], None, None
        for name, value in headers:
            if name == b"authorization":
                given = value
            elif name == b"content-length":
                announced = int(value)
            elif name in BROWSERS:
                return None
        if announced is None or announced > self._messages.most or b"/" in raw or b"?" in raw:
            return None
        return raw if self.access.is_token(given) else None

    async def post(self, raw: bytes, body: bytes) -> CompleteResponse:
        """Store a posted message and return the response, also for errors."""
        try:
            return await self._messages.take(raw, body)
        except (asyncio.CancelledError, Exception) as error:  # noqa: BLE001  reported
            return self._error_response(error, "POST", "messages")

    def close(self) -> None:
        """End event streams; other running requests may finish."""
        self._closing = True
        self._events.close()
        if self._v1 is not None:
            self._v1.close()

    def _error_response(self, error: BaseException, method: str, path: str) -> CompleteResponse:
        """Log an error and return its response; during shutdown, 503."""
        if not isinstance(error, asyncio.CancelledError):
            log.error("request failed", method=method, path=path, exc_info=error)
            return refusal(500, "internal error in the gateway; its log has the details")
        if not self._closing:
            raise error
        return not_now("the gateway is stopping; try again")

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: bytes = scope["raw_path"]
        await self.access.admit(scope)
        keepable(scope)
        if path.startswith(CHATS):
            await self._in_chat(path, scope, receive, send)
        elif path.startswith(BELOW) and self._v1 is not None:
            await self._v1(scope, receive, send)
        else:
            await self._others(scope, receive, send)

    async def _in_chat(self, path: bytes, scope: Scope, receive: Receive, send: Send) -> None:
        raw, _, what = path[len(CHATS) :].partition(b"/")
        method = METHODS.get(what)
        if method is None:
            await answer(send, refusal(404, "no such endpoint; a chat has /messages, /events and /transcript"))
        elif scope["method"] != method:
            why = f"use {method} here, not {scope['method']}"
            await answer(send, refusal(405, why, (b"allow", method.encode())))
        elif what == b"messages":
            await self._messages(raw, scope, receive, send)
        elif what == b"events":
            await self._events(self._watched(raw, scope), place_of(scope), receive, send)
        else:
            await self._transcripts(self._key(raw), scope, send)

    def _watched(self, raw: bytes, scope: Scope) -> Watched:
        """Return what an event stream shows. A key may open many streams, but not so many that others find no room."""
        visitor = visitor_of(scope)
        person = f"key {visitor.key}" if visitor is not None and visitor.key is not None else ""
        many = texts.too_many_streams(MOST_OF_A_KEY)
        still = access_check(self.access, scope)
        return Watched(self._key(raw), (), person, still, MOST_OF_A_KEY, many, added=wants_added(scope))

    def _chat(self, raw: bytes) -> str:
        try:
            return self._chats.chat(raw)
        except ValueError as error:
            raise BadRequest(str(error)) from None

    def _key(self, raw: bytes) -> str:
        return self._key_of(self._chats.source(self._chat(raw)))


def _in_client_format(scope: Scope, reply: CompleteResponse) -> CompleteResponse:
    """Return an error in the format that clients of this path parse."""
    return to_openai_error(reply) if scope["raw_path"].startswith(BELOW) else reply


class Hooks:
    """The webhook endpoint, `POST /hooks/PLATFORM/ACCOUNT`: it answers 2xx after the commit, never before.

    A request without the secret gets 404, whether or not the platform exists.
    """

    def __init__(self, platforms: Iterable[object], take: Callable[[Inbound], Awaitable[None]]) -> None:
        self._platforms = {(each.name, each.account): each for each in platforms if isinstance(each, TakesWebhooks)}
        self._take = take

    async def post(self, request: Request) -> Response:
        """POST /hooks/PLATFORM/ACCOUNT."""
        platform = self._platforms.get((request.path_params["platform"], request.path_params["account"]))
        if platform is None or not platform.admits(dict(request.headers.raw)):
            raise HTTPException(404)
        body = await raw_body(request, MOST_BODY)
        try:
            heard = await platform.read_webhook(body)
        except PlatformError as error:
            return json_response({"error": str(error)}, 503, RETRY)
        for inbound in heard:
            try:
                await self._take(inbound)
            except StoreUnavailable as error:  # the platform delivers it again
                return json_response({"error": str(error)}, 503, RETRY)
            await platform.acknowledge(inbound)
        return json_response({})

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [Route("/hooks/{platform}/{account}", self.post, methods=["POST"])]
