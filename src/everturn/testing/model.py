"""A scripted model behind a real OpenAI-compatible HTTP API, for tests of agents: it answers by rules and fails on order.

The text of the last message is the script: `tools 3` makes three tool calls, one after the other; `calls 2` makes two
at once; `use NAME {...}` for that tool with these arguments, `repeat 3 NAME {...}` for it three times with `#` as the number
of the call; `say TEXT` answers with the text; anything else is answered with `answer to ...`. Every request is written to a log before it is answered, so that it outlives the client.

    python -m everturn.testing.model --port 8080 --log requests.jsonl
"""

from __future__ import annotations

import argparse
import asyncio
import hmac
import json
import os
import re
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from everturn.testing.clock import WAIT_S, within
from everturn.testing.serving import ConnectionReset, EndingServer

_NOTE = re.compile(r"^\[System note:.*?\](?:\n\n|$)", re.DOTALL)
_MESSAGES = '"messages":'
_SUMMARY_WANTED = "Summarise the conversation"
FAULTS = (
    "limited", "quota", "server", "unavailable", "overflow", "denied", "missing", "rejected",
    "reset", "cut", "malformed", "error", "stall", "silent", "arguments", "refused", "filter", "length", "empty",
)  # fmt: skip


@dataclass(frozen=True)
class ModelFault:
    """A fault of the next `times` requests whose text contains `text` and that have so many tool results."""

    kind: str
    times: int = 1
    retry_after: float | None = None
    text: str = ""
    results: int | None = None

    def fits(self, asked: ModelRequest) -> bool:
        """Whether this request meets the fault."""
        return self.text in asked.text and self.results in {None, len(asked.results)}

    def __post_init__(self) -> None:
        if self.kind not in FAULTS:
            raise ValueError(f"there is no fault named {self.kind!r}; there are {', '.join(FAULTS)}")


@dataclass(frozen=True)
class ModelToolCall:
    """A tool call of the model."""

    name: str
    arguments: str = "{}"


@dataclass(frozen=True)
class ModelReply:
    """The model's reply: a text, tool calls, or both."""

    text: str = ""
    calls: tuple[ModelToolCall, ...] = ()


@dataclass(frozen=True)
class ModelRequest:
    """A request, as a script sees it."""

    body: dict[str, Any]

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The messages of the request."""
        found: list[dict[str, Any]] = self.body.get("messages", [])
        return found

    @property
    def text(self) -> str:
        """The text of the user's last message, without a note in front of it."""
        said = [_without_note(text_of(each)) for each in self.messages if each["role"] == "user"]
        return next((text for text in reversed(said) if text), "")

    @property
    def results(self) -> list[str]:
        """The tool results since that message, oldest first."""
        found: list[str] = []
        for each in self.messages:
            if each["role"] == "user" and _without_note(text_of(each)):
                found = []
            elif each["role"] == "tool":
                found.append(text_of(each))
        return found

    @property
    def tools(self) -> list[str]:
        """The names of the tools that were offered."""
        return [each["function"]["name"] for each in self.body.get("tools", [])]


Script = Callable[[ModelRequest], ModelReply]


def text_of(message: dict[str, Any]) -> str:
    """The text of a message as it was sent."""
    content = message.get("content") or ""
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def _without_note(text: str) -> str:
    return _NOTE.sub("", text)


def by_text(asked: ModelRequest) -> ModelReply:
    """The script that the module's docstring describes."""
    text, calls = asked.text, _wanted(asked)
    order, _, rest = text.partition(" ")
    if calls:
        return ModelReply("I use my tools." if len(calls) > 1 else "", calls)
    if text.startswith(_SUMMARY_WANTED):
        return ModelReply(f"a summary of {len(text)} characters")
    if order == "use":
        return ModelReply(f"the tool said: {asked.results[-1]}")
    return ModelReply(rest if order == "say" else f"answer to {text}")


