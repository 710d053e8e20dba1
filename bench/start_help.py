"""How long `everturn --help` takes."""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import time
from pathlib import Path

from bench.report import Line, at_most

METHOD = "wall time of `everturn --help`, a process each, median of ten (and the bare interpreter beside it)"
RUNS = 10


async def measure() -> list[Line]:
    """In turn with an interpreter that does nothing."""
    command = Path(sys.executable).with_name("everturn")
    times = await asyncio.to_thread(_times, [[str(command), "--help"], [sys.executable, "-c", "pass"]])
    ours, bare = (statistics.median(each) for each in times)
    return [
        Line(name="everturn --help", value=ours, unit="s", target=at_most(0.3), detail=f"python alone {bare:.3f} s")
    ]


def _times(commands: list[list[str]]) -> list[list[float]]:
    times: list[list[float]] = [[] for _ in commands]
    for number in range(1 + RUNS):
        for command, seen in zip(commands, times, strict=True):
            began = time.perf_counter()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            if number:
                seen.append(time.perf_counter() - began)
    return times
