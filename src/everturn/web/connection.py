"""One HTTP connection, bounded: a client that sends half a request, an endless head, or never reads is let go."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from socket import socket
from typing import cast

import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from everturn import points
from everturn.decide.web_words import NO_ROOM
from everturn.web.answers import RETRY_AFTER_S, Header, answer, refusal, retry_after
from everturn.web.app import WebApp

MOST_HEAD = 65_536
STALLED_S = 60.0
SLOWEST = 50_000  # bytes a second: who sends a large body faster than this is given the time it takes
CLOSE: Header = (b"connection", b"close")
ABOVE = 256  # so many more than there is room for are told so; further ones are cut off


async def no_room(_scope: Scope, _receive: Receive, send: Send) -> None:
    """The answer to everything while there are too many connections."""
    await answer(send, refusal(503, NO_ROOM, CLOSE, retry_after(RETRY_AFTER_S)))


class Quick(RequestResponseCycle):
    """An ordinary posted message: it is answered in one go, without the messages of ASGI."""

    message_event = asyncio.Event()  # nobody waits for it

    def __init__(self, chat: bytes) -> None:
        self.chat = chat
        self.body = bytearray()
        self.more_body = self.keep_alive = True
        self.disconnected = self.response_started = self.response_complete = False


class Connection(HttpToolsProtocol):
    """uvicorn's connection, with the limits it lacks and a short way for posted messages.

    What is not ordinary (a chunked body, no token, too large, pipelined behind another) goes the usual way through ASGI.
    """

    awaited_since: float | None = None  # a request is awaited or has come in part
    stalled_since: float | None = None  # the client does not read what it was sent
    in_head = True
    in_body = False
    head_bytes = 0
    body_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client that says nothing is not kept for ever."""
        super().connection_made(transport)
        self.awaited_since = self.loop.time()
        self.most, self.limit_concurrency = self.limit_concurrency, None  # refused in our own words
        if self.most is not None and len(self.connections) > self.most + ABOVE:
            transport.abort()

    def data_received(self, data: bytes) -> None:
        """Feed the parser; what is not a whole head yet counts against the limit."""
        if self.awaited_since is None:
            self.awaited_since = self.loop.time()
        super().data_received(data)
        if self.in_head:
            self.head_bytes += len(data)
            if self.head_bytes > MOST_HEAD:
                self._give_up(431, f"the request's head is larger than {MOST_HEAD} bytes")

    def on_message_begin(self) -> None:
        """A head begins."""
        self.in_head, self.head_bytes, self.body_bytes = True, 0, 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """The head is whole."""
        self.in_head, self.in_body = False, True
        crowded = self.most is not None and len(self.connections) > self.most
        chat = None if crowded else self._shortcut()
        if chat is None:
            app = self.app
            self.app = no_room if crowded else app
            super().on_headers_complete()
            self.app = app
        else:
            self.cycle = Quick(chat)

    def on_body(self, body: bytes) -> None:
        """A part of the body; that of an ordinary message is as small as was announced."""
        self.body_bytes += len(body)
        if isinstance(self.cycle, Quick):
            self.cycle.body += body
        else:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is whole; from now on the client waits for us."""
        self.awaited_since, self.in_body = None, False
        if isinstance(self.cycle, Quick):
            self.cycle.more_body = False
            task = self.loop.create_task(self._answer(self.app, self.cycle))
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)
        else:
            super().on_message_complete()

    def pause_writing(self) -> None:
        """The client is slow."""
        self.stalled_since = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        """It has read."""
        self.stalled_since = None
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        """What is not HTTP is refused like everything else."""
        self._give_up(400, msg.removesuffix(".").lower())

    def look(self, now: float, patience_s: float) -> None:
        """Let go of a client that keeps us waiting."""
        if self.stalled_since is not None and now - self.stalled_since > STALLED_S:
            self.transport.abort()
        elif self.awaited_since is not None and now - self.awaited_since > patience_s + self._allowance_s():
            self._give_up(408, f"the request did not arrive within {patience_s:g} s")

    def _allowance_s(self) -> float:
        """More time for a large body; none for one whose answer is out already: nobody reads it."""
        return 0.0 if self._answered_early() else self.body_bytes / SLOWEST

    def _answered_early(self) -> bool:
        return self.in_body and self.cycle.response_complete

    def _shortcut(self) -> bytes | None:
        """The chat, if this head can be answered the short way."""
        parser, before = self.parser, cast("RequestResponseCycle | None", self.cycle)
        if not isinstance(self.app, WebApp) or not (before is None or before.response_complete):
            return None
        if self.expect_100_continue or parser.get_method() != b"POST" or parser.get_http_version() != "1.1":
            return None
        if not parser.should_keep_alive() or parser.should_upgrade():
            return None
        return self.app.shortcut(self.url, self.headers)

    async def _answer(self, app: WebApp, cycle: Quick) -> None:
        reply = await app.post(cycle.chat, bytes(cycle.body))
        cycle.response_started = cycle.response_complete = True
        if cycle.disconnected:
            return
        closing = () if cycle.keep_alive else (CLOSE,)
        self.transport.write(reply.wire(*self.server_state.default_headers, *closing))
        if reply.status < 300:
            points.reached("inbox.acknowledged")
        if closing:
            self.transport.close()
        self.on_response_complete()

    def _give_up(self, status: int, why: str) -> None:
        """Answer if nothing was answered yet, then close."""
        self.awaited_since = None
        if self.transport.is_closing():
            return
        if self._answered_early():
            self.transport.close()
            return
        cycle = cast("RequestResponseCycle | None", self.cycle)
        if cycle is None or cycle.response_complete or (cycle.more_body and not cycle.response_started):
            self.transport.write(refusal(status, why).wire(*self.server_state.default_headers, CLOSE))
        self.transport.close()


class Server(uvicorn.Server):
    """uvicorn's server without its signal handlers: stopping is the gateway's business."""

    def __init__(self, config: uvicorn.Config, patience_s: float) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()
        self._patience_s = patience_s

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone."""
        yield

    async def startup(self, sockets: list[socket] | None = None) -> None:
        """Listen, and say so."""
        await super().startup(sockets)
        self.ready.set()

    async def on_tick(self, counter: int) -> bool:
        """Look after the connections once a second."""
        if counter % 10 == 0:
            now = asyncio.get_running_loop().time()
            for connection in self.open_connections():
                connection.look(now, self._patience_s)
        return await super().on_tick(counter)

    def open_connections(self) -> list[Connection]:
        """The connections there are now."""
        return [each for each in self.server_state.connections if isinstance(each, Connection)]
