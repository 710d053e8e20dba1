"""The delay of text from the agent to its watchers, with one watcher and with many, and what an idle
watcher costs.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import time
from collections.abc import AsyncIterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

from starlette.types import Receive, Scope, Send

from bench.disk import folder
from bench.hearing import Hearing, hear, open_idle
from bench.process import Child, gateway
from bench.report import Line, at_most, say
from bench.running import Running
from bench.serving import HOST, TOKEN, bare, front_of
from everturn.agent.interface import Answer, TurnContext
from everturn.web.events import HEAD, RECONNECT
from everturn.web.wire.requests import encode

METHOD = (
    "an agent adds a word with the time every 20 ms, 100 words; readers in a process of their own watch that one chat and compare the "
    "newest word's time with theirs; against the smallest broadcaster one would write (a queue for each reader) on the same server, in turn; "
    "the median over rounds. Memory: a real gateway, growth of its resident memory from 50 to 1,050 idle watchers, each of another chat"
)
WORDS, EVERY_S = 100, 0.02
ROUNDS = 4
MANY = 200
FIRST, IDLE = 50, 1_000


@dataclass(frozen=True, slots=True)
class Lateness:
    """Of one block, in milliseconds."""

    p50: float
    p99: float


def some_text(count: int) -> str:
    """One more word; it says when."""
    return f"word {count} @{time.monotonic_ns()} "


class Streaming:
    """An agent that speaks word by word."""

    async def run(self, turn: TurnContext) -> Answer:
        """One turn."""
        await turn.calling()
        text = ""
        for count in range(WORDS):
            text += some_text(count)
            turn.stream(text)
            await asyncio.sleep(EVERY_S)
        return Answer("that was all")


class Broadcaster:
    """The same without anything else: a connection gets a queue, a posted message makes it speak."""

    def __init__(self) -> None:
        self._queues: set[asyncio.Queue[bytes]] = set()

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        """Watch, or make it speak."""
        if scope["method"] == "POST":
            await send({"type": "http.response.start", "status": 202, "headers": [(b"content-length", b"2")]})
            await send({"type": "http.response.body", "body": b"{}"})
            await self._speak()
            return
        await send({"type": "http.response.start", "status": 200, "headers": HEAD})
        await send({"type": "http.response.body", "body": RECONNECT, "more_body": True})
        queue: asyncio.Queue[bytes] = asyncio.Queue()
        self._queues.add(queue)
        while chunk := await queue.get():
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def _speak(self) -> None:
        text = ""
        for count in range(WORDS):
            text += some_text(count)
            self._tell(b"event: delta\ndata: " + encode({"turn": "1", "text": text}) + b"\n\n")
            await asyncio.sleep(EVERY_S)
        self._tell(b'data: "state":"answered"\n\n')
        self._tell(b"")
        self._queues.clear()

    def _tell(self, chunk: bytes) -> None:
        for queue in self._queues:
            queue.put_nowait(chunk)


async def measure() -> list[Line]:
    """Measure the delay, then the memory."""
    return [*await _late(), *await _idle()]


async def _late() -> list[Line]:
    async with _doors() as ports:
        blocks: dict[tuple[str, int], list[Lateness]] = {}
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
            for number in range(ROUNDS):
                for name, port in ports.items():
                    for watchers in (1, MANY):
                        task = Hearing(HOST, port, TOKEN, f"{name}-{number}-{watchers}", watchers)
                        times = await asyncio.get_running_loop().run_in_executor(pool, hear, task)
                        blocks.setdefault((name, watchers), []).append(_lateness(times))
    for (name, watchers), each in blocks.items():
        say(f"  {name:8} {watchers:3} watchers: p50 {_mid(each).p50:.2f} ms, p99 {_mid(each).p99:.2f} ms")
    return _lines({key: _mid(each) for key, each in blocks.items()})


@contextlib.asynccontextmanager
async def _doors() -> AsyncIterator[dict[str, int]]:
    with folder() as path:
        running = await Running.open(f"sqlite:///{path / 'everturn.db'}", api=True, agent=Streaming())
        async with front_of(running) as ours, bare(Broadcaster()) as theirs:
            yield {"everturn": ours.port, "bare": theirs.port}
        await running.abandon()


def _lateness(times: list[float]) -> Lateness:
    ordered = sorted(times)
    return Lateness(ordered[len(ordered) // 2], ordered[len(ordered) * 99 // 100])


def _mid(blocks: list[Lateness]) -> Lateness:
    """The block in the middle."""
    return sorted(blocks, key=lambda block: block.p50)[len(blocks) // 2]


def _lines(late: dict[tuple[str, int], Lateness]) -> list[Line]:
    lines = []
    for watchers in (1, MANY):
        ours, theirs = late["everturn", watchers], late["bare", watchers]
        name = f"from a word to {watchers} watcher{'s' if watchers > 1 else ''}"
        lines += [
            Line(name=f"{name}, p50", value=ours.p50, unit="ms"),
            Line(name=f"{name}, p99", value=ours.p99, unit="ms"),
            Line(name=f"{name}, p50 / bare", value=ours.p50 / theirs.p50, target=at_most(1.5)),
            Line(name=f"{name}, p99 / bare", value=ours.p99 / theirs.p99),
        ]
    return lines


async def _idle() -> list[Line]:
    with folder() as path, gateway(path) as child:
        await asyncio.to_thread(child.wait_ready)
        few = await _after(child, 0, FIRST)
        many = await _after(child, FIRST, FIRST + IDLE)
        kilobytes = (many[1] - few[1]) / IDLE / 1000
        for _, writer in few[0] + many[0]:
            writer.close()
    return [Line(name="memory of an idle watcher", value=kilobytes, unit="kB", target=at_most(60, aim=20))]


async def _after(
    child: Child, begin: int, end: int
) -> tuple[list[tuple[asyncio.StreamReader, asyncio.StreamWriter]], int]:
    token = (child.home / "api_token").read_text(encoding="utf-8").strip()
    streams = await open_idle(HOST, child.port, token, begin, end)
    return streams, await asyncio.to_thread(child.memory)
