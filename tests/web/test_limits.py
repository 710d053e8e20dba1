"""Limits of unauthenticated clients: header lines, trailers, incomplete heads, connections, pipelined requests."""

import asyncio
import contextlib
import gc
import socket
import struct
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from everturn.inbox.rows.inbox import Accepted
from everturn.model import Inbound
from everturn.web.wire.connection import (
    CLOSING_S,
    LINE_BYTES,
    MOST_HEAD,
    MOST_LINES,
    MOST_PIPELINED,
    REQUEST_BYTES,
    Connection,
)
from everturn.web.wire.limits import Bounds
from everturn.web.wire.server import PATIENCE_S
from tests.waiting import WAIT_S, poll, within
from tests.web.composition import SHARED, Web, running
from tests.web.test_connection import HEAD, post, sent, statuses

HEALTH = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
LOGIN = b"POST /login HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
BODY = b'c\r\n{"code":"x"}\r\n0\r\n'
WATCHING = HEAD.replace(b"POST /api/chats/alice/messages", b"GET /api/chats/alice/events") + b"\r\n"
LARGE = b"X: " + b"x" * 50_000 + b"\r\n\r\n"  # the last line of a head
FINE = {b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 202 Accepted\r\n"}
MUCH = b"GET /assets/main.js HTTP/1.1\r\nHost: localhost\r\n\r\n" * 16  # more than the system holds


class Client:
    """A client that sends bytes on demand."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def answer(self, data: bytes) -> bytes:
        """Send this; the first line that comes back, empty when the server closes."""
        self.writer.write(data)
        async with within(WAIT_S):
            return await self.reader.readline()

    async def rest(self) -> bytes:
        """What comes until the server closes."""
        async with within(WAIT_S):
            return await self.reader.read()


@contextlib.asynccontextmanager
async def clients(web: Web, *sending: bytes) -> AsyncIterator[list[Client]]:
    """One client after another; the next comes when the server has what the one before sent."""
    made: list[Client] = []
    try:
        for data in sending:
            made.append(Client(*await asyncio.open_connection("127.0.0.1", web.serving.port)))
            made[-1].writer.write(data)
            await arrived(web, made[-1], len(data))
        yield made
    finally:
        for each in made:
            each.writer.close()


def server_sides(web: Web, client: Client) -> list[Connection]:
    """The server's side of a client's connection; nothing before the server knows of it, or when it ended."""
    name = client.writer.get_extra_info("sockname")
    return [each for each in web.serving.server.open_connections() if each.client == name]


async def arrived(web: Web, client: Client, size: int) -> None:
    """Wait until the server has so much of a head or of trailers from this client."""

    def received() -> list[int]:
        return [each.field_bytes for each in server_sides(web, client)]

    await poll(lambda: received() >= [size], seen=received)


async def body_awaited(web: Web, client: Client) -> None:
    """Wait until the server has a whole head from this client."""
    await poll(lambda: [each.in_body for each in server_sides(web, client)] == [True])


@contextlib.asynccontextmanager
async def holding(home: Path) -> AsyncIterator[tuple[Web, asyncio.Event, asyncio.Event]]:
    """A server that blocks posted messages; an event that one came, and one that releases them."""
    came, go = asyncio.Event(), asyncio.Event()

    async def accept(inbound: Inbound) -> Accepted:
        came.set()
        await go.wait()
        return await web.world.gateway.intake.accept(inbound)

    async with running(home, accept=accept) as web:
        yield web, came, go


@contextlib.asynccontextmanager
async def unread(web: Web, number: int) -> AsyncIterator[list[socket.socket]]:
    """Open `count` connections, one after another, that request much and never read."""
    with contextlib.ExitStack() as stack:
        made = [stack.enter_context(socket.socket()) for _ in range(number)]
        for mine in made:
            mine.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2_048)
            mine.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 536)
            mine.connect(("127.0.0.1", web.serving.port))
            mine.sendall(MUCH)
            await stalled(web, mine.getsockname())
        yield made


async def stalled(web: Web, name: object) -> None:
    await poll(lambda: unsent(web).get(name, 0) > 0, seen=lambda: unsent(web))


def unsent(web: Web) -> dict[object, int]:
    """What the server could not send yet, by client."""
    return {each.client: each.transport.get_write_buffer_size() for each in web.serving.server.open_connections()}


def lines(number: int) -> bytes:
    return b"a: b\r\n" * number


@SHARED
async def test_more_header_lines_than_anybody_needs_are_refused(shared: Web) -> None:
    head = b"GET /health HTTP/1.1\r\nConnection: close\r\n"
    good, bad = [await sent(shared, head + lines(MOST_LINES - 1 + more) + b"\r\n") for more in (0, 1)]
    assert (statuses(good), statuses(bad)) == ([b"200"], [b"431"])
    assert b"more than 100 header lines" in bad


@SHARED
async def test_an_unfinished_head_with_too_many_lines_is_refused_before_it_is_whole(shared: Web) -> None:
    assert statuses(await sent(shared, b"GET / HTTP/1.1\r\n" + lines(MOST_LINES + 2))) == [b"431"]


@SHARED
@pytest.mark.parametrize("trailers", [b"x: " + b"x" * MOST_HEAD, lines(MOST_HEAD)])
async def test_endless_trailers_are_refused(shared: Web, trailers: bytes) -> None:
    begun = LOGIN + BODY
    async with clients(shared, begun) as (client,):
        client.writer.write(trailers[: MOST_HEAD - len(begun)])
        await arrived(shared, client, MOST_HEAD)
        assert await client.answer(b"x") == b"HTTP/1.1 431 Request Header Fields Too Large\r\n"


@SHARED
async def test_endless_trailers_of_a_request_that_is_answered_end_the_connection(shared: Web) -> None:
    refused = LOGIN.replace(b"/login", b"/control/stop").replace(b"Connection: close\r\n", b"")
    async with clients(shared, b"") as (client,):
        assert await client.answer(refused + BODY) == b"HTTP/1.1 401 Unauthorized\r\n"
        client.writer.write(b"x: " + b"x" * (MOST_HEAD - len(refused + BODY) - 2))
        assert (await client.rest()).endswith(b"}")


@SHARED
async def test_trailers_are_dropped(shared: Web) -> None:
    trailers = lines(1_000)
    async with clients(shared, LOGIN + BODY) as (client,):
        client.writer.write(trailers)
        await arrived(shared, client, len(LOGIN + BODY + trailers))
        assert [len(each.headers) for each in server_sides(shared, client)] == [3]
        assert await client.answer(b"\r\n") == b"HTTP/1.1 403 Forbidden\r\n"


async def test_unfinished_heads_hold_little_together_and_the_oldest_gives_way(tmp_path: Path) -> None:
    half = b"GET /health HTTP/1.1\r\nX: " + b"x" * 50_000
    async with (
        running(tmp_path, bounds=Bounds(held=3 * 50_100 + LINE_BYTES)) as web,
        clients(web, *[half] * 4) as (oldest, *others),
    ):
        assert statuses(await oldest.rest()) == [b"503"]
        assert [await each.answer(b"\r\n\r\n") for each in others] == [b"HTTP/1.1 200 OK\r\n"] * 3


async def test_short_header_lines_count_for_what_they_cost(tmp_path: Path) -> None:
    half = b"GET /health HTTP/1.1\r\n" + lines(90)
    async with (
        running(tmp_path, bounds=Bounds(held=3 * 90 * LINE_BYTES)) as web,
        clients(web, half, half, half) as (oldest, *_),
    ):
        assert statuses(await oldest.rest()) == [b"503"]


async def test_whole_heads_hold_little_together_and_the_oldest_without_a_credential_gives_way(tmp_path: Path) -> None:
    watching = WATCHING[:-2] + LARGE
    login = b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 12\r\n" + LARGE
    async with (
        running(tmp_path, bounds=Bounds(held=3 * 51_000)) as web,
        clients(web, *[b""] * 5) as (owner, oldest, *others),
    ):
        assert await owner.answer(watching) == b"HTTP/1.1 200 OK\r\n"
        for client in (oldest, *others):
            client.writer.write(login)
            await body_awaited(web, client)
        assert statuses(await oldest.rest()) == [b"503"]
        assert [await each.answer(b'{"code":"x"}') for each in others] == [b"HTTP/1.1 403 Forbidden\r\n"] * 3
        await web.post("alice", "m1", "hello")
        async with within(WAIT_S):
            await owner.reader.readuntil(b"echo: hello")


@pytest.mark.parametrize(("asked", "known"), [(HEALTH, False), (post("m1"), True)])
async def test_an_idle_connection_keeps_nothing_of_its_head(tmp_path: Path, asked: bytes, known: bool) -> None:  # noqa: FBT001
    async with running(tmp_path, bounds=Bounds(held=51_000)) as web, clients(web, b"", b"", b"") as several:
        for client in several:
            assert await client.answer(asked.replace(b"\r\n\r\n", b"\r\n" + LARGE, 1)) in FINE
            (connection,) = server_sides(web, client)
            connection.check_timeouts(asyncio.get_running_loop().time(), PATIENCE_S)
            assert not any([connection.headers, connection.url, connection.cycle, connection.scope])
            assert connection.authenticated() is known
            await client.reader.readuntil(b"}")
        assert [await client.answer(asked) in FINE for client in several] == [True] * 3


async def test_requests_that_wait_behind_one_another_count_for_what_they_cost(tmp_path: Path) -> None:
    async with running(tmp_path, bounds=Bounds(held=40 * REQUEST_BYTES, leaving=0)) as web, unread(web, 5):
        await poll(lambda: len(unsent(web)) == 2, seen=lambda: unsent(web))


async def test_an_address_has_so_many_connections_without_a_credential_and_the_oldest_gives_way(tmp_path: Path) -> None:
    async with (
        running(tmp_path, bounds=Bounds(of_address=2)) as web,
        clients(web, b"", b"G", b"") as (oldest, *others),
    ):
        assert statuses(await oldest.rest()) == [b"503"]
        rest = HEALTH[1:], HEALTH
        assert [await each.answer(end) for each, end in zip(others, rest, strict=True)] == [b"HTTP/1.1 200 OK\r\n"] * 2


async def test_connections_that_give_way_and_are_not_read_are_closed_all_the_same(tmp_path: Path) -> None:
    async with running(tmp_path, bounds=Bounds(of_address=2, leaving=1)) as web, unread(web, 8):
        await poll(lambda: len(unsent(web)) == 3, seen=lambda: unsent(web))


async def test_a_closing_connection_that_is_not_read_is_aborted_after_a_while(tmp_path: Path) -> None:
    async with running(tmp_path) as web, unread(web, 1):
        (connection,) = web.serving.server.open_connections()
        connection.timeout_keep_alive_handler()
        now = asyncio.get_running_loop().time()
        for passed_s in (0.0, CLOSING_S - 1, CLOSING_S + 1):
            assert len(unsent(web)) == 1
            connection.check_timeouts(now + passed_s, PATIENCE_S)
        await poll(lambda: not unsent(web), seen=lambda: unsent(web))


async def test_an_authenticated_connection_does_not_give_way(tmp_path: Path) -> None:
    async with running(tmp_path, bounds=Bounds(of_address=2)) as web, clients(web, b"", b"") as known:
        for client, request in zip(known, (WATCHING, post("m1")), strict=True):
            assert (await client.answer(request)).split()[1] in {b"200", b"202"}
        async with clients(web, b"", b"", b"") as (oldest, *_):
            assert statuses(await oldest.rest()) == [b"503"]
            await web.post("alice", "m2", "hello")
            async with within(WAIT_S):
                await known[0].reader.readuntil(b"echo: hello")
            await known[1].reader.readuntil(b"}")
            assert await known[1].answer(post("m1")) == b"HTTP/1.1 200 OK\r\n"


async def test_the_owner_connects_though_strangers_hold_all_connections(tmp_path: Path) -> None:
    async with running(tmp_path, bounds=Bounds(connections=3)) as web, clients(web, *[b"GET"] * 3) as (oldest, *_):
        assert (await web.post("alice", "m1", "hello")).status_code == 202
        assert statuses(await oldest.rest()) == [b"503"]


async def test_few_requests_wait_behind_one_another_and_those_are_answered(tmp_path: Path) -> None:
    async with holding(tmp_path) as (web, came, go):
        answering = asyncio.create_task(sent(web, post("m1") + HEALTH * 3 * MOST_PIPELINED))
        async with within(WAIT_S):
            await came.wait()
        (connection,) = web.serving.server.open_connections()
        await poll(lambda: connection.ending, seen=lambda: len(connection.pipeline))
        assert len(connection.pipeline) == MOST_PIPELINED
        go.set()
        answers = (await answering).split(b"HTTP/1.1 ")[1:]
    assert [answer[:3] for answer in answers] == [b"202"] + [b"200"] * MOST_PIPELINED
    assert [b"connection: close" in answer for answer in answers] == [False] * MOST_PIPELINED + [True]


async def test_a_stranger_who_hangs_up_in_a_body_leaves_no_error_in_the_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with running(tmp_path) as web:
        tasks = web.serving.server.server_state.tasks
        async with clients(web, b"") as (client,):
            client.writer.write(LOGIN + b"c\r\n{")
            await poll(lambda: len(tasks) == 1, seen=lambda: tasks)
        await poll(lambda: not tasks, seen=lambda: tasks)
    assert "request failed" not in capsys.readouterr().out


async def test_a_stranger_who_resets_the_connection_while_requests_wait_leaves_nothing_in_the_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path) as web:
        tasks = web.serving.server.server_state.tasks
        async with unread(web, 1) as (mine,):
            (connection,) = web.serving.server.open_connections()
            await poll(lambda: connection.stalled_since is not None and len(tasks) == 1, seen=lambda: tasks)
            assert len(connection.pipeline) > 1
            mine.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await poll(lambda: not tasks, seen=lambda: tasks)
        assert not connection.pipeline
    assert ("request failed" in capsys.readouterr().out, caplog.messages) == (False, [])


async def test_a_message_whose_connection_ended_while_requests_waited_behind_it_leaves_nothing_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with holding(tmp_path) as (web, came, go):
        async with clients(web, b"") as (client,):
            client.writer.write(post("m1") + HEALTH * 2)
            async with within(WAIT_S):
                await came.wait()
            (connection,) = web.serving.server.open_connections()
            await poll(lambda: len(connection.pipeline) == 2, seen=lambda: connection.pipeline)
            connection.transport.abort()  # it is not read from now, so nothing is noticed of a client that hangs up
        await poll(lambda: not web.serving.server.open_connections())
        go.set()
        await poll(lambda: not connection.tasks, seen=lambda: connection.tasks)
        gc.collect()  # a task's error is logged when the task is forgotten
    assert caplog.messages == []