def _wanted(asked: ModelRequest) -> tuple[ModelToolCall, ...]:
    """The calls that the text asks for and that have no result yet."""
    done = len(asked.results)
    match asked.text.split(" ", 3):
        case ["tools", number, *_] if done < int(number):
            return (ModelToolCall(_first_tool(asked), json.dumps({"line": f"{done + 1}"})),)
        case ["calls", number, *_] if not done:
            return tuple(
                ModelToolCall(_first_tool(asked), json.dumps({"line": f"{n + 1}"})) for n in range(int(number))
            )
        case ["repeat", number, name, arguments] if done < int(number):
            return (ModelToolCall(name, arguments.replace("#", f"{done + 1}")),)
        case ["use", name, *rest] if not done:
            return (ModelToolCall(name, " ".join(rest) or "{}"),)
    return ()


def _first_tool(asked: ModelRequest) -> str:
    return asked.tools[0] if asked.tools else "write"


@dataclass(frozen=True)
class LoggedRequest:
    """A request in the log: its number, its body as it arrived, and the fault it met."""

    number: int
    body: str
    fault: str | None

    @property
    def asked(self) -> ModelRequest:
        """The request as a script sees it."""
        return ModelRequest(json.loads(self.body))

    @property
    def conversation(self) -> str:
        """The messages exactly as they were sent, up to the end of the last one: a later request may begin with it."""
        start = self.body.index(_MESSAGES) + len(_MESSAGES)
        _, end = json.JSONDecoder().raw_decode(self.body, start)
        return self.body[start : end - 1]

    @property
    def rest(self) -> str:
        """The request without its messages: model, tools, settings."""
        return self.body.replace(self.conversation, "", 1)


def read_log(file: Path) -> list[LoggedRequest]:
    """Every request that a server got, in order."""
    lines = file.read_text().splitlines() if file.exists() else []
    return [LoggedRequest(**json.loads(line)) for line in lines]


@dataclass
class ScriptedModel:
    """The model: its script, its faults, and the requests it got."""

    script: Script = by_text
    key: str | None = None
    log: Path | None = None
    pace_s: float = 0.0  # between two chunks of a stream
    faults: list[ModelFault] = field(default_factory=list)
    seen: list[LoggedRequest] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.log is not None:
            self.seen = read_log(self.log)
        self.closing = asyncio.Event()
        self._changed = asyncio.Event()

    def fail(self, kind: str, times: int = 1, retry_after: float | None = None, **which: Any) -> None:
        """Order a fault for the next requests, or for those that `text` and `results` describe."""
        self.faults.append(ModelFault(kind, times, retry_after, **which))

    async def until(self, true: Callable[[], bool], timeout_s: float = WAIT_S) -> None:
        """Wait for a condition on the requests so far; a failure reports the last ones."""
        async with within(timeout_s, self._last_requests):
            while not true():
                await self._changed.wait()

    def _last_requests(self) -> str:
        last = [(each.number, each.asked.text, each.fault) for each in self.seen[-5:]]
        return f"{len(self.seen)} requests, the last (number, text, fault): {last}"

    def take_fault(self, asked: ModelRequest) -> ModelFault | None:
        """The fault that this request meets; it is used up."""
        for place, fault in enumerate(self.faults):
            if fault.fits(asked):
                self.faults[place : place + 1] = [replace(fault, times=fault.times - 1)] if fault.times > 1 else []
                return fault
        return None

    def saw(self, body: str, fault: ModelFault | None) -> int:
        """Log a request; returns its number."""
        seen = LoggedRequest(len(self.seen) + 1, body, fault.kind if fault else None)
        if self.log is not None:
            _append(self.log, json.dumps({"number": seen.number, "body": body, "fault": seen.fault}))
        self.seen.append(seen)
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
        return seen.number

    async def complete(self, request: Request) -> Response:
        """POST /v1/chat/completions."""
        body = (await request.body()).decode()
        asked = ModelRequest(json.loads(body))
        given = request.headers.get("authorization", "").removeprefix("Bearer ")
        denied = self.key is not None and not hmac.compare_digest(given, self.key)
        fault = ModelFault("denied") if denied else self.take_fault(asked)
        number = self.saw(body, fault)
        if fault is not None and fault.kind == "silent":
            await self.closing.wait()
        if fault is not None and fault.kind in _ERRORS:
            return _error(fault, given, str(asked.body.get("model")))
        answer = Answering(asked, _made(self.script(asked), fault), fault, number, self)
        if asked.body.get("stream"):
            return StreamingResponse(answer.stream(), media_type="text/event-stream")
        return JSONResponse(answer.whole())

    async def order(self, request: Request) -> Response:
        """POST /faults: order a list of faults, from another process."""
        self.faults += [ModelFault(**each) for each in await request.json()]
        return JSONResponse({"faults": len(self.faults)})

    async def models(self, request: Request) -> Response:  # noqa: ARG002
        """GET /v1/models."""
        return JSONResponse({"object": "list", "data": [{"id": "scripted", "object": "model"}]})

    def app(self) -> Starlette:
        """The web application."""
        return Starlette(
            routes=[
                Route("/v1/chat/completions", self.complete, methods=["POST"]),
                Route("/v1/models", self.models),
                Route("/faults", self.order, methods=["POST"]),
            ]
        )


