"""A raw model server as a process of its own: it streams tokens to `/v1/chat/completions`, paced or as fast as it can.

The newest order in the request's text decides: `#speak TOKENS RATE` streams so many tokens, RATE of them a second to each stream, and
a RATE of 0 as fast as they are taken; `#look TOKENS RATE` calls the tool `recall` first, where it is offered. Each token is an event
and a write of its own, as model servers send them, and says when it was written.

It is an `asyncio.Protocol` without a framework, so that it costs little of what is measured beside it: a token takes it 4 us as fast
as it can, and 17 us where a timer wakes it for each.

    python -P -m bench.raw_model PORT
"""

from __future__ import annotations

import asyncio
import gc
import json
import math
import re
import sys
import time
from typing import cast

import uvloop

ORDER = re.compile(rb"#(speak|look) (\d+) (\d+)")
LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)
TOOL_RESULT = re.compile(rb'"role":\s*"tool"')
TOOL = b'"recall"'
ARGUMENTS = '{"whose": "person", "query": ""}'
TICK_NS = 100_000  # a stamp counts tenths of a millisecond, in six hexadecimal digits
STAMPS = 1 << 24
CHARS_OF_A_TOKEN = 4
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
NOT_FOUND = b"HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\ncontent-type: application/json\r\n\r\n{}"
MARK = "######"


def stamp_now() -> int:
    """Count tenths of a millisecond on the clock that all processes of this machine share."""
    return time.monotonic_ns() // TICK_NS % STAMPS


def _event(*choices: dict[str, object], **more: object) -> bytes:
    """One event of a stream, as one chunk of its body."""
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_790_000_000, "model": "scripted"}
    data = b"data: " + json.dumps({**head, "choices": choices, **more}, separators=(",", ":")).encode() + b"\n\n"
    return b"%x\r\n%b\r\n" % (len(data), data)


def _choice(delta: dict[str, object], finish: str | None = None) -> dict[str, object]:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}


CALL = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "recall", "arguments": ARGUMENTS}}
FIRST = _event(_choice({"role": "assistant", "content": ""}))
BEFORE, _, AFTER = _event(_choice({"content": f"@{MARK} "})).partition(MARK.encode())
LAST = b"data: [DONE]\n\n"
DONE = b"%x\r\n%b\r\n0\r\n\r\n" % (len(LAST), LAST)
CALLED = _event(_choice({"role": "assistant", "content": None, "tool_calls": [CALL]})) + _event(
    _choice({}, "tool_calls")
)


def _end(tokens: int, size: int) -> bytes:
    given = size // CHARS_OF_A_TOKEN
    usage = {"prompt_tokens": given, "completion_tokens": tokens, "total_tokens": given + tokens}
    return _event(_choice({}, "stop")) + _event(usage=usage) + DONE


class RawModel(asyncio.Protocol):
    """One connection: a request, its stream, the next request."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._buffer = bytearray()
        self._wanted = 0  # bytes of the request that is being read; 0: its head is not complete
        self._body_at = 0
        self._left = self._tokens = self._size = 0
        self._gap = self._due = 0.0
        self._next: asyncio.Handle | None = None
        self._paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._stop()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if not self._wanted:
            end = self._buffer.find(b"\r\n\r\n")
            if end < 0:
                return
            length = LENGTH.search(self._buffer, 0, end)
            self._body_at = end + 4
            self._wanted = self._body_at + (int(length[1]) if length else 0)
        if len(self._buffer) >= self._wanted:
            asked = bytes(self._buffer[: self._wanted])
            del self._buffer[: self._wanted]
            self._wanted = 0
            self._answer(asked, asked[self._body_at :])

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        if self._left and not self._gap:
            self._next = self._loop.call_soon(self._at_once)

    def _answer(self, asked: bytes, body: bytes) -> None:
        if not asked.startswith(b"POST /v1/chat/completions"):
            self._transport.write(NOT_FOUND)
            return
        place = max(body.rfind(b"#speak "), body.rfind(b"#look "))
        order = ORDER.match(body, place) if place >= 0 else None
        verb, tokens, rate = order.groups() if order else (b"speak", b"4", b"0")
        if verb == b"look" and TOOL in body and TOOL_RESULT.search(body, place) is None:
            self._transport.write(HEAD + CALLED + _event(usage={}) + DONE)
            return
        self._left, self._tokens, self._size = int(tokens), int(tokens), len(body)
        self._gap = 1 / int(rate) if int(rate) else 0.0
        self._due = time.monotonic()
        self._transport.write(HEAD + FIRST)
        (self._paced if self._gap else self._at_once)()

    def _paced(self) -> None:
        """Write what is due. The times are fixed by the first one, so that a late timer delays nothing after it."""
        now = time.monotonic()
        while self._left and self._due <= now:
            self._token()
            self._due += self._gap
        if (
            self._left
        ):  # the loop's timers count whole milliseconds: one that fires too early would be set again and again
            self._next = self._loop.call_later(math.ceil((self._due - now) * 1000) / 1000, self._paced)

    def _at_once(self) -> None:
        """Write one token in each round of the loop, so that each stream gets its share and each token a write."""
        self._next = None
        self._token()
        if self._left and not self._paused:
            self._next = self._loop.call_soon(self._at_once)

    def _token(self) -> None:
        self._transport.write(b"%b%06x%b" % (BEFORE, stamp_now(), AFTER))
        self._left -= 1
        if not self._left:
            self._transport.write(_end(self._tokens, self._size))

    def _stop(self) -> None:
        self._left = 0
        if self._next is not None:
            self._next.cancel()


async def _serve(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(RawModel, "127.0.0.1", port, backlog=1024)
    gc.freeze()
    gc.disable()  # its few cycles are connections
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(_serve(int(sys.argv[1])))
