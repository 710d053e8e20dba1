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
from everturn.decide.access import network_of
from everturn.decide.web_words import NO_ROOM
from everturn.web.access import visitor_of
from everturn.web.answers import RETRY_AFTER_S, Header, answer, refusal, retry_after
from everturn.web.app import WebApp
from everturn.web.limits import Bounds, Shared

MOST_HEAD = 65_536
MOST_LINES = 100
LINE_BYTES = 160  # what a header line costs in memory beside its bytes
SMALL_HEAD, FEW_LINES = 1_024, 24  # a whole head up to this costs less than its connection does, and is not counted
REQUEST_BYTES = 4_096  # what a request that waits behind another costs in memory beside its head
MOST_PIPELINED = 32
PART = 16_384  # the parser gets no more at once, so that sizes are known this exactly
STALLED_S = 60.0
CLOSING_S = 10.0  # a closing connection is aborted when the client took nothing of the rest for so long
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


class Stop(Exception):
    """Raised in a callback of the parser to end it; uvicorn then calls `send_400_response`."""


class Connection(HttpToolsProtocol):
    """uvicorn's connection, with the limits it lacks and a short way for posted messages.

    What is not ordinary (a chunked body, no token, too large, pipelined behind another) goes the usual way through ASGI.
    """

    awaited_since: float | None = None  # a request is awaited or has come in part
    stalled_since: float | None = None  # the client does not read what it was sent
    in_fields = True  # what comes belongs to a head, or to the trailers of a chunked body
    in_body = False
    field_bytes = 0  # of an unfinished head or of unfinished trailers
    body_bytes = 0
    crowded = False  # there was no room for it
    ending = False  # what the client still sends is not read
    stopped: tuple[int, str] | None = None  # why the parser was ended
    closing_since: float | None = None  # since when a closing connection has had the same rest to send
    unsent: int = 0  # that rest, in bytes
    part_bytes = 0  # of what the parser was given last
    known = False  # whether the latest request showed a valid credential, once its cycle is dropped

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client that says nothing is not kept for ever."""
        super().connection_made(transport)
        self.awaited_since = self.loop.time()
        self.shared = cast("Shared", self.server_state)
        self.address = network_of(self.client[0]) if self.client else ""
        self.unanswered: dict[RequestResponseCycle, int] = {}  # what counts of each request that is large or not alone
        self.crowded = not self.shared.enter(self)
        if self.crowded and len(self.connections) > self.shared.bounds.connections + ABOVE:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """It counts no longer. Every request learns of it, not only the newest: else the one being answered writes on, and fails."""
        for cycle in self.unanswered:
            cycle.disconnected = True
            cycle.message_event.set()
        self.pipeline.clear()
        super().connection_lost(exc)
        self._unset_keepalive_if_required()  # uvicorn does it only for a client that said goodbye
        self.shared.leave(self)

    def data_received(self, data: bytes) -> None:
        """Feed the parser; what is not a whole head yet counts against the limit."""
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
        """A head begins."""
        if len(self.pipeline) >= MOST_PIPELINED:
            self.ending, self.cycle.keep_alive = True, False  # those before are answered; the last answer says so
            raise Stop
        if self.unanswered and self.cycle.response_complete:
            _forget_head(self)
        if self.field_bytes:
            self._release()
        self.in_fields, self.body_bytes = True, 0
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """A line of the head; trailers are dropped."""
        if self.in_body:
            return
        if len(self.headers) >= MOST_LINES:
            self.stopped = 431, f"the request has more than {MOST_LINES} header lines"
            raise Stop
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head is whole. A large one, and each that waits behind another request, counts until all are answered."""
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
            self.cycle = Quick(chat)
        self.in_body = True  # only now: an address that is none ends the parser before there is a cycle
        if large or self.pipeline:
            _count_head(self, before)

    def on_chunk_header(self) -> None:
        """A chunk follows, or the trailers, which the parser holds line by line."""
        if self.field_bytes:
            self._release()
        self.in_fields = True

    def on_body(self, body: bytes) -> None:
        """A part of the body; that of an ordinary message is as small as was announced."""
        if self.field_bytes:
            self._release()
        self.in_fields = False
        self.body_bytes += len(body)
        if isinstance(self.cycle, Quick):
            self.cycle.body += body
        else:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is whole; from now on the client waits for us."""
        if self.field_bytes:
            self._release()
        self.awaited_since, self.in_fields, self.in_body = None, False, False
        if isinstance(self.cycle, Quick):
            self.cycle.more_body = False
            task = self.loop.create_task(_answer(self, self.app, self.cycle))
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
        """What is not HTTP is refused like everything else. (uvicorn calls this whenever the parser ended.)"""
        if not self.ending:
            self._give_up(*self.stopped or (400, msg.removesuffix(".").lower()))

    def authenticated(self) -> bool:
        """Whether its latest request showed a valid credential."""
        cycle = cast("RequestResponseCycle | None", self.cycle)
        if cycle is None:
            return self.known
        return isinstance(cycle, Quick) or visitor_of(cast("Scope", cycle.scope)) is not None

    def give_way(self) -> None:
        """End, so that another has room."""
        self._give_up(503, NO_ROOM)

    def look(self, now: float, patience_s: float) -> None:
        """Let go of a client that keeps us waiting. A large body has more time; not one whose answer is out already: nobody reads it."""
        allowed_s = 0.0 if self._answered_early() else self.body_bytes / SLOWEST
        if self.stalled_since is not None and now - self.stalled_since > STALLED_S:
            self.transport.abort()
        elif self.transport.is_closing():
            _look_at_rest(self, now)
        elif self.awaited_since is not None and now - self.awaited_since > patience_s + allowed_s:
            self._give_up(408, f"the request did not arrive within {patience_s:g} s")
        elif self.unanswered and self.cycle.response_complete and not (self.in_fields or self.in_body):
            _forget_head(self)

    def _count(self, size: int) -> None:
        """An unfinished head or trailer has grown."""
        self.field_bytes += size
        if self.field_bytes > MOST_HEAD:
            self._give_up(431, f"the request's head, or its trailers, are larger than {MOST_HEAD} bytes")
        else:
            whole = sum(self.unanswered.values())
            self.shared.hold(self, whole + self.field_bytes + LINE_BYTES * len(self.headers or ()))

    def _release(self) -> None:
        self.field_bytes = 0
        self.shared.hold(self, sum(self.unanswered.values()))

    def _answered_early(self) -> bool:
        return self.in_body and self.cycle.response_complete

    def _give_up(self, status: int, why: str) -> None:
        """Answer if nothing was answered yet, then close."""
        self.awaited_since = None
        if self.transport.is_closing():
            return
        if self._answered_early():
            self.transport.close()
            return
        cycle = cast("RequestResponseCycle | None", self.cycle)
        first = not self.pipeline  # else an earlier request would be given this answer
        if first and (cycle is None or cycle.response_complete or (cycle.more_body and not cycle.response_started)):
            self.transport.write(refusal(status, why).wire(*self.server_state.default_headers, CLOSE))
            if cycle is not None:
                cycle.disconnected = True  # it writes no second answer
        self.transport.close()


def _count_head(connection: Connection, before: RequestResponseCycle) -> None:
    """Count the head that just came, together with those of the requests that it waits for."""
    address = 3 * len(connection.url)  # the request has it whole, and in two forms
    size = address + sum(len(name) + len(value) + LINE_BYTES for name, value in connection.headers)
    held = {each: held for each, held in connection.unanswered.items() if not each.response_complete}
    if connection.pipeline:
        held.setdefault(before, 0)
        size += REQUEST_BYTES
    held[connection.cycle] = size
    connection.unanswered = held
    connection.shared.hold(connection, sum(held.values()))


def _forget_head(connection: Connection) -> None:
    """Drop what an idle connection still has of its latest request; whether it showed a credential is kept."""
    connection.known = connection.authenticated()
    connection.cycle = connection.scope = None  # type: ignore[assignment]
    connection.url, connection.headers, connection.unanswered = b"", [], {}
    connection.shared.release(connection)


def _look_at_rest(connection: Connection, now: float) -> None:
    """Abort a closing connection whose client does not read: else its socket stays open as long as the client likes."""
    unsent = connection.transport.get_write_buffer_size()
    if connection.closing_since is None or unsent < connection.unsent:
        connection.closing_since, connection.unsent = now, unsent
    elif now - connection.closing_since > CLOSING_S:
        connection.transport.abort()


def _shortcut(connection: Connection) -> bytes | None:
    """The chat, if the head that just came can be answered the short way."""
    parser, before = connection.parser, cast("RequestResponseCycle | None", connection.cycle)
    if not isinstance(connection.app, WebApp) or not (before is None or before.response_complete):
        return None
    if connection.expect_100_continue or parser.get_method() != b"POST" or parser.get_http_version() != "1.1":
        return None
    if not parser.should_keep_alive() or parser.should_upgrade():
        return None
    return connection.app.shortcut(connection.url, connection.headers)


async def _answer(connection: Connection, app: WebApp, cycle: Quick) -> None:
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


class Server(uvicorn.Server):
    """uvicorn's server without its signal handlers: stopping is the gateway's business."""

    def __init__(self, config: uvicorn.Config, patience_s: float, bounds: Bounds) -> None:
        super().__init__(config)
        self.server_state = Shared(bounds)
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
