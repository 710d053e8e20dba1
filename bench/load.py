"""A minimal HTTP/1.1 load client: keep-alive connections over raw sockets, one request at a time on each.

Run it in a process of its own (`run`), so that its work is not measured as the server's.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import re
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import cast

import uvloop

LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)
MakeRequest = Callable[[int, int], bytes]
"""The request of a connection (first number) in its turn (second number); a function of a module."""


@dataclass(frozen=True, slots=True)
class Load:
    """The address, the request, and how many of them."""

    host: str
    port: int
    request: MakeRequest
    connections: int = 64
    seconds: float = 3.0
    warm_up_s: float = 0.5
    shift: int = 0  # added to the second number: later loads of the same server use new ids


@dataclass(frozen=True, slots=True)
class Result:
    """What was measured after the warm-up."""

    requests: int
    seconds: float
    statuses: dict[int, int]
    median_ms: float
    p99_ms: float

    @property
    def per_second(self) -> float:
        """Answered requests a second."""
        return self.requests / self.seconds


def post(host: str, path: str, token: str, body: bytes) -> bytes:
    """A request with a JSON body."""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n"
    )
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


async def run(load: Load) -> Result:
    """Drive the load from another process and wait for its result."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return await asyncio.get_running_loop().run_in_executor(pool, drive, load)


def drive(load: Load) -> Result:
    """Drive the load from this process."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_drive(load))


class _Client(asyncio.Protocol):
    """One connection: send, wait for the whole answer, send the next."""

    def __init__(self, load: Load, number: int, begin: float) -> None:
        self._load = load
        self._number = number
        self._turn = load.shift
        self._begin = begin
        self._end = begin + load.seconds
        self._sent_at = 0.0
        self._buffer = b""
        self.done = asyncio.get_running_loop().create_future()
        self.statuses: Counter[int] = Counter()
        self.times: list[float] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._next()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, parted, body = self._buffer.partition(b"\r\n\r\n")
        if not parted:
            return
        length = LENGTH.search(head)
        if length is None or len(body) < int(length[1]):
            return
        now = time.perf_counter()
        if now >= self._begin:
            self.statuses[int(head[9:12])] += 1
            self.times.append(now - self._sent_at)
        self._buffer = b""
        if now < self._end:
            self._next()
        else:
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self.done.set_result(None)

    def _next(self) -> None:
        self._turn += 1
        self._sent_at = time.perf_counter()
        self._transport.write(self._load.request(self._number, self._turn))


async def _drive(load: Load) -> Result:
    loop = asyncio.get_running_loop()
    begin = time.perf_counter() + load.warm_up_s
    clients = [_Client(load, number, begin) for number in range(load.connections)]
    for client in clients:
        await loop.create_connection(lambda client=client: client, load.host, load.port)  # type: ignore[misc]
    await asyncio.gather(*(client.done for client in clients))
    statuses = sum((client.statuses for client in clients), Counter[int]())
    times = sorted(each for client in clients for each in client.times)
    return Result(
        requests=len(times), seconds=load.seconds, statuses=dict(statuses),
        median_ms=1000 * times[len(times) // 2], p99_ms=1000 * times[len(times) * 99 // 100],
    )  # fmt: skip
