"""Readers of one chat's events in a process of their own: when each word came, against the time it carries."""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import dataclass

import uvloop

from bench.load import post
from everturn.web.wire.server import room_for

STAMP = re.compile(rb"@(\d+)")
ENDED = b'"state":"answered"'
Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass(frozen=True, slots=True)
class Hearing:
    """The address, and how many watch."""

    host: str
    port: int
    token: str
    chat: str
    watchers: int


class _Reader(asyncio.Protocol):
    """One watcher; it notes for each piece that comes how old its newest word is."""

    def __init__(self, request: bytes) -> None:
        self._request = request
        self._tail = b""
        self.ready = asyncio.get_running_loop().create_future()
        self.ended = asyncio.get_running_loop().create_future()
        self.times: list[float] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.write(self._request)  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        now = time.monotonic_ns()
        seen = self._tail + data
        self._tail = seen[-40:]
        if not self.ready.done():
            if b"retry: " in seen:
                self.ready.set_result(None)
            return
        stamps = STAMP.findall(seen, max(0, len(seen) - 120))
        if stamps and b"@" in data:
            self.times.append((now - int(stamps[-1])) / 1e6)
        if ENDED in seen and not self.ended.done():
            self.ended.set_result(None)


def hear(task: Hearing) -> list[float]:
    """Open the streams, post a message, listen to the end; every lateness in milliseconds."""
    room_for(task.watchers + 100)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_hear(task))


async def _hear(task: Hearing) -> list[float]:
    loop = asyncio.get_running_loop()
    request = get(task.host, f"/api/chats/{task.chat}/events?added=1", task.token)
    opened = [
        await loop.create_connection(lambda: _Reader(request), task.host, task.port) for _ in range(task.watchers)
    ]
    readers = [reader for _, reader in opened]
    await asyncio.gather(*(reader.ready for reader in readers))
    answers, writer = await asyncio.open_connection(task.host, task.port)
    writer.write(post(task.host, f"/api/chats/{task.chat}/messages", task.token, b'{"id": "1", "text": "speak"}'))
    await answers.readuntil(b"}")
    await asyncio.gather(*(reader.ended for reader in readers))
    for transport, _ in opened:
        transport.close()
    writer.close()
    return [each for reader in readers for each in reader.times]


def get(host: str, path: str, token: str) -> bytes:
    """A request without a body."""
    return f"GET {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n\r\n".encode()


async def open_idle(host: str, port: int, token: str, begin: int, end: int) -> list[Stream]:
    """Watchers of so many chats in which nothing happens, all connected."""
    room_for(end + 100)
    return [
        await _idle(host, port, get(host, f"/api/chats/idle-{number}/events", token)) for number in range(begin, end)
    ]


async def _idle(host: str, port: int, request: bytes) -> Stream:
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(request)
    await reader.readuntil(b"retry: ")
    return reader, writer
