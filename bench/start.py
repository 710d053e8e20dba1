"""How long a start takes and how much memory a gateway uses with a million idle conversations against a thousand."""

from __future__ import annotations

import asyncio
import statistics
from pathlib import Path

from bench.homes import home_with, warm
from bench.process import gateway
from bench.report import Line, at_most, say
from bench.size import LARGE, SMALL

METHOD = (
    "`everturn run` as a process of its own on both homes in turn; from its start until GET /ready answers 200, then its "
    "resident memory; medians"
)
ROUNDS = 7


async def measure() -> list[Line]:
    """Both homes in turn."""
    homes = {SMALL: await home_with(SMALL), LARGE: await home_with(LARGE)}
    for home in homes.values():
        await asyncio.to_thread(warm, home)
    seen: dict[int, list[tuple[float, int]]] = {size: [] for size in homes}
    for number in range(1 + ROUNDS):
        for size, home in homes.items():
            found = await asyncio.to_thread(_start, home)
            if number:
                seen[size].append(found)
    ready = {size: statistics.median(found[0] for found in each) for size, each in seen.items()}
    memory = {size: statistics.median(found[1] for found in each) for size, each in seen.items()}
    for size in homes:
        say(f"  {size:>9,} conversations: ready in {ready[size]:.3f} s, {memory[size] / 1e6:.1f} MB")
    return [
        Line(name="ready with 1,000,000 / with 1,000", value=ready[LARGE] / ready[SMALL], target=at_most(1.2)),
        Line(name="memory with 1,000,000 / with 1,000", value=memory[LARGE] / memory[SMALL], target=at_most(1.1)),
        Line(name="ready with 1,000", value=ready[SMALL], unit="s"),
        Line(name="memory with 1,000", value=memory[SMALL] / 1e6, unit="MB"),
    ]


def _start(home: Path) -> tuple[float, int]:
    with gateway(home) as child:
        return child.wait_ready(), child.memory()
