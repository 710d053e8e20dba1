"""The HTTP client for streams, against servers that send whatever bytes a test wants."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop

from everturn.http_route import ServerRoute, route_to
from everturn.http_stream import HttpStreams, Posting, StreamBroken, first_connected
from tests.raw_server import (
    CHUNKED,
    END,
    Answers,
    OwnAuthority,
    RawConnection,
    RawServer,
    always,
    chunk,
    passing_on,
    whole,
)
from tests.waiting import PATIENCE, WAIT_S, within

HELLO = CHUNKED + chunk(b"hello") + END
MANY = 64 * 1024 * 1024


def posting(url: str, **env: str) -> Posting:
    return Posting.of(route_to(url, env), "/v1/x", {"Authorization": "Bearer k"})


async def ask(streams: HttpStreams, to: Posting, body: bytes = b"{}") -> bytes:
    """Ask once, and read the response to its end."""
    response = await streams.post(to, body)
    try:
        parts = []
        while data := await response.read():
            parts.append(data)
        response.finish()
    finally:
        response.close()
    return b"".join(parts)


@asynccontextmanager
async def serving(
    answers: Answers, most: int = 100, **how: Any
) -> AsyncIterator[tuple[RawServer, HttpStreams, Posting]]:
    streams = HttpStreams(most, **how)
    async with RawServer(answers) as server, within(WAIT_S, lambda: f"{server.requests} requests"):
        yield server, streams, posting(server.url)
        await streams.close()


async def asked_often(response: bytes, times: int = 100) -> int:
    """How many connections so many requests need."""
    async with serving(always(response)) as (server, streams, to):
        for _ in range(times):
            assert await ask(streams, to) == b"hello"
        assert server.requests == times
        return len(server.connections)


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_hundred_requests_need_one_connection(loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """The parser knows only while it reads the head whether the connection stays: asked later, it says so of none."""
    with asyncio.Runner(loop_factory=loop) as runner:
        assert runner.run(asked_often(HELLO)) == 1
        assert runner.run(asked_often(whole(b"hello"))) == 1
        assert runner.run(asked_often(whole(b"hello", "200 OK", "Connection: close"), 3)) == 3


async def test_calls_at_the_same_time_have_a_connection_each_and_keep_them() -> None:
    async with serving(always(HELLO)) as (server, streams, to):
        for _ in range(5):
            await asyncio.gather(*(ask(streams, to) for _ in range(8)))
        assert (len(server.connections), server.requests) == (8, 40)


@pytest.mark.parametrize("at", range(len(HELLO)))
async def test_a_response_may_come_in_pieces_that_end_anywhere(at: int) -> None:
    early = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
    async with serving(always(early, HELLO[:at], HELLO[at:])) as (_, streams, to):
        assert await ask(streams, to) == b"hello"


async def test_what_is_sent_is_a_request_that_asks_for_no_compression() -> None:
    async with serving(always(HELLO)) as (server, streams, to):
        await ask(streams, to, b'{"a":1}')
        [connection] = server.connections
    lines = connection.heads[0].decode().split("\r\n")
    assert lines[0] == "POST /v1/x HTTP/1.1"
    assert {f"Host: 127.0.0.1:{server.port}", "Authorization: Bearer k", "Accept-Encoding: identity", "Content-Length: 7"} < set(lines)  # fmt: skip
    assert connection.bodies == [b'{"a":1}']


@pytest.mark.parametrize("value", ["a\r\nEvil: 1", "ü", "\0"])
def test_a_header_cannot_hold_another_one(value: str) -> None:
    with pytest.raises(ValueError, match="HTTP does not allow"):
        Posting.of(ServerRoute(False, "x", 80), "/", {"Authorization": value})
    with pytest.raises(ValueError, match="HTTP does not allow"):
        Posting.of(ServerRoute(False, "x", 80), f"/{value} y", {})


async def closing_when_asked_twice(connection: RawConnection) -> None:
    await connection.request()
    await connection.send(HELLO)
    await connection.request()


async def test_a_request_that_met_the_end_of_a_kept_connection_is_sent_once_more() -> None:
    async with serving(closing_when_asked_twice) as (server, streams, to):
        assert [await ask(streams, to) for _ in range(3)] == [b"hello"] * 3
        assert (len(server.connections), server.requests) == (3, 5)


async def test_a_kept_connection_that_was_closed_before_is_not_used() -> None:
    async def once(connection: RawConnection) -> None:
        await connection.request()
        await connection.send(HELLO)

    async with serving(once) as (server, streams, to):
        assert await ask(streams, to) == b"hello"
        await server.connections[0].ended.wait()
        assert await ask(streams, to) == b"hello"
        assert server.requests == 2


@pytest.mark.parametrize("first", [b"", HELLO])
async def test_a_request_that_may_have_been_read_is_never_repeated(first: bytes) -> None:
    """On a new connection, or when as little as a byte of a response came."""

    async def breaks_off(connection: RawConnection) -> None:
        await connection.request()
        if first:
            await connection.send(first)
            await connection.request()
            await connection.send(b"H")

    async with serving(breaks_off) as (server, streams, to):
        if first:
            await ask(streams, to)
        with pytest.raises(StreamBroken, match="closed"):
            await ask(streams, to)
        assert server.requests == (2 if first else 1)


@pytest.mark.parametrize("start", [CHUNKED + chunk(b"hello"), b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello"])
async def test_a_response_without_its_end_is_broken(start: bytes) -> None:
    async def breaks_off(connection: RawConnection) -> None:
        await connection.request()
        await connection.send(start)

    async with serving(breaks_off) as (_, streams, to):
        response = await streams.post(to, b"")
        assert await response.read() == b"hello"
        with pytest.raises(StreamBroken):
            await response.read()
        response.close()


async def test_a_response_without_a_length_ends_with_its_connection() -> None:
    async def ends(connection: RawConnection) -> None:
        await connection.request()
        await connection.send(b"HTTP/1.1 200 OK\r\n\r\nhel", b"lo")

    async with serving(ends) as (server, streams, to):
        assert [await ask(streams, to) for _ in range(2)] == [b"hello"] * 2
        assert len(server.connections) == 2


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"220 mail.example ESMTP\r\n", "did not answer in HTTP"),
        (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 100_000, "longer than"),
        (b"HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n", "did not answer in HTTP"),
    ],
)
async def test_what_is_no_response_is_refused(answer: bytes, why: str) -> None:
    async with serving(always(answer)) as (_, streams, to):
        with pytest.raises(StreamBroken, match=why):
            await ask(streams, to)


async def test_a_reset_breaks_the_response() -> None:
    async def resets(connection: RawConnection) -> None:
        await connection.request()
        await connection.send(CHUNKED)
        connection.writer.transport.abort()

    async with serving(resets) as (_, streams, to):
        with pytest.raises(StreamBroken):
            await ask(streams, to)


async def test_a_server_that_nobody_reads_from_waits() -> None:
    sent = 0

    async def endless(connection: RawConnection) -> None:
        nonlocal sent
        await connection.request()
        await connection.send(f"HTTP/1.1 200 OK\r\nContent-Length: {MANY}\r\n\r\n".encode())
        while sent < MANY:
            await connection.send(bytes(65_536))
            sent += 65_536

    async with serving(endless) as (_, streams, to):
        response = await streams.post(to, b"")
        for _ in range(5_000):
            await asyncio.sleep(0)
        assert 0 < sent < MANY // 2
        got = 0
        while data := await response.read():
            got += len(data)
        response.finish()
    assert got == sent == MANY


async def test_a_large_request_waits_for_a_server_that_reads_slowly() -> None:
    reads = asyncio.Event()

    async def slow(connection: RawConnection) -> None:
        await connection.head()
        await reads.wait()
        await connection.reader.readexactly(MANY)
        await connection.send(HELLO)

    async with serving(slow) as (_, streams, to):
        asking = asyncio.ensure_future(ask(streams, to, bytes(MANY)))
        for _ in range(1_000):
            await asyncio.sleep(0)
        assert not asking.done()
        reads.set()
        assert await asking == b"hello"


@pytest.mark.parametrize("reads_on", [True, False])
async def test_a_large_request_that_is_refused_early_is_not_sent_to_its_end(reads_on: bool) -> None:  # noqa: FBT001
    """Also by a server that answers and reads nothing more."""

    async def refuses(connection: RawConnection) -> None:
        await connection.head()
        await connection.send(whole(b"too large", "413 Content Too Large"))
        await (connection.gone() if reads_on else asyncio.Event().wait())

    async with serving(refuses) as (_, streams, to):
        response = await streams.post(to, bytes(MANY))
        assert (response.status, await response.rest(100)) == (413, b"too large")
        response.finish()


async def test_calls_above_the_limit_wait_for_their_turn_and_one_that_is_cancelled_gives_its_place_back() -> None:
    goes_on = asyncio.Event()

    async def answers(connection: RawConnection) -> None:
        await connection.request()
        await goes_on.wait()
        await connection.send(HELLO)
        await always(HELLO)(connection)

    async with serving(answers, most=2) as (server, streams, to):
        calls = [asyncio.ensure_future(ask(streams, to)) for _ in range(5)]
        await server.asked(2)
        calls[2].cancel()
        calls[0].cancel()
        await server.asked(3)
        goes_on.set()
        done = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(each) for each in done] == [asyncio.CancelledError, bytes, asyncio.CancelledError, bytes, bytes]
        assert len(server.connections) == 3


async def test_a_call_that_is_cancelled_closes_its_connection() -> None:
    async def begins(connection: RawConnection) -> None:
        await connection.request()
        await connection.send(CHUNKED, chunk(b"half"))
        await connection.gone()

    async with serving(begins) as (server, streams, to):
        call = asyncio.ensure_future(ask(streams, to))
        await server.asked(1)
        call.cancel()
        await asyncio.wait({call})
        await server.connections[0].ended.wait()
        assert call.cancelled()


async def test_a_response_that_was_read_as_far_as_it_is_wanted_gives_its_connection_back_when_it_ends() -> None:
    ends = asyncio.Event()

    async def late(connection: RawConnection) -> None:
        await connection.request()
        await connection.send(CHUNKED, chunk(b"done"))
        await ends.wait()
        await connection.send(chunk(b"and more"), END)
        await always(HELLO)(connection)

    async with serving(late) as (server, streams, to):
        response = await streams.post(to, b"")
        assert await response.read() == b"done"
        response.finish()
        ends.set()
        for _ in range(100):
            await asyncio.sleep(0)
        assert await ask(streams, to) == b"hello"
        assert len(server.connections) == 1


async def test_an_unused_connection_is_closed() -> None:
    async with serving(always(HELLO), idle_s=0.01) as (server, streams, to):
        await ask(streams, to)
        await server.connections[0].ended.wait()
        assert await ask(streams, to) == b"hello"
        assert len(server.connections) == 2


async def test_a_server_says_how_long_it_keeps_a_connection() -> None:
    async with serving(always(whole(b"hello", "200 OK", "Keep-Alive: timeout=1, max=9"))) as (server, streams, to):
        assert [await ask(streams, to) for _ in range(2)] == [b"hello"] * 2
        assert len(server.connections) == 2


async def test_a_server_that_is_not_there_is_named(tmp_path: Path) -> None:
    async with RawServer(always(HELLO)) as server:
        to = posting(server.url)
    with pytest.raises(StreamBroken, match=r"no connection to 127\.0\.0\.1"):
        await ask(HttpStreams(), to)


async def test_a_connection_that_takes_too_long_is_none() -> None:
    async with RawServer(RawConnection.gone) as server:  # it never speaks TLS
        with pytest.raises(StreamBroken, match=r"no connection to 127\.0\.0\.1 within"):
            await ask(HttpStreams(connect_s=0.05 * PATIENCE), posting(f"https://127.0.0.1:{server.port}"))


async def test_an_address_that_leads_nowhere_costs_a_moment(tmp_path: Path) -> None:
    """The first one accepts and never speaks, the second one refuses."""
    own = OwnAuthority.made_in(tmp_path)
    async with RawServer(always(HELLO), own.server) as server:
        async with (
            RawServer(RawConnection.gone, host="127.0.0.3", port=server.port),
            within(WAIT_S, lambda: "no connection"),
        ):
            addresses = ["127.0.0.3", "127.0.0.2", "127.0.0.1"]
            connection = await first_connected(addresses, server.port, own.trusted(), "127.0.0.1")
            connection.transport.abort()
        with pytest.raises(OSError, match="refused"):
            await first_connected(["127.0.0.2", "127.0.0.3"], server.port, None, "x")


async def test_a_server_is_believed_only_with_a_certificate_of_an_authority_that_is_trusted(tmp_path: Path) -> None:
    own = OwnAuthority.made_in(tmp_path)
    async with RawServer(always(HELLO), own.server) as server:
        streams = HttpStreams(trusted=own.trusted)
        assert [await ask(streams, posting(server.url)) for _ in range(3)] == [b"hello"] * 3
        assert len(server.connections) == 1
        await streams.close()
        with pytest.raises(StreamBroken, match="CERTIFICATE_VERIFY_FAILED"):
            await ask(HttpStreams(), posting(server.url))
        with pytest.raises(StreamBroken, match="no connection to localhost"):  # the certificate is for the address
            await ask(HttpStreams(trusted=own.trusted), posting(f"https://localhost:{server.port}"))


PROGRAM = """
import asyncio, sys
from everturn.http_stream import HttpStreams
from tests.test_http_stream import ask, posting
print(asyncio.run(ask(HttpStreams(), posting(sys.argv[1]))).decode())
"""


async def test_the_environment_names_an_authority(tmp_path: Path) -> None:
    own = OwnAuthority.made_in(tmp_path)
    async with RawServer(always(HELLO), own.server) as server:
        command = [sys.executable, "-c", PROGRAM, server.url]
        env = os.environ | {"SSL_CERT_FILE": str(own.file)}
        done = await asyncio.to_thread(subprocess.run, command, env=env, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "hello", done.stderr


async def through_proxies(folder: Path) -> None:
    """A server behind TLS, through a proxy that speaks TLS and one that does not; each connection is used again."""
    own = OwnAuthority.made_in(folder)
    for tls in (None, own.server):
        async with RawServer(always(HELLO), own.server) as server, RawServer(passing_on, tls) as proxy:
            streams = HttpStreams(trusted=own.trusted)
            to = posting(server.url, HTTPS_PROXY=proxy.url.replace("://", "://me:pw@"))
            assert [await ask(streams, to) for _ in range(2)] == [b"hello"] * 2
            assert (len(server.connections), len(proxy.connections)) == (1, 1)
            assert proxy.connections[0].heads[0].startswith(f"CONNECT 127.0.0.1:{server.port} HTTP/1.1\r\n".encode())
            assert b"Proxy-Authorization: Basic bWU6cHc=\r\n" in proxy.connections[0].heads[0]
            assert b"Proxy-Authorization" not in server.connections[0].heads[0]
            assert b"Bearer" not in proxy.connections[0].heads[0]
            await streams.close()


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_proxy_passes_tls_on(tmp_path: Path, loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(through_proxies(tmp_path))


async def test_a_proxy_gets_a_request_without_tls_itself() -> None:
    async with RawServer(passing_on) as proxy:
        to = posting("http://models.example:8080", http_proxy=proxy.url.replace("://", "://me:pw@"))
        assert await ask(HttpStreams(), to) == b"POST http://models.example:8080/v1/x HTTP/1.1"
        assert b"Proxy-Authorization: Basic bWU6cHc=\r\n" in proxy.connections[0].heads[0]


async def test_a_proxy_that_refuses_is_named_and_its_password_is_not(tmp_path: Path) -> None:
    refusal = whole(b"", "407 Proxy Authentication Required")

    async def refuses(connection: RawConnection) -> None:
        await connection.head()
        await connection.send(refusal)

    async with RawServer(refuses) as proxy:
        to = posting("https://models.example", ALL_PROXY=proxy.url.replace("://", "://me:pw@"))
        with pytest.raises(StreamBroken, match=r"did not connect to models\.example: it answered 407") as caught:
            await ask(HttpStreams(), to)
    assert "pw" not in repr(caught.value)
