"""Our client against a server: how each call can end, what is sent beside the conversation, and what it loads."""

import asyncio
import subprocess
import sys
from typing import Any

import pytest

from everturn.agent.llm.chat.client import ChatModel
from everturn.agent.llm.failures import failure_of
from everturn.agent.llm.rendering import UserSaid
from everturn.agent.llm.replies import ModelInput
from everturn.agent.rules import CallOutcome
from everturn.http_stream import HttpStreams
from everturn.model import Usage
from tests.agent.llm.chat.recorded import HELLO, STREAMS, asked, ours, streaming
from tests.raw_server import CHUNKED, END, Answers, RawConnection, RawServer, always, chunk, whole

TEXT = STREAMS["openai_text"]
JSON = "Content-Type: application/json"
SAID = b'{"choices":[{"message":{"content":"hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":1}}'
PAGE = b"<html><body>The gateway is away.</body></html>"


def error(message: str, **more: Any) -> bytes:
    fields = "".join(f', "{name}": "{value}"' for name, value in more.items())
    return f'{{"error": {{"message": "{message}"{fields}}}}}'.encode()


async def ended(answers: Answers) -> CallOutcome:
    """How a call ends that a server answers so."""
    async with RawServer(answers) as server:
        return (await asked(ours(server)))[1]


def cut_at(stream: bytes) -> Answers:
    """Send this, then end the connection although the body had more to come."""

    async def answers(connection: RawConnection) -> None:
        await connection.request()
        await connection.send(CHUNKED, chunk(stream))

    return answers


def ends_at(stream: bytes) -> Answers:
    return always(CHUNKED + chunk(stream) + END)


async def resets(connection: RawConnection) -> None:
    await connection.request()
    await connection.send(CHUNKED, chunk(TEXT[:900]))
    connection.writer.transport.abort()


HALF = TEXT[: TEXT.index(b"data: ", 600)]


