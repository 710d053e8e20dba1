"""One HTTP connection with limits: it is closed if the client sends half a request, an endless head, or never reads."""

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
from everturn.people.rules.rights import network_of
from everturn.web.access import visitor_of
from everturn.web.app import WebApp
from everturn.web.texts import NO_ROOM
from everturn.web.wire.limits import Bounds, SharedState
from everturn.web.wire.requests import RETRY_AFTER_S, Header, answer, refusal, retry_after

MOST_HEAD = 65_536
MOST_LINES = 100
LINE_BYTES = 160  # memory of a header line beside its bytes
SMALL_HEAD, FEW_LINES = 1_024, 24  # a complete head up to this size needs little memory and is not counted
REQUEST_BYTES = 4_096  # memory of a pipelined request beside its head
MOST_PIPELINED = 32
PART = 16_384  # the parser gets no more at once, so that sizes are known this exactly
STALLED_S = 60.0
CLOSING_S = 10.0  # a closing connection is aborted when the client read nothing of the rest for this long
SLOWEST = 50_000  # bytes a second: a client that sends a large body faster than this gets the time it needs
CLOSE: Header = (b"connection", b"close")
ABOVE = 256  # this many connections above the limit get a 503; further ones are aborted


async def no_room(_scope: Scope, _receive: Receive, send: Send) -> None:
    """Answer 503 while there are too many connections."""
    await answer(send, refusal(503, NO_ROOM, CLOSE, retry_after(RETRY_AFTER_S)))


class MessageCycle(RequestResponseCycle):
    """The cycle of an ordinary posted message: answered at once, without ASGI messages."""

    message_event = asyncio.Event()  # nobody waits for it

    def __init__(self, chat: bytes) -> None:
        self.chat = chat
        self.body = bytearray()
        self.more_body = self.keep_alive = True
        self.disconnected = self.response_started = self.response_complete = False


class StopParsing(Exception):
    """Raised in a callback to end the parser; uvicorn then calls `send_400_response`."""


