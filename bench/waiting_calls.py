"""A thousand turns that wait for their model at the same time, in one process: memory of each, and how late the loop is."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import httpx
import structlog
import uvloop

from bench.disk import folder
from bench.model_server import llm_settings, model_server, more_files
from bench.report import Line, say
from bench.running import Running
from bench.scripted_model import INSTRUCTIONS
from everturn.agent.llm.agent import LlmAgent
from everturn.lifecycle.settings import Settings

METHOD = (
    "a gateway in a process of its own, each turn of another conversation, begun in groups of 50; the model's server begins its answer and then says "
    "nothing more; memory: growth from 50 to 1,050 waiting calls; the loop's delay: a 5 ms sleep again and again for ten seconds, "
    "how much later it wakes, with none waiting and with all"
)
FIRST = 50
CALLS = 1000
LOOK_S = 10.0
SLEEP_S = 0.005
PATIENCE_S = 300.0


@dataclass(frozen=True, slots=True)
class Seen:
    """What the process saw."""

    bytes_each: float
    idle_p99_ms: float
    waiting_p99_ms: float
    waiting_max_ms: float
    begun_s: float


async def measure() -> list[Line]:
    """In a process of its own, so that its memory is its own."""
    context = multiprocessing.get_context("spawn")
    with folder() as path, model_server(path) as base_url, ProcessPoolExecutor(1, mp_context=context) as pool:
        seen = await asyncio.get_running_loop().run_in_executor(pool, _wait, str(path), base_url)
    say(
        f"  all {CALLS:,} calls were waiting after {seen.begun_s:.1f} s; the latest wake-up was {seen.waiting_max_ms:.1f} ms late"
    )
    return [
        Line(name="memory of a waiting model call", value=seen.bytes_each / 1024, unit="KiB"),
        Line(name="loop delay p99 with 1,000 waiting calls", value=seen.waiting_p99_ms, unit="ms"),
        Line(name="loop delay p99, 1,000 waiting calls / none", value=seen.waiting_p99_ms / seen.idle_p99_ms),
    ]


def _wait(path: str, base_url: str) -> Seen:
    more_files()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_waiting(Path(path), base_url))


async def _waiting(path: Path, base_url: str) -> Seen:
    settings = llm_settings(base_url, INSTRUCTIONS)
    agent = LlmAgent(settings)
    ours = await Running.open(
        f"sqlite:///{path / 'waiting.db'}", api=True, agent=agent, settings=Settings(running_turns=2 * CALLS)
    )
    idle = await _delays()
    await _stall(base_url)
    await _begin(ours, path, range(FIRST))
    before, began = _memory(), time.perf_counter()
    for first in range(FIRST, FIRST + CALLS, FIRST):
        await _begin(ours, path, range(first, first + FIRST))
    begun_s = time.perf_counter() - began
    late = await _delays()
    after = _memory()
    await ours.abandon()
    await agent.close()
    return Seen((after - before) / CALLS, _p99(idle), _p99(late), late[-1], begun_s)


async def _stall(base_url: str) -> None:
    """From now on the server begins its answers and does not end them."""
    async with httpx.AsyncClient(trust_env=False) as client:
        orders = [{"kind": "stall", "times": FIRST + CALLS}]
        (await client.post(f"{base_url.removesuffix('/v1')}/faults", json=orders)).raise_for_status()


async def _begin(ours: Running, path: Path, numbers: range) -> None:
    """Send so many messages and wait until the model was asked for all of them."""
    await asyncio.gather(*(ours.accept(f"chat-{number}") for number in numbers))
    async with asyncio.timeout(PATIENCE_S):
        while await asyncio.to_thread(_asked, path) < numbers.stop:  # noqa: ASYNC110  another process writes it
            await asyncio.sleep(0.02)


def _asked(path: Path) -> int:
    log = path / "log"
    return log.read_bytes().count(b"\n") if log.exists() else 0


async def _delays() -> list[float]:
    """How many milliseconds too late a short sleep ended, each time; sorted."""
    late: list[float] = []
    until = time.perf_counter() + LOOK_S
    while (began := time.perf_counter()) < until:
        await asyncio.sleep(SLEEP_S)
        late.append(1000 * (time.perf_counter() - began - SLEEP_S))
    return sorted(late)


def _p99(delays: list[float]) -> float:
    return delays[len(delays) * 99 // 100]


def _memory() -> int:
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return 1024 * int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1])
