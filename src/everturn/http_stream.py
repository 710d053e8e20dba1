"""An HTTP/1.1 client for responses that are streamed: kept connections, TLS, an outbound proxy, and nothing between the bytes and who reads them.

A request is a POST with a body that is in memory. What arrives is joined until somebody reads it; who does not read stops the
server, not the process. There are no redirects, no cookies and no compression. Ending a call early closes its connection.
"""

from __future__ import annotations

import asyncio
import math
import os
import re
import socket
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import zip_longest
from pathlib import Path
from typing import cast

import httptools

from everturn.http_route import ServerRoute

CONNECT_S = 10.0  # name, connection, proxy and TLS together
NEXT_ADDRESS_S = 0.25  # after this the next address of a server is tried, too
IDLE_S = 30.0  # an unused connection is closed after this; servers keep them from 5 s to some minutes
DRAIN_S = 2.0  # how long the end of a response that was read may take, so that its connection can be used again
MOST_CONNECTIONS = 500  # of one route; further calls wait
MOST_IDLE = 100
MOST_HEAD = 262_144
UNREAD = 1_048_576  # with so many unread bytes reading stops
PIECE = 262_144  # of a large body at once
# Where a system keeps its CA bundle whose Python does not know it.
BUNDLES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem")  # fmt: skip


class StreamBroken(OSError):
    """There was no connection, or it ended before the response did. The text says which, and holds no secret."""


@cache
def tls_context() -> ssl.SSLContext:
    """The TLS context with the CA bundle: `SSL_CERT_FILE`, `SSL_CERT_DIR`, or the system's. Loading it blocks for a tenth of a second."""
    file, folder = os.environ.get("SSL_CERT_FILE") or None, os.environ.get("SSL_CERT_DIR") or None
    context = ssl.create_default_context(cafile=file, capath=None if file else folder)
    known = ssl.get_default_verify_paths()
    if not (file or folder or known.cafile or known.capath):
        bundle = next((each for each in BUNDLES if Path(each).is_file()), None)
        context.load_verify_locations(bundle) if bundle else None
    context.set_alpn_protocols(["http/1.1"])
    return context


@dataclass(frozen=True, slots=True)
class Posting:
    """What all requests to one address have in common."""

    route: ServerRoute
    head: bytes  # without the length of the body

    @classmethod
    def of(cls, route: ServerRoute, target: str, headers: Mapping[str, str]) -> Posting:
        """A request head. Raises ValueError for a header that cannot be sent."""
        plain = route.proxy if not route.tls else None
        lines = {"Host": route.authority, "Accept-Encoding": "identity", **headers}
        if plain is not None and plain.authorization:
            lines["Proxy-Authorization"] = plain.authorization
        if not all(text.isascii() and text.isprintable() for text in (target, *lines.values())) or " " in target:
            raise ValueError("a header or the address has a character that HTTP does not allow")
        path = f"http://{route.authority}{target}" if plain is not None else target
        head = f"POST {path} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        return cls(route, head.encode())


