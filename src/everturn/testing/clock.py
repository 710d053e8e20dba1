"""A clock for tests that only moves when the test advances it."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Coroutine
from itertools import count
from typing import Any


class ManualClock:
    """A clock whose time passes only by `advance`."""

    def __init__(self, at: float = 1_800_000_000.0) -> None:
        self._at = at
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._numbers = count()

    def now(self) -> float:
        """UTC seconds."""
        return self._at

    def monotonic(self) -> float:
        """The same seconds as `now`."""
        return self._at

    def sleep(self, seconds: float) -> Coroutine[Any, Any, None]:
        """Wait until the clock was advanced far enough.

        The time runs from the call, not from the first step of a task that waits: an `advance` between the two is not lost.
        """
        if seconds <= 0:
            return asyncio.sleep(0)
        due: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._at + seconds, next(self._numbers), due))
        return _wait(due)

    def advance(self, seconds: float) -> None:
        """Let time pass; the sleepers that are due wake, in order."""
        self._at += seconds
        while self._sleepers and self._sleepers[0][0] <= self._at:
            _, _, future = heapq.heappop(self._sleepers)
            if not future.done():
                future.set_result(None)

    def set_back(self, seconds: float) -> None:
        """Set the clock back, as a correction of the machine's clock does; no sleeper wakes."""
        self._at -= seconds


async def _wait(due: asyncio.Future[None]) -> None:
    await due