class Connection(HttpToolsProtocol):
    """uvicorn's connection, with the limits it lacks and a fast path for posted messages.

    Everything else (a chunked body, no token, too large, pipelined behind another) goes through ASGI.
    """

    awaited_since: float | None = None  # since when a request is awaited, or has arrived in part
    stalled_since: float | None = None  # since when the client does not read
    in_fields = True  # the next bytes belong to a head, or to the trailers of a chunked body
    in_body = False
    field_bytes = 0  # of an unfinished head or of unfinished trailers
    body_bytes = 0
    crowded = False  # it is above the limit of connections
    ending = False  # what the client still sends is not read
    stopped: tuple[int, str] | None = None  # why the parser was ended
    closing_since: float | None = None  # since when a closing connection has had the same rest to send
    unsent: int = 0  # that rest, in bytes
    part_bytes = 0  # of what the parser was given last
    known = False  # whether the latest request showed a valid credential, once its cycle is dropped

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Count the connection and start its timeout; abort it if far too many are open."""
        super().connection_made(transport)
        self.awaited_since = self.loop.time()
        self.shared = cast("SharedState", self.server_state)
        self.address = network_of(self.client[0]) if self.client else ""
        self.unanswered: dict[RequestResponseCycle, int] = {}  # counted bytes of large or pipelined requests
        self.crowded = not self.shared.enter(self)
        if self.crowded and len(self.connections) > self.shared.bounds.connections + ABOVE:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop counting the connection, and mark all its requests as disconnected: uvicorn marks only the newest."""
        for cycle in self.unanswered:
            cycle.disconnected = True
            cycle.message_event.set()
        self.pipeline.clear()
        super().connection_lost(exc)
        self._unset_keepalive_if_required()  # uvicorn does it only after a clean close
        self.shared.leave(self)

    def data_received(self, data: bytes) -> None:
        """Feed the parser; an incomplete head counts against the limit."""
        if self.awaited_since is None and not self.ending:
            self.awaited_since = self.loop.time()
        for part in (data,) if len(data) <= PART else _parts(data):
            if self.ending or self.transport.is_closing():
                return
            self.part_bytes = len(part)
            super().data_received(part)
            if self.in_fields:
                self._count(self.part_bytes)

    def on_message_begin(self) -> None:
        """Start a head."""
        if len(self.pipeline) >= MOST_PIPELINED:
            self.ending, self.cycle.keep_alive = True, False  # the last response says close
            raise StopParsing
        if self.unanswered and self.cycle.response_complete:
            _forget_head(self)
        if self.field_bytes:
            self._release()
        self.in_fields, self.body_bytes = True, 0
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header line; trailers are dropped."""
        if self.in_body:
            return
        if len(self.headers) >= MOST_LINES:
            self.stopped = 431, f"the request has more than {MOST_LINES} header lines"
            raise StopParsing
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Start the request of a complete head. Large and pipelined heads count until all are answered."""
        large = self.field_bytes or self.part_bytes > SMALL_HEAD or len(self.headers) > FEW_LINES
        before = self.cycle
        if self.field_bytes:
            self._release()
        self.in_fields = False
        chat = None if self.crowded else _shortcut(self)
        if chat is None:
            app = self.app
            self.app = no_room if self.crowded else app
            super().on_headers_complete()
            self.app = app
        else:
            self.cycle = MessageCycle(chat)
        self.in_body = True  # only now: an invalid URL ends the parser before there is a cycle
        if large or self.pipeline:
            _count_head(self, before)

    def on_chunk_header(self) -> None:
        """Note that a chunk follows, or the trailers, which the parser buffers line by line."""
        if self.field_bytes:
            self._release()
        self.in_fields = True

    def on_body(self, body: bytes) -> None:
        """Add a part of the body; `WebApp.shortcut` has checked the length of an ordinary message."""
        if self.field_bytes:
            self._release()
        self.in_fields = False
        self.body_bytes += len(body)
        if isinstance(self.cycle, MessageCycle):
            self.cycle.body += body
        else:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """Answer the complete request; its timeout ends."""
        if self.field_bytes:
            self._release()
        self.awaited_since, self.in_fields, self.in_body = None, False, False
        if isinstance(self.cycle, MessageCycle):
            self.cycle.more_body = False
            task = self.loop.create_task(_answer(self, self.app, self.cycle))
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)
        else:
            super().on_message_complete()

    def pause_writing(self) -> None:
        """Note since when the client does not read."""
        self.stalled_since = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        """Note that the client reads again."""
        self.stalled_since = None
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        """Reject what is not HTTP with a JSON error. (uvicorn calls this whenever the parser ended.)"""
        if not self.ending:
            self._give_up(*self.stopped or (400, msg.removesuffix(".").lower()))

    def authenticated(self) -> bool:
        """Whether its latest request showed a valid credential."""
        cycle = cast("RequestResponseCycle | None", self.cycle)
        if cycle is None:
            return self.known
        return isinstance(cycle, MessageCycle) or visitor_of(cast("Scope", cycle.scope)) is not None

    def give_way(self) -> None:
        """Close, so that another connection has room."""
        self._give_up(503, NO_ROOM)

    def check_timeouts(self, now: float, patience_s: float) -> None:
        """Close a connection whose client is too slow. A large body has more time, unless its response was sent already."""
        allowed_s = 0.0 if self._answered_early() else self.body_bytes / SLOWEST
        if self.stalled_since is not None and now - self.stalled_since > STALLED_S:
            self.transport.abort()
        elif self.transport.is_closing():
            _abort_unread(self, now)
        elif self.awaited_since is not None and now - self.awaited_since > patience_s + allowed_s:
            self._give_up(408, f"the request did not arrive within {patience_s:g} s")
        elif self.unanswered and self.cycle.response_complete and not (self.in_fields or self.in_body):
            _forget_head(self)

    def _count(self, size: int) -> None:
        """Count the bytes of an incomplete head or trailer."""
        self.field_bytes += size
        if self.field_bytes > MOST_HEAD:
            self._give_up(431, f"the request's head or trailers are larger than {MOST_HEAD} bytes")
        else:
            whole = sum(self.unanswered.values())
            self.shared.hold(self, whole + self.field_bytes + LINE_BYTES * len(self.headers or ()))

    def _release(self) -> None:
        self.field_bytes = 0
        self.shared.hold(self, sum(self.unanswered.values()))

    def _answered_early(self) -> bool:
        return self.in_body and self.cycle.response_complete

    def _give_up(self, status: int, why: str) -> None:
        """Send an error if no response was sent yet, then close."""
        self.awaited_since = None
        if self.transport.is_closing():
            return
        if self._answered_early():
            self.transport.close()
            return
        cycle = cast("RequestResponseCycle | None", self.cycle)
        first = not self.pipeline  # else this would be the response to an earlier request
        if first and (cycle is None or cycle.response_complete or (cycle.more_body and not cycle.response_started)):
            self.transport.write(refusal(status, why).wire(*self.server_state.default_headers, CLOSE))
            if cycle is not None:
                cycle.disconnected = True  # it writes no second response
        self.transport.close()