class IncomingResponse:
    """A response as far as it has arrived: the parser calls it, and who reads takes from it."""

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._interim = False
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        self.head_bytes = 0
        self.unread: list[bytes] = []
        self.unread_bytes = 0
        self.unwanted = False  # nobody reads the rest
        self.sized = self.keeps = False
        self.heard = self.has_head = self.complete = False

    def feed(self, data: bytes) -> None:
        """Parse. Raises what httptools raises."""
        self.heard = True
        self._parser.feed_data(data)
        if not self.has_head:
            self.head_bytes += len(data)

    def on_message_begin(self) -> None:
        """Distrust a connection on which a second response follows the first."""
        self.keeps = self.keeps and not self.complete

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header; of several with one name the last."""
        self.headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        """Note the status, and here whether the connection stays: later the parser says so of no response at all."""
        self.status = self._parser.get_status_code()
        self._interim = 100 <= self.status < 200
        if self._interim:
            self.headers = {}
            return
        self.keeps = self._parser.should_keep_alive()
        self.sized = (
            b"content-length" in self.headers
            or b"chunked" in self.headers.get(b"transfer-encoding", b"").lower()
            or self.status in {204, 304}
        )
        self.has_head = True

    def on_body(self, body: bytes) -> None:
        """Keep a part of the body."""
        if not self.unwanted:
            self.unread.append(body)
            self.unread_bytes += len(body)

    def on_message_complete(self) -> None:
        """Note the end of the response."""
        self.complete = not self._interim

    def take(self) -> bytes:
        """What arrived and was not taken yet."""
        data = self.unread[0] if len(self.unread) == 1 else b"".join(self.unread)
        self.unread, self.unread_bytes = [], 0
        return data


class StreamConnection(asyncio.Protocol):
    """One connection: writes a request, and wakes who waits for its response."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiter: asyncio.Future[None] | None = None  # of who waits for the response
        self._ended: Callable[[], None] | None = None  # called at the end of a response that nobody reads any more
        self._room: asyncio.Future[None] | None = None  # of who waits until more can be written
        self._why: StreamBroken | None = None
        self._paused = False
        self.transport = cast("asyncio.Transport", None)
        self.response = IncomingResponse()
        self.lost = False
        self.idle_since: float | None = None  # since when it waits for its next request

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Parse, and wake the reader once."""
        if self.idle_since is not None:
            self.transport.close()  # nobody asked: a server says so that it closes
            return
        response = self.response
        try:
            response.feed(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._fail("the server did not answer in HTTP")
        if response.head_bytes > MOST_HEAD:
            self._fail(f"the head of the response is longer than {MOST_HEAD} bytes")
        if response.unread_bytes > UNREAD and not self._paused and not self.lost:
            self._paused = True
            self.transport.pause_reading()
        self._wake()
        if response.has_head:
            self.resume_writing()  # whoever still writes a body finds the answer, which may be a refusal
        if response.complete:
            self._end()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the response: a response without a length ends here, any other one is broken."""
        self.lost = True
        response = self.response
        if exc is None and response.has_head and not response.sized:
            response.complete = True
        if not response.complete and self._why is None:
            self._why = StreamBroken("the connection was closed" if exc is None else f"the connection was lost: {exc}")
        self._wake()
        self.resume_writing()
        self._end()

    def pause_writing(self) -> None:
        """The server does not read: `send` waits."""
        self._room = self._loop.create_future()

    def resume_writing(self) -> None:
        """The server reads again, or the connection is gone."""
        room, self._room = self._room, None
        if room is not None and not room.done():
            room.set_result(None)

    # What the client calls.

    async def send(self, head: bytes, body: bytes) -> None:
        """Write a request and wait for the head of its response. Raises StreamBroken."""
        self.response, self._why, self.idle_since = IncomingResponse(), None, None
        if self.lost or self.transport.is_closing():
            raise StreamBroken("the connection was closed")
        self.transport.write(head + body[:PIECE])
        for at in range(PIECE, len(body), PIECE):
            if self._room is not None:
                await self._room
            if self._settled():  # the server answers before it has read everything: a refusal
                self.response.keeps = False
                break
            self.transport.write(body[at : at + PIECE])
        while not self.response.has_head:
            await self._more()

    async def read(self) -> bytes:
        """All that arrived since the last call; empty at the end. Raises StreamBroken when the end is missing."""
        response = self.response
        while not response.unread:
            if response.complete:
                return b""
            await self._more()
        data = response.take()
        self._resume_reading()
        return data

    async def secure(self, context: ssl.SSLContext, host: str) -> None:
        """Go on in TLS, as the proxy is through to the server."""
        made = await self._loop.start_tls(self.transport, self, context, server_hostname=host)
        if made is None:
            raise StreamBroken("the connection was closed")
        self.transport = made

    @property
    def reusable(self) -> bool:
        """Whether another request can be sent."""
        return self.response.complete and self.ends_soon

    @property
    def ends_soon(self) -> bool:
        """Whether it can be used again as soon as the rest of its response has arrived."""
        return self.response.keeps and self.response.has_head and not self.lost and not self.transport.is_closing()

    def drain(self, ended: Callable[[], None]) -> None:
        """Forget the rest of the response; call back at its end, or when the connection is gone."""
        self._ended, self.response.unwanted = ended, True
        self._resume_reading()

    def _end(self) -> None:
        ended, self._ended = self._ended, None
        if ended is not None:
            ended()

    def _resume_reading(self) -> None:
        if self._paused and not self.lost:
            self._paused = False
            self.transport.resume_reading()

    def _settled(self) -> bool:
        """Whether nothing that is still written can change the response."""
        return self.lost or self.response.has_head

    async def _more(self) -> None:
        if self._why is not None:
            raise self._why
        waiter = self._waiter = self._loop.create_future()
        try:
            await waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _fail(self, why: str) -> None:
        self._why = StreamBroken(why)
        self.response.keeps = False
        self.transport.abort()


@dataclass(slots=True)
class _Lane:
    """The connections of one route."""

    room: asyncio.Semaphore
    idle: list[StreamConnection] = field(default_factory=list)  # the one used last at the end


