"""One HTTP connection, bounded: a client that sends half a request, an endless head, or never reads is let go."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from socket import socket

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from everturn.web.answers import encode

MOST_HEAD = 65_536
STALLED_S = 60.0


class Connection(HttpToolsProtocol):
    """uvicorn's connection, with the limits it lacks."""

    awaited_since: float | None = None  # a request is awaited or has come in part
    stalled_since: float | None = None  # the client does not read what it was sent
    in_head = True
    head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client that says nothing is not kept for ever."""
        super().connection_made(transport)
        self.awaited_since = self.loop.time()

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
        self.in_head, self.head_bytes = True, 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """The head is whole."""
        self.in_head = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """The request is whole; from now on the client waits for us."""
        self.awaited_since = None
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
        elif self.awaited_since is not None and now - self.awaited_since > patience_s:
            self._give_up(408, f"the request did not arrive within {patience_s:g} s")

    def _give_up(self, status: int, why: str) -> None:
        """Answer if nothing was answered yet, then close."""
        self.awaited_since = None
        if self.transport.is_closing():
            return
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None or cycle.response_complete or (cycle.more_body and not cycle.response_started):
            body = encode({"error": why})
            head = f"HTTP/1.1 {status} \r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
            self.transport.write(head.encode() + b"connection: close\r\n\r\n" + body)
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
