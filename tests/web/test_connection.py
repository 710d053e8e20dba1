"""The server and its connections: what is not HTTP, what never ends, and how it listens and closes."""

import asyncio
import signal
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from everturn.errors import ConfigError
from everturn.model import Inbound
from everturn.store.operations.inbox import Accepted
from everturn.web.connection import MOST_HEAD
from everturn.web.server import PATIENCE_S, serve
from tests.web.composition import TOKEN, WAIT_S, Held, Web, running

HEAD = f"POST /api/chats/alice/messages HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n".encode()


@pytest.fixture
async def web(tmp_path: Path) -> AsyncIterator[Web]:
    async with running(tmp_path) as started:
        yield started


@pytest.fixture
async def hasty(tmp_path: Path) -> AsyncIterator[Web]:
    """It gives up so early that on a slow machine a whole request may come too late, too."""
    async with running(tmp_path, patience_s=0.2) as started:
        yield started


async def sent(web: Web, data: bytes) -> bytes:
    """What comes back until the server closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", web.serving.port)
    writer.write(data)
    try:
        async with asyncio.timeout(WAIT_S):
            return await reader.read()
    finally:
        writer.close()


def post(number: int, headers: bytes = b"") -> bytes:
    body = b'{"id": "m%d", "text": "hello"}' % number
    return HEAD + headers + b"Content-Length: %d\r\n\r\n" % len(body) + body


def statuses(answers: bytes) -> list[bytes]:
    return [part[:3] for part in answers.split(b"HTTP/1.1 ")[1:]]


@pytest.mark.parametrize("part", [b"", b"\r\n", b"GET / HT", HEAD, HEAD + b"Content-Length: 50\r\n\r\n{"])
async def test_a_request_that_does_not_come_whole_is_given_up(hasty: Web, part: bytes) -> None:
    answer = await sent(hasty, part)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"did not arrive within 0.2 s" in answer


@pytest.mark.parametrize(
    "data",
    [
        b"nonsense\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nnot-a-size\r\n",
        HEAD + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        HEAD + b"Content-Length: -5\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /a b HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
)
async def test_what_is_not_http_is_refused_in_json(web: Web, data: bytes) -> None:
    answer = await sent(web, data)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.endswith(b'{"error":"invalid http request received"}')


async def test_an_endless_head_is_refused(web: Web) -> None:
    answer = await sent(web, b"GET / HTTP/1.1\r\nX: " + b"x" * MOST_HEAD)
    assert answer.startswith(b"HTTP/1.1 431 ")


async def test_requests_sent_at_once_are_answered_in_order(web: Web) -> None:
    last = b"GET /health HTTP/1.0\r\n\r\n"
    answer = await sent(web, post(1) + post(1) + b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n" + post(2) + last)
    assert statuses(answer) == [b"202", b"200", b"200", b"202", b"200"]


@pytest.mark.parametrize(
    "data",
    [
        post(1, b"Connection: close\r\n"),
        post(1).replace(b"HTTP/1.1", b"HTTP/1.0"),
        post(1, b"Connection: close\r\n").replace(b"/messages", b"/messages?again=1"),
    ],
)
async def test_a_client_that_asks_once_is_answered_and_let_go(web: Web, data: bytes) -> None:
    assert statuses(await sent(web, data)) == [b"202"]


async def test_who_asks_before_sending_is_told_to_go_on(web: Web) -> None:
    answer = await sent(web, post(1, b"Expect: 100-continue\r\nConnection: close\r\n"))
    assert statuses(answer) == [b"100", b"202"]


async def test_a_message_is_kept_though_its_sender_hung_up(web: Web) -> None:
    async with web.events("alice") as watcher:
        _, writer = await asyncio.open_connection("127.0.0.1", web.serving.port)
        writer.write(post(1))
        writer.close()
        assert (await watcher.until("reply"))[-1].data["text"] == "echo: hello"


@pytest.mark.parametrize("data", [post(1), post(1).replace(b"/messages", b"/messages?again=1")])
async def test_a_message_under_way_when_the_server_ends_is_told_to_come_again(tmp_path: Path, data: bytes) -> None:
    came = asyncio.Event()
    never: asyncio.Future[Accepted] = asyncio.get_running_loop().create_future()

    async def accept(_: Inbound) -> Accepted:
        came.set()
        return await never

    async with running(tmp_path, accept=accept) as web:
        answering = asyncio.create_task(sent(web, data))
        await came.wait()
        await web.serving.close()
        answer = await answering
    assert statuses(answer) == [b"503"]
    assert b"the gateway is stopping" in answer


async def test_a_turn_longer_than_our_patience_does_not_cut_its_watcher_off(tmp_path: Path) -> None:
    agent = Held()
    async with running(tmp_path, agent, heartbeat_s=0.1) as web, web.events("alice") as watcher:
        await web.post("alice", "m1", "hello")
        await agent.began.wait()
        for connection in web.serving.server.open_connections():
            connection.look(asyncio.get_running_loop().time() + 2 * PATIENCE_S, PATIENCE_S)
        await watcher.comment()
        agent.go.set()
        assert (await watcher.until("reply"))[-1].data["text"] == "echo: hello"


async def test_a_taken_port_is_a_clear_error(web: Web) -> None:
    with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1 port {web.serving.port}.*--port"):
        await serve(web.serving.app, "127.0.0.1", web.serving.port)


async def test_its_address_can_be_called(web: Web) -> None:
    assert web.serving.url == f"http://127.0.0.1:{web.serving.port}"
    assert not web.serving.ended.done()


async def test_signals_are_left_to_the_gateway(web: Web) -> None:
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


async def test_after_closing_nothing_listens(web: Web) -> None:
    await web.serving.close()
    with socket.socket() as caller:
        assert caller.connect_ex(("127.0.0.1", web.serving.port)) != 0


async def test_a_client_that_never_reads_does_not_hold_up_the_end(web: Web) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", web.serving.port)
    writer.write(f"GET /api/chats/alice/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode())
    async with asyncio.timeout(WAIT_S):
        await reader.readuntil(b"retry: 1000\n\n")
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        for number in range(30):
            await web.post("alice", f"m{number}", "x" * 90_000)
        await web.serving.close()
    writer.close()