class HttpResponse:
    """A response that is read as it arrives. Call `finish` when all that is wanted was read, else `close`; both may be called."""

    def __init__(self, streams: HttpStreams, lane: _Lane, connection: StreamConnection) -> None:
        self._streams = streams
        self._lane = lane
        self._connection: StreamConnection | None = connection
        self.status = connection.response.status
        self.headers = connection.response.headers
        self.read = connection.read

    async def rest(self, most: int) -> bytes:
        """The rest of the body, at most about so many bytes of it: an error's page may be endless."""
        parts, size = [], 0
        while size < most and (data := await self.read()):
            parts.append(data)
            size += len(data)
        return b"".join(parts)[:most]

    def finish(self) -> None:
        """Give the connection back; what is missing of the response may still come within a moment."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self._streams.give_back(self._lane, connection)

    def close(self) -> None:
        """End the call: a response that has not ended costs its connection."""
        connection = self._connection
        if connection is not None and not connection.response.complete:
            connection.transport.abort()
        self.finish()


class HttpStreams:
    """The connections of one client. It belongs to one event loop, from its first request on."""

    def __init__(
        self,
        most: int = MOST_CONNECTIONS,
        *,
        idle_s: float = IDLE_S,
        connect_s: float = CONNECT_S,
        trusted: Callable[[], ssl.SSLContext] = tls_context,
    ) -> None:
        self._most = most
        self._idle_s = idle_s
        self._connect_s = connect_s
        self._trusted = trusted
        self._lanes: dict[ServerRoute, _Lane] = {}
        self._open: set[StreamConnection] = set()
        self._sweeping: asyncio.TimerHandle | None = None

    async def post(self, posting: Posting, body: bytes) -> HttpResponse:
        """Send a request; returns when the head of its response is there. Raises StreamBroken.

        A request that a kept connection lost before a single byte of the response is sent once more, on a new connection: a
        server closes unused connections when it wants to, and such a request met its FIN, so most probably nobody read it. A
        request to a model changes nothing but an account, and the table of outcomes would ask again all the same. A request
        on a new connection, or one that was answered by as little as a byte, is never repeated here.
        """
        lane = self._lanes.get(posting.route)
        if lane is None:
            lane = self._lanes[posting.route] = _Lane(asyncio.Semaphore(self._most))
        await lane.room.acquire()
        connection: StreamConnection | None = None
        head = b"%bContent-Length: %d\r\n\r\n" % (posting.head, len(body))
        try:
            if (connection := self._kept(lane)) is not None:
                try:
                    await connection.send(head, body)
                    return HttpResponse(self, lane, connection)
                except StreamBroken:
                    if connection.response.heard:
                        raise
                    self._drop(connection)
            connection = await self._connected(posting.route)
            await connection.send(head, body)
            return HttpResponse(self, lane, connection)
        except BaseException:
            lane.room.release()
            if connection is not None:
                self._drop(connection)
            raise

    def give_back(self, lane: _Lane, connection: StreamConnection) -> None:
        """Keep a connection whose response was read, as soon as that has ended."""
        lane.room.release()
        if connection.ends_soon and not connection.response.complete:
            late = asyncio.get_running_loop().call_later(DRAIN_S, self._drop, connection)

            def ended() -> None:
                late.cancel()
                self._keep(lane, connection)

            connection.drain(ended)
        else:
            self._keep(lane, connection)

    async def close(self) -> None:
        """Close all connections, at once."""
        if self._sweeping is not None:
            self._sweeping.cancel()
        for connection in list(self._open):
            self._drop(connection)
        self._lanes.clear()

    def _keep(self, lane: _Lane, connection: StreamConnection) -> None:
        if not connection.reusable:
            self._drop(connection)
            return
        loop = asyncio.get_running_loop()
        connection.idle_since = loop.time()
        lane.idle.append(connection)
        if len(lane.idle) > MOST_IDLE:
            self._drop(lane.idle.pop(0))
        if self._sweeping is None:
            self._sweeping = loop.call_later(self._idle_s, self._sweep)

    def _kept(self, lane: _Lane) -> StreamConnection | None:
        """The kept connection that was used last; None if there is none."""
        now = asyncio.get_running_loop().time()
        while lane.idle:
            connection = lane.idle.pop()
            if connection.reusable and now - (connection.idle_since or 0.0) < _kept_s(connection.response):
                return connection
            self._drop(connection)
        return None

    def _sweep(self) -> None:
        """Close what was not used for too long; goes on as long as anything is kept."""
        self._sweeping, loop = None, asyncio.get_running_loop()
        before = loop.time() - self._idle_s
        for lane in self._lanes.values():
            for connection in lane.idle:
                if connection.lost or (connection.idle_since or 0.0) <= before:
                    self._drop(connection)
            lane.idle = [each for each in lane.idle if each in self._open]
        oldest = min((lane.idle[0].idle_since or 0.0 for lane in self._lanes.values() if lane.idle), default=None)
        if oldest is not None:
            self._sweeping = loop.call_at(oldest + self._idle_s, self._sweep)

    def _drop(self, connection: StreamConnection) -> None:
        self._open.discard(connection)
        connection.transport.abort()

    async def _connected(self, route: ServerRoute) -> StreamConnection:
        """A new connection. Raises StreamBroken."""
        try:
            async with asyncio.timeout(self._connect_s):
                return await self._connect(route)
        except TimeoutError:
            why = f"no connection to {route.host} within {self._connect_s:g} s"
        except StreamBroken:
            raise
        except OSError as error:
            why = f"no connection to {route.host}: {error.strerror or error}"
        raise StreamBroken(why)

    async def _connect(self, route: ServerRoute) -> StreamConnection:
        loop, proxy = asyncio.get_running_loop(), route.proxy
        first = proxy or route
        context = await asyncio.to_thread(self._trusted) if route.tls or first.tls else None
        found = await loop.getaddrinfo(first.host, first.port, type=socket.SOCK_STREAM)
        addresses = list(dict.fromkeys(str(each[4][0]) for each in found))
        connection = await first_connected(addresses, first.port, context if first.tls else None, first.host)
        self._open.add(connection)
        try:
            if proxy is not None and context is not None and route.tls:
                await _tunnel(connection, route)
                await connection.secure(context, route.host)
        except BaseException:
            self._drop(connection)
            raise
        return connection


async def first_connected(
    addresses: Sequence[str], port: int, context: ssl.SSLContext | None, host: str
) -> StreamConnection:
    """Connect to the first address that answers; one that is slow to answer waits for no other. Raises OSError.

    Where a name has addresses of a network that leads nowhere, as IPv6 sometimes does, it costs a quarter of a second.
    """
    loop = asyncio.get_running_loop()
    families = [
        [each for each in addresses if (":" in each) is six] for six in (":" in addresses[0], ":" not in addresses[0])
    ]
    left = [each for pair in zip_longest(*families) for each in pair if each is not None]
    trying: set[asyncio.Task[tuple[asyncio.BaseTransport, StreamConnection]]] = set()
    failed: BaseException | None = None
    won: StreamConnection | None = None
    try:
        while won is None and (left or trying):
            if left:
                connecting = loop.create_connection(
                    lambda: StreamConnection(loop),
                    left.pop(0),
                    port,
                    ssl=context,
                    server_hostname=host if context else None,
                )
                trying.add(asyncio.ensure_future(connecting))
            done, trying = await asyncio.wait(
                trying, timeout=NEXT_ADDRESS_S if left else None, return_when=asyncio.FIRST_COMPLETED
            )
            for each in done:
                if (error := each.exception()) is not None:
                    failed = error
                elif won is None:
                    won = each.result()[1]
                else:
                    each.result()[0].abort()  # type: ignore[attr-defined]  # both at once
    finally:
        for each in trying:
            each.add_done_callback(_abort_unwanted)
            each.cancel()
    if won is None:
        raise failed or OSError("its name has no address")
    return won


def _abort_unwanted(connecting: asyncio.Task[tuple[asyncio.BaseTransport, StreamConnection]]) -> None:
    """Close a connection that was made after all, though nobody waits for it any more."""
    if not connecting.cancelled() and connecting.exception() is None:
        connecting.result()[1].transport.abort()


def _kept_s(response: IncomingResponse) -> float:
    """How long a server keeps an unused connection, by its own word; a second less, as our word takes its time as well."""
    said = re.search(rb"timeout=(\d{1,6})", response.headers.get(b"keep-alive", b""))
    return max(0.0, int(said[1]) - 1.0) if said else math.inf


async def _tunnel(connection: StreamConnection, route: ServerRoute) -> None:
    """Let the proxy connect to the server. Raises StreamBroken."""
    name = f"[{route.host}]" if ":" in route.host else route.host
    at = f"{name}:{route.port}"
    secret = route.proxy.authorization if route.proxy is not None else None
    allowed = f"Proxy-Authorization: {secret}\r\n" if secret else ""
    await connection.send(f"CONNECT {at} HTTP/1.1\r\nHost: {at}\r\n{allowed}\r\n".encode(), b"")
    if not 200 <= connection.response.status < 300:
        raise StreamBroken(f"the proxy did not connect to {route.host}: it answered {connection.response.status}")
