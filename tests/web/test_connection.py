"""The server and its connections: invalid HTTP, incomplete requests, listening and closing."""

import asyncio
import signal
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from everturn.errors import ConfigError
from everturn.inbox.rows.inbox import Accepted
from everturn.model import Inbound
from everturn.web.wire.connection import MOST_HEAD
from everturn.web.wire.server import PATIENCE_S, serve
from tests.waiting import WAIT_S, within
from tests.web.composition import SHARED, TOKEN, Held, Web, running

HEAD = f"POST /api/chats/alice/messages HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n".encode()
PARTS = [b"", b"\r\n", b"GET / HT", HEAD, HEAD + b"Content-Length: 50\r\n\r\n{"]


@pytest.fixture
async def web(tmp_path: Path) -> AsyncIterator[Web]:
    async with running(tmp_path) as started:
        yield started


async def sent(web: Web, data: bytes) -> bytes:
    """What comes back until the server closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", web.serving.port)
    writer.write(data)
    came = b""
    try:
        async with within(WAIT_S, lambda: came):
            while part := await reader.read(65_536):
                came += part
        return came
    finally:
        writer.close()


def bodies(web: Web) -> list[int]:
    """How much of each incomplete body arrived."""
    return sorted(each.body_bytes for each in web.serving.server.open_connections() if each.in_body)


def keep_waiting(web: Web, patience_s: float) -> None:
    """Let the server check timeouts as if more than its patience had passed."""
    for connection in web.serving.server.open_connections():
        connection.check_timeouts(asyncio.get_running_loop().time() + patience_s + 1, patience_s)


def post(message_id: str, headers: bytes = b"") -> bytes:
    body = b'{"id": "%s", "text": "hello"}' % message_id.encode()
    return HEAD + headers + b"Content-Length: %d\r\n\r\n" % len(body) + body


def statuses(answers: bytes) -> list[bytes]:
    return [part[:3] for part in answers.split(b"HTTP/1.1 ")[1:]]


async def test_an_incomplete_request_times_out(tmp_path: Path) -> None:
    async with running(tmp_path, patience_s=0.2) as hasty:
        answers = await asyncio.gather(*(sent(hasty, part) for part in PARTS))
    assert [statuses(answer) for answer in answers] == [[b"408"]] * len(PARTS)
    assert all(b"did not arrive within 0.2 s" in answer for answer in answers)


@SHARED
@pytest.mark.parametrize(
    "data",
    [
        b"nonsense\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nnot-a-size\r\n",
        HEAD + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        HEAD + b"Content-Length: -5\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /a b HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET http://[/health HTTP/1.1\r\nHost: x\r\n\r\n",
        b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
)
async def test_what_is_not_http_is_refused_in_json(shared: Web, data: bytes) -> None:
    answer = await sent(shared, data)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.endswith(b'{"error":"invalid http request received"}')


@SHARED
async def test_an_endless_head_is_refused(shared: Web) -> None:
    answer = await sent(shared, b"GET / HTTP/1.1\r\nX: " + b"x" * MOST_HEAD)
    assert answer.startswith(b"HTTP/1.1 431 ")


@SHARED
async def test_requests_sent_at_once_are_answered_in_order(shared: Web) -> None:
    last = b"GET /health HTTP/1.0\r\n\r\n"
    health = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
    answer = await sent(shared, post("one") + post("one") + health + post("two") + last)
    assert statuses(answer) == [b"202", b"200", b"200", b"202", b"200"]


@SHARED
@pytest.mark.parametrize(
    "data",
    [
        post("closing", b"Connection: close\r\n"),
        post("old").replace(b"HTTP/1.1", b"HTTP/1.0"),
        post("awaiting_approval", b"Connection: close\r\n").replace(b"/messages", b"/messages?again=1"),
    ],
)
async def test_a_connection_without_keep_alive_is_answered_and_closed(shared: Web, data: bytes) -> None:
    assert statuses(await sent(shared, data)) == [b"202"]


@SHARED
async def test_expect_100_continue_is_answered(shared: Web) -> None:
    answer = await sent(shared, post("careful", b"Expect: 100-continue\r\nConnection: close\r\n"))
    assert statuses(answer) == [b"100", b"202"]


async def test_a_message_is_kept_though_its_sender_hung_up(web: Web) -> None:
    async with web.events("alice") as watcher:
        _, writer = await asyncio.open_connection("127.0.0.1", web.serving.port)
        writer.write(post("m1"))
        writer.close()
        assert (await watcher.until("reply"))[-1].data["text"] == "echo: hello"


async def test_a_message_in_flight_at_shutdown_gets_503(tmp_path: Path) -> None:
    came = asyncio.Semaphore(0)
    never: asyncio.Future[Accepted] = asyncio.get_running_loop().create_future()

    async def accept(_: Inbound) -> Accepted:
        came.release()
        return await never

    async with running(tmp_path, accept=accept) as web:
        ways = [post("quick"), post("usual").replace(b"/messages", b"/messages?again=1")]
        answering = [asyncio.create_task(sent(web, data)) for data in ways]
        async with within(WAIT_S, lambda: answering):
            for _ in ways:
                await came.acquire()
        await web.serving.close()
        answers = await asyncio.gather(*answering)
    assert [statuses(answer) for answer in answers] == [[b"503"]] * 2
    assert all(b"the gateway is stopping" in answer for answer in answers)


async def test_a_turn_longer_than_our_patience_does_not_cut_its_watcher_off(tmp_path: Path) -> None:
    agent = Held()
    async with running(tmp_path, agent, heartbeat_s=0.1) as web, web.events("alice") as watcher:
        await web.post("alice", "m1", "hello")
        await agent.began.wait()
        keep_waiting(web, PATIENCE_S)
        await watcher.comment()
        agent.go.set()
        assert (await watcher.until("reply"))[-1].data["text"] == "echo: hello"


@SHARED
async def test_a_taken_port_is_a_clear_error(shared: Web) -> None:
    with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1 port {shared.serving.port}.*--port"):
        await serve(shared.serving.app, "127.0.0.1", shared.serving.port)


@SHARED
async def test_its_address_can_be_called(shared: Web) -> None:
    assert shared.serving.url == f"http://127.0.0.1:{shared.serving.port}"
    assert not shared.serving.ended.done()


@SHARED
async def test_signals_are_left_to_the_gateway(shared: Web) -> None:
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


async def test_after_closing_nothing_listens(web: Web) -> None:
    await web.serving.close()
    with socket.socket() as caller:
        assert caller.connect_ex(("127.0.0.1", web.serving.port)) != 0


async def test_a_client_that_never_reads_does_not_hold_up_the_end(web: Web) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", web.serving.port)
    writer.write(f"GET /api/chats/alice/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode())
    async with within(WAIT_S):
        await reader.readuntil(b"retry: 1000\n\n")
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        for number in range(30):
            await web.post("alice", f"m{number}", "x" * 90_000)
        await web.serving.close()
    writer.close()