_ERRORS: dict[str, tuple[int, str, str]] = {
    "limited": (429, "rate_limit_exceeded", "Rate limit reached."),
    "quota": (429, "insufficient_quota", "You exceeded your current quota."),
    "server": (500, "server_error", "The server had an error."),
    "unavailable": (503, "unavailable", "The server is overloaded."),
    "overflow": (400, "context_length_exceeded", "This model's maximum context length is 1000 tokens."),
    "denied": (401, "invalid_api_key", "Incorrect API key provided: {key}."),
    "missing": (404, "model_not_found", "The model {model} does not exist."),
    "rejected": (400, "invalid_request_error", "The request is not valid."),
}


def _error(fault: ModelFault, key: str, model: str) -> Response:
    status, code, message = _ERRORS[fault.kind]
    headers = {} if fault.retry_after is None else {"Retry-After": f"{fault.retry_after:g}"}
    text = message.format(key=key, model=model)
    return JSONResponse({"error": {"message": text, "type": code, "code": code}}, status, headers)


def _made(said: ModelReply, fault: ModelFault | None) -> ModelReply:
    match fault.kind if fault else "":
        case "arguments":
            calls = said.calls or (ModelToolCall("write"),)
            return ModelReply(said.text, tuple(ModelToolCall(call.name, '{"line": "half') for call in calls))
        case "empty":
            return ModelReply()
    return said