def _count_head(connection: Connection, before: RequestResponseCycle) -> None:
    """Count the latest head, together with those of the requests before it."""
    address = 3 * len(connection.url)  # the request has it whole, and in two more forms
    size = address + sum(len(name) + len(value) + LINE_BYTES for name, value in connection.headers)
    held = {each: held for each, held in connection.unanswered.items() if not each.response_complete}
    if connection.pipeline:
        held.setdefault(before, 0)
        size += REQUEST_BYTES
    held[connection.cycle] = size
    connection.unanswered = held
    connection.shared.hold(connection, sum(held.values()))


def _forget_head(connection: Connection) -> None:
    """Free the latest request of an idle connection; `known` keeps whether it was authenticated."""
    connection.known = connection.authenticated()
    connection.cycle = connection.scope = None  # type: ignore[assignment]
    connection.url, connection.headers, connection.unanswered = b"", [], {}
    connection.shared.release(connection)


def _abort_unread(connection: Connection, now: float) -> None:
    """Abort a closing connection whose client does not read: else its socket would stay open."""
    unsent = connection.transport.get_write_buffer_size()
    if connection.closing_since is None or unsent < connection.unsent:
        connection.closing_since, connection.unsent = now, unsent
    elif now - connection.closing_since > CLOSING_S:
        connection.transport.abort()


def _shortcut(connection: Connection) -> bytes | None:
    """Return the chat, if the latest head can take the fast path."""
    parser, before = connection.parser, cast("RequestResponseCycle | None", connection.cycle)
    if not isinstance(connection.app, WebApp) or not (before is None or before.response_complete):
        return None
    if connection.expect_100_continue or parser.get_method() != b"POST" or parser.get_http_version() != "1.1":
        return None
    if not parser.should_keep_alive() or parser.should_upgrade():
        return None
    return connection.app.shortcut(connection.url, connection.headers)


async def _answer(connection: Connection, app: WebApp, cycle: MessageCycle) -> None:
    reply = await app.post(cycle.chat, bytes(cycle.body))
    cycle.response_started = cycle.response_complete = True
    if cycle.disconnected:
        return
    closing = () if cycle.keep_alive else (CLOSE,)
    connection.transport.write(reply.wire(*connection.server_state.default_headers, *closing))
    if reply.status < 300:
        points.reached("inbox.acknowledged")
    if closing:
        connection.transport.close()
    connection.on_response_complete()


def _parts(data: bytes) -> Iterator[bytes]:
    return (data[at : at + PART] for at in range(0, len(data), PART))


class GatewayServer(uvicorn.Server):
    """uvicorn's server without its signal handlers: the gateway stops it."""

    def __init__(self, config: uvicorn.Config, patience_s: float, bounds: Bounds) -> None:
        super().__init__(config)
        self.server_state = SharedState(bounds)
        self.ready = asyncio.Event()
        self._patience_s = patience_s

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Install no signal handlers."""
        yield

    async def startup(self, sockets: list[socket] | None = None) -> None:
        """Listen, then set `ready`."""
        await super().startup(sockets)
        self.ready.set()

    async def on_tick(self, counter: int) -> bool:
        """Check the timeouts of all connections once a second."""
        if counter % 10 == 0:
            now = asyncio.get_running_loop().time()
            for connection in self.open_connections():
                connection.check_timeouts(now, self._patience_s)
        return await super().on_tick(counter)

    def open_connections(self) -> list[Connection]:
        """Return the open connections."""
        return [each for each in self.server_state.connections if isinstance(each, Connection)]
