"""The web application: lets in who may enter, then hands the request to its endpoint. Every error is JSON."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import structlog
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send

from everturn.decide import web_words
from everturn.errors import StoreError
from everturn.model import SessionSource
from everturn.web.access import Access, NotAdmitted, still_in, visitor_of
from everturn.web.answers import BadRequest, Header, Reply, answer, not_now, refusal
from everturn.web.bodies import no_database
from everturn.web.events import EventStreams, Watched
from everturn.web.messages import Chats, Messages
from everturn.web.queries import keepable, place_of, wants_added
from everturn.web.transcripts import Transcripts
from everturn.web.v1.endpoints import BELOW, V1
from everturn.web.v1.errors import shaped
from everturn.web.visits import Visits

log = structlog.get_logger()
CHATS = b"/api/chats/"
MESSAGES = b"/messages"
METHODS = {b"messages": "POST", b"events": "GET", b"transcript": "GET"}
MOST_OF_A_KEY = 1_000  # event streams
BROWSERS = frozenset({b"origin", b"sec-fetch-site"})


class WebApp:
    """An ASGI application. Chats are found in the raw path: a name may hold an encoded slash."""

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
        """Answer one request, whatever happens."""
        try:
            await self._answer(scope, receive, send)
        except NotAdmitted as error:
            await answer(send, _shaped(scope, error.reply))
        except BadRequest as error:
            await answer(send, refusal(400, str(error)))
        except StoreError as error:
            await answer(send, _shaped(scope, not_now(no_database(scope, error))))
        except ClientDisconnect:
            return  # nobody is there to be answered; it is no fault of ours, so a stranger does not fill the log
        except (asyncio.CancelledError, Exception) as error:  # noqa: BLE001  reported
            reply = self._mishap(error, scope["method"], scope["path"])
            with contextlib.suppress(RuntimeError):  # the answer had begun: it is cut off instead
                await answer(send, _shaped(scope, reply))

    def shortcut(self, url: bytes, headers: list[Header]) -> bytes | None:
        """The chat, still encoded, if this is the head of an ordinary posted message of somebody who may post."""
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

    async def post(self, raw: bytes, body: bytes) -> Reply:
        """The answer to a posted message, whatever happens."""
        try:
            return await self._messages.take(raw, body)
        except (asyncio.CancelledError, Exception) as error:  # noqa: BLE001  reported
            return self._mishap(error, "POST", "messages")

    def close(self) -> None:
        """End event streams; what else is under way may finish."""
        self._closing = True
        self._events.close()
        if self._v1 is not None:
            self._v1.close()

    def _mishap(self, error: BaseException, method: str, path: str) -> Reply:
        """What to say when a request cannot end well."""
        if not isinstance(error, asyncio.CancelledError):
            log.error("request failed", method=method, path=path, exc_info=error)
            return refusal(500, "something went wrong here; the gateway's log says what")
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
            await answer(send, refusal(404, "there is nothing here; a chat has /messages, /events and /transcript"))
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
        """A program may watch many chats, but not so many that there is no room for others."""
        visitor = visitor_of(scope)
        person = f"key {visitor.key}" if visitor is not None and visitor.key is not None else ""
        many = web_words.too_many_streams(MOST_OF_A_KEY)
        still = still_in(self.access, scope)
        return Watched(self._key(raw), (), person, still, MOST_OF_A_KEY, many, added=wants_added(scope))

    def _chat(self, raw: bytes) -> str:
        try:
            return self._chats.chat(raw)
        except ValueError as error:
            raise BadRequest(str(error)) from None

    def _key(self, raw: bytes) -> str:
        return self._key_of(self._chats.source(self._chat(raw)))


def _shaped(scope: Scope, reply: Reply) -> Reply:
    """A refusal as the clients of this path read it."""
    return shaped(reply) if scope["raw_path"].startswith(BELOW) else reply
