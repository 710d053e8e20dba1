"""Memory of a connected account of a chat platform: growth of this process from a few accounts to many."""

from __future__ import annotations

import gc
from collections.abc import Awaitable, Callable
from pathlib import Path

FEW, MANY = 5, 25


async def memory_each(connected: Callable[[int], Awaitable[object]]) -> float:
    """kB for each account more; `connected` makes the one of a number and has it talk to its server."""
    held = [await connected(number) for number in range(FEW)]
    before = _resident_kb()
    held += [await connected(number) for number in range(FEW, MANY)]
    return (_resident_kb() - before) / (len(held) - FEW)


def _resident_kb() -> int:
    gc.collect()
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))
