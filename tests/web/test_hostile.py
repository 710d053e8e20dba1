"""Hostile or slow clients: too much data, too little, never reading, gone without closing."""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from everturn.model import Delta, Event
from everturn.outbox.hub import BACKLOG, KeyWatch, Resync
from everturn.web.wire.connection import STALLED_S, Connection
from everturn.web.wire.limits import Bounds
from everturn.web.wire.server import PATIENCE_S, UNHEARD_MS
from tests.waiting import WAIT_S, poll, within
from tests.web.composition import SHARED, TOKEN, Web, running
from tests.web.test_connection import bodies, keep_waiting, sent, statuses

MEGABYTE = 1024 * 1024
AUTHORIZED = f"Host: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
WATCHING = f"GET /api/chats/alice/events HTTP/1.1\r\n{AUTHORIZED}\r\n".encode()


@pytest.fixture
async def web(tmp_path: Path) -> AsyncIterator[Web]:
    async with running(tmp_path) as started:
        yield started


@dataclass
class Deaf:
    """A client that watches alice and does not read; and the server's side of the connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    theirs: Connection

    async def read_until(self, text: bytes) -> bytes:
        """Read again, up to this text, or to the end."""
        seen = b""
        async with within(WAIT_S, lambda: seen[-300:]):
            while text not in seen[-300_000:] and (part := await self.reader.read(MEGABYTE)):
                seen += part
        return seen


@contextlib.asynccontextmanager
async def deaf(web: Web) -> AsyncIterator[Deaf]:
    before = set(web.serving.server.open_connections())
    mine = socket.socket()
    mine.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
    mine.connect(("127.0.0.1", web.serving.port))
    reader, writer = await asyncio.open_connection(sock=mine)
    writer.write(WATCHING)
    async with within(WAIT_S):
        await reader.readuntil(b"retry: 1000\n\n")
    (theirs,) = set(web.serving.server.open_connections()) - before
    try:
        yield Deaf(reader, writer, theirs)
    finally:
        writer.close()


async def say_much(web: Web) -> None:
    """Cause more events than the system buffers for a connection."""
    async with web.events("alice") as watcher:
        for number in range(60):
            await web.post("alice", f"m{number}", f"{number} " + "x" * 90_000)
            await watcher.until("reply")


async def test_a_reader_that_does_not_read_holds_little_and_misses_nothing(web: Web) -> None:
    async with deaf(web) as slow:
        await say_much(web)
        assert 0 < slow.theirs.transport.get_write_buffer_size() < MEGABYTE / 2
        seen = await slow.read_until(b"echo: 59 ")
    places = [seen.index(b'"text":"echo: %d ' % number) for number in range(60)]
    assert places == sorted(places)


async def test_a_client_that_never_reads_is_disconnected(web: Web) -> None:
    async with deaf(web) as slow:
        await say_much(web)
        slow.theirs.check_timeouts(asyncio.get_running_loop().time() + STALLED_S + 1, patience_s=30)
        assert b"echo: 59 " not in await slow.read_until(b"never said")  # it ended before


@SHARED
async def test_a_peer_that_vanishes_is_noticed_by_the_system(shared: Web) -> None:
    async with deaf(shared) as quiet:
        mine = quiet.theirs.transport.get_extra_info("socket")
        assert mine.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert mine.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == UNHEARD_MS


async def test_what_waits_for_a_slow_watcher_is_bounded_in_number_and_in_size() -> None:
    watch = KeyWatch()
    for number in range(10 * BACKLOG):
        watch.put(Event(number, "turn", "{}", 0.0))
    assert len(watch) <= BACKLOG
    for number in range(10):
        watch.put(Event(number, "reply", "x" * 100_000, 0.0))
    assert len(watch) <= 4
    assert isinstance(await watch.next(), Resync)


async def test_only_one_text_of_a_turn_waits_for_a_slow_watcher() -> None:
    watch = KeyWatch()
    for number in range(100):
        watch.put(Delta("1", "x" * number))
    watch.put(Delta("2", "y"))
    assert len(watch) == 2
    assert [await watch.next() for _ in "12"] == [Delta("1", ""), Delta("2", "y")]
    watch.put(Delta("2", "yy"))
    assert await watch.next() == Delta("2", "yy")


@SHARED
@pytest.mark.parametrize("path", ["/api/chats/alice/messages", "/web/conversations/alice/messages"])
async def test_five_megabytes_are_refused_and_the_connection_stays_open(shared: Web, path: str) -> None:
    body = json.dumps({"id": "long", "text": "x" * 5 * MEGABYTE}).encode()
    long = f"POST {path} HTTP/1.1\r\n{AUTHORIZED}Content-Length: {len(body)}\r\n\r\n".encode() + body
    body = json.dumps({"id": "short", "text": "short"}).encode()
    short = (
        f"POST {path} HTTP/1.1\r\n{AUTHORIZED}Connection: close\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
    )
    answers = await sent(shared, long + short)
    assert statuses(answers) == [b"413", b"202"]
    assert b"the limit for a message" in answers


async def test_a_body_that_goes_on_after_its_answer_ends_with_the_connection(tmp_path: Path) -> None:
    async with running(tmp_path) as web:
        reader, writer = await asyncio.open_connection("127.0.0.1", web.serving.port)
        head = f"POST /api/chats/alice/messages HTTP/1.1\r\n{AUTHORIZED}Content-Length: {50 * MEGABYTE}\r\n\r\n"
        writer.write(head.encode() + b"x" * MEGABYTE)
        async with within(WAIT_S):
            answer = await reader.readuntil(b"}")
            await poll(lambda: bodies(web) == [MEGABYTE], seen=lambda: bodies(web))
            keep_waiting(web, PATIENCE_S)
            answer += await reader.read()
        assert statuses(answer) == [b"413"]
        writer.close()


@SHARED
@pytest.mark.parametrize(
    ("path", "status"),
    [
        (f"/api/chats/{'x' * 30_000}/events", b"400"),
        (f"/web/conversations/{'%C3%A4' * 5_000}", b"400"),
        (f"/{'x' * 30_000}", b"404"),
        (f"/assets/{'x' * 30_000}", b"404"),
        (f"/files/{'x' * 30_000}/name", b"404"),
        (f"/api/chats/alice/events?after={'9' * 30_000}", b"400"),
    ],
)
async def test_an_address_that_is_far_too_long_gets_a_short_answer(shared: Web, path: str, status: bytes) -> None:
    answer = await sent(shared, f"GET {path} HTTP/1.1\r\n{AUTHORIZED}Connection: close\r\n\r\n".encode())
    assert statuses(answer) == [status]
    assert len(answer) < 2_000


async def test_connections_above_the_limit_get_503_and_the_others_go_on(tmp_path: Path) -> None:
    async with running(tmp_path, bounds=Bounds(connections=2)) as web, web.events("alice") as watcher:
        await web.post("alice", "m1", "hello")
        assert (await watcher.until("reply"))[-1].data["text"] == "echo: hello"
        answer = await sent(web, b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        assert statuses(answer) == [b"503"]
        assert b"too many open connections" in answer
        await web.post("alice", "m2", "again")
        assert (await watcher.until("reply"))[-1].data["text"] == "echo: again"
