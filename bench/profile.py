"""Where a turn's processor time goes: the event loop and the writer thread apart, first by clock, then by function."""

from __future__ import annotations

import cProfile
import io
import pstats
import time
from collections.abc import Callable

from bench.disk import folder
from bench.report import Line, say
from bench.running import Running
from everturn.store.interface import Op, sql

METHOD = (
    "64 conversations at once in process; processor time of each thread without a profiler, then cProfile on both "
    "(which makes small functions look dearer than they are)"
)
SESSIONS = 64
BLOCK_S = 2.0
SHOWN = 22


async def measure() -> list[Line]:
    """Times first, then the profile."""
    with folder() as path:
        gateway = await Running.open(f"sqlite:///{path / 'everturn.db'}")
        await gateway.measure("chat-{}".format, SESSIONS, BLOCK_S)
        lines = await _times(gateway)
        loop, writer = cProfile.Profile(time.thread_time), cProfile.Profile(time.thread_time)
        await gateway.store.run(_on_writer, writer.enable)
        loop.enable()
        sample = await gateway.measure("chat-{}".format, SESSIONS, BLOCK_S)
        loop.disable()
        await gateway.store.run(_on_writer, writer.disable)
        await gateway.close()
    for name, profile in (("event loop", loop), ("writer thread", writer)):
        say(f"\n  {name}, {sample.done} turns, microseconds a turn:\n{_top(profile, sample.done)}")
    return lines


async def _times(gateway: Running) -> list[Line]:
    """An operation runs on the writer thread, so it can read that thread's clock."""
    shares = []
    for _ in range(5):
        writer, loop = await gateway.store.run(_on_writer, time.thread_time), time.thread_time()
        sample = await gateway.measure("chat-{}".format, SESSIONS, BLOCK_S / 2)
        spent = await gateway.store.run(_on_writer, time.thread_time) - writer, time.thread_time() - loop
        shares.append(tuple(1e6 * each / sample.done for each in spent))
    writer_us, loop_us = (min(column) for column in zip(*shares, strict=True))
    return [
        Line(name="processor time of a turn, event loop", value=loop_us, unit="us"),
        Line(name="processor time of a turn, writer thread", value=writer_us, unit="us"),
    ]


def _on_writer(call: Callable[[], object]) -> Op[object]:
    yield sql("SELECT 1")  # an operation is a generator
    return call()


def _top(profile: cProfile.Profile, turns: int) -> str:
    out = io.StringIO()
    stats = pstats.Stats(profile, stream=out)
    found = sorted(stats.stats.items(), key=lambda item: -item[1][2])[:SHOWN]  # type: ignore[attr-defined]
    rows = []
    for (file, line, name), (_, calls, own, total, _) in found:
        where = f"{file.rpartition('/')[2]}:{line} {name}" if line else name
        rows.append(
            f"    own {1e6 * own / turns:6.1f}  with callees {1e6 * total / turns:6.1f}  calls {calls / turns:5.1f}  {where}"
        )
    return "\n".join(rows)