@pytest.mark.parametrize(
    ("answers", "outcome"),
    [
        (ends_at(TEXT), CallOutcome.ANSWERED),
        (ends_at(TEXT.replace(b"\n\ndata: [DONE]", b"")), CallOutcome.ANSWERED),
        (ends_at(HALF), CallOutcome.CUT),
        (ends_at(HALF + b"data: [DONE]\n\n"), CallOutcome.CUT),
        (ends_at(TEXT[:900]), CallOutcome.CUT),
        (cut_at(HALF), CallOutcome.CONNECTION),
        (resets, CallOutcome.CONNECTION),
        (ends_at(b": nothing but comments\n\n"), CallOutcome.UNREADABLE),
        (ends_at(b""), CallOutcome.UNREADABLE),
        (always(whole(PAGE, "200 OK", "Content-Type: text/html")), CallOutcome.UNREADABLE),
        (always(whole(PAGE, "200 OK", JSON)), CallOutcome.UNREADABLE),
        (always(whole(SAID, "200 OK", JSON)), CallOutcome.ANSWERED),
        (always(whole(error("no"), "200 OK", JSON)), CallOutcome.SERVER),
        (ends_at(HALF + b"data: {half a\n\n"), CallOutcome.UNREADABLE),
        (ends_at(HALF + b"data: " + error("overloaded") + b"\n\n"), CallOutcome.SERVER),
        (ends_at(STREAMS["openai_refusal"]), CallOutcome.REFUSED),
        (ends_at(STREAMS["openai_content_filter"]), CallOutcome.REFUSED),
        (ends_at(STREAMS["llama_cpp_length"]), CallOutcome.LENGTH),
        (ends_at(b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\n'), CallOutcome.EMPTY),
        (always(whole(PAGE, "502 Bad Gateway")), CallOutcome.SERVER),
        (always(whole(PAGE, "301 Moved", "Location: https://elsewhere.example/")), CallOutcome.MISSING),
        (always(whole(b"", "401 Unauthorized")), CallOutcome.DENIED),
        (always(whole(error("no"), "403 Forbidden")), CallOutcome.DENIED),
        (
            always(whole(b'{"error":{"message":"x","metadata":{"reasons":["a"]}}}', "403 Forbidden")),
            CallOutcome.REJECTED,
        ),
        (always(whole(b'{"detail":"Not Found"}', "404 Not Found")), CallOutcome.MISSING),
        (always(whole(error("x", code="model_not_found"), "400 Bad Request")), CallOutcome.MISSING),
        (always(whole(error("x", code="invalid_api_key"), "400 Bad Request")), CallOutcome.DENIED),
        (always(whole(error("x", code="content_filter"), "400 Bad Request")), CallOutcome.REFUSED),
        (always(whole(error("x", code="context_length_exceeded"), "400 Bad Request")), CallOutcome.OVERFLOW),
        (always(whole(error("maximum context length is 8"), "400 Bad Request")), CallOutcome.OVERFLOW),
        (always(whole(error("x", type="exceed_context_size_error"), "400 Bad Request")), CallOutcome.OVERFLOW),
        (always(whole(error("the prompt is too long"), "413 Content Too Large")), CallOutcome.OVERFLOW),
        (always(whole(error("bad"), "422 Unprocessable")), CallOutcome.REJECTED),
        (always(whole(error("bad"), "409 Conflict")), CallOutcome.REJECTED),
        (always(whole(b"", "408 Request Timeout")), CallOutcome.SERVER),
        (always(whole(error("pay"), "402 Payment Required")), CallOutcome.QUOTA),
        (always(whole(error("pay", code="insufficient_quota"), "429 Too Many")), CallOutcome.QUOTA),
        (always(whole(error("slow"), "429 Too Many")), CallOutcome.LIMITED),
        (always(whole(error("x", type="overloaded_error"), "429 Too Many")), CallOutcome.SERVER),
        (always(whole(error("x"), "529 Overloaded")), CallOutcome.SERVER),
        (always(b"SSH-2.0-OpenSSH_9.2\r\n"), CallOutcome.CONNECTION),
    ],
)
async def test_each_end_has_its_outcome(answers: Answers, outcome: CallOutcome) -> None:
    assert await ended(answers) is outcome


@pytest.mark.parametrize(
    ("headers", "wait_s"),
    [
        (["Retry-After: 7"], 7.0),
        (["Retry-After: 7", "Retry-After-Ms: 250"], 0.25),
        (["Retry-After: Mon, 01 Jan 2001 00:00:00 GMT"], 0.0),
        (["Retry-After: soon"], None),
        (["Retry-After: -1"], None),
        ([], None),
    ],
)
async def test_a_server_says_how_long_to_wait(headers: list[str], wait_s: float | None) -> None:
    async with RawServer(always(whole(error("slow"), "429 Too Many", *headers))) as server:
        model = ours(server)
        with pytest.raises(Exception, match="slow") as caught:
            await model.ask(HELLO, lambda _: None)
        await model.close()
    assert failure_of(caught.value, ()).retry_after_s == wait_s


async def test_what_a_provider_says_of_our_key_is_not_passed_on() -> None:
    async with RawServer(always(whole(error("Incorrect key: mykey-0123"), "401 Unauthorized"))) as server:
        model = ours(server)
        with pytest.raises(Exception, match="Incorrect") as caught:
            await model.ask(HELLO, lambda _: None)
        await model.close()
    assert failure_of(caught.value, ("mykey-0123",)).detail == "Incorrect key: [hidden]"


async def test_an_endless_error_is_read_as_far_as_it_is_needed() -> None:
    async def endless(connection: RawConnection) -> None:
        await connection.request()
        await connection.send(b"HTTP/1.1 500 Oh\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            await connection.send(chunk(b"x" * 65_536))

    assert await ended(endless) is CallOutcome.SERVER


async def test_a_stream_without_usage_says_that_one_request_was_used() -> None:
    async with streaming(STREAMS["no_usage"]) as server:
        answer, _, _ = await asked(ours(server))
    assert answer is not None
    assert answer.used == Usage(requests=1)


async def test_a_hundred_answers_need_one_connection_and_what_arrives_together_is_heard_once() -> None:
    heard: list[str] = []
    async with streaming(TEXT) as server:
        model = ours(server)
        for _ in range(100):
            await model.ask(HELLO, lambda text: heard.append(text()))
        assert (len(server.connections), server.requests) == (1, 100)
        await model.close()
    assert heard == ["Grüße, Ann! 👋"] * 100


async def test_comments_are_no_activity() -> None:
    goes_on = asyncio.Event()
    heard: list[str] = []

    async def comments(connection: RawConnection) -> None:
        await connection.request()
        await connection.send(CHUNKED, chunk(HALF), *[chunk(b": still here\n\n")] * 20)
        await goes_on.wait()
        await connection.send(chunk(TEXT[len(HALF) :]), END)

    async with RawServer(comments) as server:
        model = ours(server)
        asking = asyncio.ensure_future(model.ask(HELLO, lambda text: heard.append(text())))
        for _ in range(300):
            await asyncio.sleep(0)
        assert len(heard) == 1
        goes_on.set()
        assert (await asking).text == "Grüße, Ann! 👋"
        await model.close()


async def test_a_call_that_is_given_up_closes_its_connection() -> None:
    async def begins(connection: RawConnection) -> None:
        await connection.request()
        await connection.send(CHUNKED, chunk(HALF))
        await connection.gone()

    async with RawServer(begins) as server:
        model = ours(server)
        begun = asyncio.Event()
        asking = asyncio.ensure_future(model.ask(HELLO, lambda _: begun.set()))
        await begun.wait()
        asking.cancel()
        await asyncio.wait({asking})
        await server.connections[0].ended.wait()
        await model.close()


@pytest.mark.parametrize(
    ("base_url", "env", "line"),
    [
        (None, {"OPENAI_BASE_URL": "URL/v1/"}, "POST /v1/chat/completions HTTP/1.1"),
        ("URL/openai/v1?api-version=preview", {}, "POST /openai/v1/chat/completions?api-version=preview HTTP/1.1"),
        ("URL", {"OPENAI_BASE_URL": "http://127.0.0.1:9/"}, "POST /chat/completions HTTP/1.1"),
    ],
)
async def test_the_address_is_that_of_the_settings_or_of_the_environment(
    base_url: str | None, env: dict[str, str], line: str
) -> None:
    async with streaming(TEXT) as server:
        where = {name: value.replace("URL", server.url) for name, value in env.items()}
        own = {"OPENAI_API_KEY": "sk-env", "OPENAI_ORG_ID": "org-1", **where}
        url = base_url.replace("URL", server.url) if base_url else None
        model = ChatModel("x", url, "sk-own" if url else None, None, HttpStreams(), own)
        await model.ask(ModelInput([UserSaid("hi")], (), "s"), lambda _: None)
        await model.close()
        [head] = server.connections[0].heads
    lines = head.decode().split("\r\n")
    assert lines[0] == line
    assert ("Authorization: Bearer sk-own" if url else "Authorization: Bearer sk-env") in lines
    assert ("OpenAI-Organization: org-1" in lines) is (
        url is None
    )  # a server of one's own gets no name of OpenAI's account


@pytest.mark.parametrize(
    ("base_url", "key", "env", "why"),
    [
        (None, None, {}, "OPENAI_API_KEY"),
        ("localhost:8080/v1", "key-1", {}, "http://"),
        ("http://x/v1", "key-1\r\nX: y", {}, "HTTP does not allow"),
        ("http://x/v1", "key-1", {"ALL_PROXY": "socks5://p:1"}, "socks5 is not supported"),
    ],
)
def test_settings_that_cannot_work_are_refused_at_once(
    base_url: str | None, key: str | None, env: dict[str, str], why: str
) -> None:
    with pytest.raises(ValueError, match=why) as caught:
        ChatModel("x", base_url, key, None, HttpStreams(), env)
    assert not key or key not in str(caught.value)


LIBRARIES = ("openai", "pydantic_ai", "anthropic", "pydantic", "httpx", "httpx2", "httpcore", "genai_prices", "anyio")
PROGRAM = f"""
import asyncio, sys
from everturn.agent.llm.agent import LlmAgent
from everturn.agent.llm.settings import LlmSettings
from tests.agent.llm.chat.unloaded import ask_once
asyncio.run(ask_once(sys.argv[1]))
print(sorted(set(sys.modules) & set({LIBRARIES!r})))
"""


async def test_no_library_of_a_provider_is_loaded() -> None:
    async with streaming(TEXT) as server:
        command = [sys.executable, "-c", PROGRAM, f"{server.url}/v1"]
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[]", done.stderr
