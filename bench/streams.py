"""Readers of streamed answers in a process of their own: each stream sends its requests one after the other and notes when tokens come.

Raw sockets, no HTTP library: what it costs is a system call and a regular expression for each piece that comes.
"""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import random
import re
import statistics
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import cast

import uvloop

from bench.raw_model import STAMPS, TICK_NS, stamp_now

HOST = "127.0.0.1"
STAMP = re.compile(rb"@([0-9a-f]{6})")
BODY_END = b"\r\n0\r\n\r\n"
OPENED_S = 0.02  # for the server to take what was connected
PATIENCE_S = 120.0
SHOWN = 2_000  # bytes of an answer that an error shows


@dataclass(frozen=True, slots=True)
class StreamLoad:
    """Where to, what each stream sends one after the other, when each begins, and how long."""

    port: int
    streams: tuple[Sequence[bytes], ...]
    starts: tuple[float, ...] = ()  # seconds after the beginning; empty: all at once
    seconds: float = 0.0  # after so many no stream sends its next request; 0: each sends all of its requests
    warm_up_s: float = 0.0  # tokens that come before are not counted in `rate`


@dataclass(slots=True)
class StreamedAnswer:
    """When an answer's tokens came, in nanoseconds of the machine's clock, and how old each was, in milliseconds."""

    sent_at: int
    first_at: int = 0
    last_at: int = 0
    tokens: int = 0
    late_ms: list[float] = field(default_factory=list)

    @property
    def first_ms(self) -> float:
        """From the request to its first token."""
        return (self.first_at - self.sent_at) / 1e6

    @property
    def rate(self) -> float:
        """Tokens a second, from the first to the last."""
        return (self.tokens - 1) / (self.last_at - self.first_at) * 1e9


@dataclass(frozen=True, slots=True)
class Streamed:
    """What all streams of a block saw; processor time of the readers; tokens a second between warm-up and end."""

    answers: list[StreamedAnswer]
    cpu_s: float
    rate: float

    @property
    def tokens(self) -> int:
        """All that came."""
        return sum(each.tokens for each in self.answers)

    @property
    def first_ms(self) -> float:
        """The median time to the first token."""
        return statistics.median(each.first_ms for each in self.answers)

    def late_ms(self, part: float) -> float:
        """How old a token was when it came: this part of all were younger."""
        ordered = sorted(late for each in self.answers for late in each.late_ms)
        return ordered[int(len(ordered) * part)]


class Readers:
    """Reads in one other process, which stays."""

    def __init__(self, pool: ProcessPoolExecutor) -> None:
        self._pool = pool

    async def read(self, load: StreamLoad) -> Streamed:
        """Drive one load to its end."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, drive, load)


@contextmanager
def readers(cores: Sequence[int]) -> Iterator[Readers]:
    """Their process, on these cores."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context, initializer=_prepare, initargs=(tuple(cores),)) as pool:
        yield Readers(pool)


def spread(count: int, seconds: float) -> tuple[float, ...]:
    """Times at which that many streams begin: drawn, but the same in every block, so that both sides get the same."""
    draw = random.Random(count)
    return tuple(draw.uniform(0, seconds) for _ in range(count))


def drive(load: StreamLoad) -> Streamed:
    """Drive the load from this process."""
    gc.collect()
    gc.disable()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_drive(load))
    finally:
        gc.enable()


def _prepare(cores: tuple[int, ...]) -> None:
    os.sched_setaffinity(0, cores)


class _Stream(asyncio.Protocol):
    """One connection: a request, all of its answer, the next request."""

    def __init__(self, load: StreamLoad, requests: Sequence[bytes]) -> None:
        self._requests = iter(requests)
        self._until = 0
        self._counted = (0, 0)
        self._load = load
        self._rest = b""
        self._seen = b""
        self.answers: list[StreamedAnswer] = []
        self.counted = 0
        self.done = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(exc or ConnectionError(f"the connection ended after {self._seen!r}"))

    def close(self) -> None:
        """Close the connection."""
        self._transport.close()

    def begin(self, began: int) -> None:
        """Send the first request; the times of the load count from `began`."""
        seconds, warm_up = self._load.seconds, self._load.warm_up_s
        self._until = began + int(seconds * 1e9) if seconds else 0
        self._counted = (began + int(warm_up * 1e9), self._until)
        self._send()

    def data_received(self, data: bytes) -> None:
        now, tick = time.monotonic_ns(), stamp_now()
        self._seen += data[: SHOWN - len(self._seen)]
        text = self._rest + data
        cut = text.rfind(b"\n\n")
        found = STAMP.findall(text, 0, max(cut, 0))
        self._rest = text[cut:] if cut >= 0 else text
        if found:
            answer = self.answers[-1]
            answer.first_at = answer.first_at or now
            answer.last_at = now
            answer.tokens += len(found)
            answer.late_ms += [(tick - int(stamp, 16)) % STAMPS * TICK_NS / 1e6 for stamp in found]
            self.counted += len(found) if self._counted[0] <= now < self._counted[1] else 0
        if self._rest.endswith(BODY_END):
            self._ended(now)
        elif not self._seen.startswith(b"HTTP/1.1 200"[: len(self._seen)]):
            self._transport.close()

    def _ended(self, now: int) -> None:
        if not self.answers[-1].tokens:
            self._transport.close()
        elif not self._until or now < self._until:
            self._send()
        else:
            self.done.set_result(None)

    def _send(self) -> None:
        request = next(self._requests, None)
        if request is None:
            self.done.set_result(None)
            return
        self._seen = self._rest = b""
        self.answers.append(StreamedAnswer(time.monotonic_ns()))
        self._transport.write(request)


async def _drive(load: StreamLoad) -> Streamed:
    loop = asyncio.get_running_loop()
    streams = [
        (await loop.create_connection(lambda each=each: _Stream(load, each), HOST, load.port))[1]  # type: ignore[misc]
        for each in load.streams
    ]
    await asyncio.sleep(OPENED_S)
    began, cpu = time.monotonic_ns(), time.process_time()
    zero = loop.time()
    for place, stream in enumerate(streams):
        if load.starts:
            loop.call_at(zero + load.starts[place], stream.begin, began)
        else:
            stream.begin(began)
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(*(stream.done for stream in streams))
    cpu_s = time.process_time() - cpu
    for stream in streams:
        stream.close()
    counted = sum(stream.counted for stream in streams)
    seconds = load.seconds - load.warm_up_s
    return Streamed([each for stream in streams for each in stream.answers], cpu_s, counted / seconds if seconds else 0)
