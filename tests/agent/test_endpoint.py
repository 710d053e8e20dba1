"""An agent behind a URL: whatever the network and the endpoint do, a step is done once and the user sees the truth."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any, Self

import pytest

from everturn.agent.outside import EndpointAgent
from everturn.agent.wire import OUTCOME_UNKNOWN, WireSettings
from everturn.testing import FakePlatform, World
from tests.agent.test_process import Swift
from tests.house import ROOT

SMALL = WireSettings(instructions="be kind", retries=2, line_bytes=10_000)
Json = dict[str, Any]
Script = Callable[[Json, int], bytes]
HEAD = b"HTTP/1.1 %s\r\nContent-Type: application/x-ndjson\r\n%sConnection: close\r\n\r\n"


def ok(*lines: Json) -> bytes:
    return HEAD % (b"200 OK", b"") + b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def status(code: int, header: bytes = b"") -> bytes:
    return HEAD % (b"%d Something" % code, header)


def cut(*lines: Json) -> bytes:
    """A reply that announced more."""
    return ok(*lines).replace(b"Connection", b"Content-Length: 9999\r\nConnection")


class Endpoint:
    """A server that answers by a script and keeps every request."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self.requests: list[Json] = []
        self.heads: list[str] = []
        self.url = ""
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/agent"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        (length,) = (int(line.split(":")[1]) for line in head.splitlines() if line.lower().startswith("content-length"))
        self.heads.append(head)
        self.requests.append(json.loads(await reader.readexactly(length)))
        writer.write(self._script(self.requests[-1], len(self.requests)))
        writer.close()
        await writer.wait_closed()

    def kinds(self) -> list[str]:
        return [each["type"] for each in self.requests]


async def answer(url: str, script: Script, key: str | None = None) -> tuple[str, Endpoint]:
    """What the user sees, and the endpoint with what it was asked."""
    platform = FakePlatform()
    async with Endpoint(script) as endpoint:
        agent = EndpointAgent(endpoint.url, key, Swift(), SMALL)
        async with World(url, agent, [platform]):
            platform.say("one", "hello")
            await platform.until(lambda: bool(platform.screen))
        await agent.close()
    return platform.screen[0].text, endpoint


def counting(request: Json, _number: int) -> bytes:
    """One tool, then the answer."""
    if request["type"] == "call":
        return ok({"type": "active"}, {"type": "result", "content": "5 letters"})
    results = [row["content"] for row in request["own"] if row["role"] == "tool"]
    if results:
        return ok({"type": "stream", "text": "You"}, {"type": "answer", "text": f"You wrote {results[0]}"})
    return ok({"type": "step", "calls": [{"id": "1", "name": "count", "arguments": request["text"]}]})


async def test_each_request_holds_everything(store_url: str) -> None:
    said, endpoint = await answer(store_url, counting, key="k3y")
    assert said == "You wrote 5 letters"
    assert endpoint.kinds() == ["turn", "call", "turn"]
    first, call, last = endpoint.requests
    assert (first["text"], first["instructions"], first["attempt"], first["protocol"]) == ("hello", "be kind", 1, 1)
    assert (call["call"]["arguments"], call["key"]) == ("hello", f"{first['turn']}:1")
    assert [row["role"] for row in last["own"]] == ["user", "assistant", "tool"]
    assert all("authorization: bearer k3y" in head.lower() for head in endpoint.heads)


@pytest.mark.parametrize(
    "first",
    [status(503), status(429, b"Retry-After: 3\r\n"), status(500), b"", cut({"type": "stream", "text": "You"}), ok()],
)
async def test_an_endpoint_that_fails_once_is_asked_again(store_url: str, first: bytes) -> None:
    said, endpoint = await answer(store_url, lambda request, n: first if n == 1 else counting(request, n))
    assert said == "You wrote 5 letters"
    assert endpoint.kinds() == ["turn", "turn", "call", "turn"]


async def test_a_call_that_is_cut_off_is_not_run_again_unless_it_may_be(store_url: str) -> None:
    def script(request: Json, number: int) -> bytes:
        return b"" if request["type"] == "call" else counting(request, number)

    said, endpoint = await answer(store_url, script)
    assert said == f"You wrote {OUTCOME_UNKNOWN}"
    assert endpoint.kinds() == ["turn", "call", "turn"]


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (status(503), "answered with status 503, 3 times in a row"),
        (status(401), "status 401; check the key in the variable that api_key_env names"),
        (status(404), "answered with status 404"),
        (status(302, b"Location: http://127.0.0.1:1/\r\n"), "answered with status 302"),
        (ok({"type": "error", "text": "no\x00 idea"}), "I could not answer: no idea."),
        (HEAD % (b"200 OK", b"") + b"<html>s3cret</html>", "a line of its reply is not JSON"),
        (HEAD % (b"200 OK", b"") + b"x" * 20_000, "a line of its reply is too long"),
        (ok({"type": "step", "calls": []}), "1 to 100 calls"),
        (ok({"type": "answer", "text": ""}), "empty answer"),
        (ok({"type": "answer", "text": "a\x00b"}), "a\ufffdb"),
    ],
)
async def test_what_cannot_be_answered_ends_with_the_reason(store_url: str, reply: bytes, said: str) -> None:
    told, _ = await answer(store_url, lambda _request, _number: reply, key="k3y")
    assert said in told
    assert "s3cret" not in told
    assert "k3y" not in told


async def test_an_endpoint_that_is_not_there_is_told_in_words(store_url: str) -> None:
    platform = FakePlatform()
    agent = EndpointAgent("http://me:s3cret@127.0.0.1:9/", None, Swift(), SMALL)
    async with World(store_url, agent, [platform]):
        platform.say("one", "hello")
        await platform.until(lambda: bool(platform.screen))
    await agent.close()
    assert "cannot be reached" in platform.screen[0].text
    assert "s3cret" not in platform.screen[0].text


@pytest.fixture
def example() -> Iterator[str]:
    command = [sys.executable, str(ROOT / "examples" / "http_agent.py"), "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.kill()


async def test_the_example_answers(store_url: str, example: str) -> None:
    platform = FakePlatform()
    agent = EndpointAgent(example, None, Swift(), SMALL)
    async with World(store_url, agent, [platform]):
        platform.say("one", "hello")
        await platform.until(lambda: bool(platform.screen))
    await agent.close()
    assert platform.screen[0].text == "You wrote 5 letters."