@dataclass(frozen=True)
class Answering:
    """One response on the wire."""

    asked: ModelRequest
    said: ModelReply
    fault: ModelFault | None
    number: int
    model: ScriptedModel

    @property
    def kind(self) -> str:
        """The fault's kind; empty without a fault."""
        return self.fault.kind if self.fault else ""

    def whole(self) -> dict[str, Any]:
        """The response as one JSON object."""
        message = {"role": "assistant", "content": self.said.text or None, "tool_calls": list(self._calls()) or None}
        choice = {"index": 0, "message": message, "finish_reason": self._finish()}
        return self._envelope("chat.completion", [choice]) | {"usage": self._usage()}

    async def stream(self) -> AsyncIterator[bytes]:
        """The response as a stream of chunks."""
        deltas = list(self._deltas())
        middle = (len(deltas) + 1) // 2
        for place, delta in enumerate(deltas):
            yield self._chunk(delta)
            await asyncio.sleep(self.model.pace_s)
            if place + 1 != middle:
                continue
            async for chunk in self._in_the_middle():
                yield chunk
            if self.kind in {"cut", "error", "malformed"}:
                return
            if self.kind == "length":
                break
        yield self._chunk({}, self._finish())
        if self.asked.body.get("stream_options", {}).get("include_usage"):
            yield _event(self._envelope("chat.completion.chunk", []) | {"usage": self._usage()})
        yield b"data: [DONE]\n\n"

    async def _in_the_middle(self) -> AsyncIterator[bytes]:
        match self.kind:
            case "reset":
                raise ConnectionReset
            case "malformed":
                yield b"data: {this is not json\n\n"
            case "error":
                yield _event({"error": {"message": "The engine is overloaded.", "type": "server_error", "code": 500}})
            case "stall":
                await self.model.closing.wait()
                raise ConnectionReset

    def _deltas(self) -> Iterator[dict[str, Any]]:
        yield {"role": "assistant", "content": ""}
        if self.kind == "refused":
            yield {"refusal": "I will not do that."}
            return
        yield from ({"content": piece} for piece in re.findall(r"\S*\s*", self.said.text) if piece)
        for place, call in enumerate(self._calls()):
            arguments = call["function"].pop("arguments")
            yield {"tool_calls": [{"index": place, **call, "function": {**call["function"], "arguments": ""}}]}
            yield from (
                {"tool_calls": [{"index": place, "function": {"arguments": part}}]} for part in _halves(arguments)
            )

    def _calls(self) -> Iterator[dict[str, Any]]:
        earlier = sum(len(each.get("tool_calls") or ()) for each in self.asked.messages)
        for place, call in enumerate(self.said.calls, start=earlier + 1):
            function = {"name": call.name, "arguments": call.arguments}
            yield {"id": f"call_{place}", "type": "function", "function": function}

    def _finish(self) -> str:
        special = {"length": "length", "filter": "content_filter"}.get(self.kind)
        return special or ("tool_calls" if self.said.calls else "stop")

    def _chunk(self, delta: dict[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return _event(self._envelope("chat.completion.chunk", [choice]))

    def _envelope(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        about = {"id": f"chatcmpl-{self.number}", "object": kind, "created": 1_700_000_000}
        return about | {"model": self.asked.body.get("model"), "choices": choices}

    def _usage(self) -> dict[str, Any]:
        sent, said = len(json.dumps(self.asked.messages)) // 4, len(self.said.text) // 4 + 1
        return {"prompt_tokens": sent, "completion_tokens": said, "total_tokens": sent + said}


def _halves(text: str) -> Sequence[str]:
    return [part for part in (text[: len(text) // 2], text[len(text) // 2 :]) if part]


def _event(data: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(data)}\n\n".encode()


def _append(file: Path, line: str) -> None:
    number = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(number, f"{line}\n".encode())
    finally:
        os.close(number)


class ModelServer:
    """The scripted model on a port of this machine: `async with ModelServer() as server`."""

    def __init__(self, model: ScriptedModel | None = None, port: int = 0) -> None:
        self.model = model or ScriptedModel()
        self._socket = socket.create_server(("127.0.0.1", port))
        self.port: int = self._socket.getsockname()[1]
        self._server: EndingServer | None = None
        self._ended: asyncio.Task[None] | None = None

    @property
    def base_url(self) -> str:
        """The base URL for clients."""
        return f"http://127.0.0.1:{self.port}/v1"

    async def __aenter__(self) -> Self:
        self._server = EndingServer.of(self.model.app())
        self._ended = asyncio.create_task(self._server.serve(sockets=[self._socket]))
        return self

    async def __aexit__(self, *_: object) -> None:
        self.model.closing.set()
        if self._server is not None and self._ended is not None:
            self._server.end()
            await self._ended

    async def ended(self) -> None:
        """Wait until it is stopped."""
        if self._ended is not None:
            await asyncio.shield(self._ended)


async def _serve(arguments: argparse.Namespace) -> None:
    model = ScriptedModel(key=arguments.key, log=arguments.log, pace_s=arguments.pace)
    async with ModelServer(model, arguments.port) as server:
        sys.stdout.write(f"listening on {server.base_url}\n")
        sys.stdout.flush()
        await server.ended()


def main() -> None:
    """Listen until it is stopped."""
    parser = argparse.ArgumentParser("everturn.testing.model", description="A scripted OpenAI-compatible model.")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--log", type=Path, help="a file that gets every request as a line of JSON")
    parser.add_argument("--key", help="refuse requests with another key")
    parser.add_argument("--pace", type=float, default=0.0, help="seconds between two chunks of a stream")
    with suppress(KeyboardInterrupt):
        asyncio.run(_serve(parser.parse_args()))


if __name__ == "__main__":
    main()
