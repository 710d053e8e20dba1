"""A clock that a test moves, and time limits for what a test waits for.

A wait that fails does so after 15 seconds and reports what was seen instead. On a slow machine EVERTURN_TEST_PATIENCE stretches
all of them: 3 means three times as long.
"""

from __future__ import annotations

import asyncio
import heapq
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

PATIENCE = float(os.environ.get("EVERTURN_TEST_PATIENCE") or 1)
WAIT_S = 15.0 * PATIENCE


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


class NotSeen(TimeoutError):
    """What a test waited for did not happen."""


@asynccontextmanager
async def within(seconds: float = WAIT_S, seen: Callable[[], object] = str) -> AsyncIterator[None]:
    """Limit the time of the block; on a timeout `seen` reports the state that there was instead."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        if isinstance(error, NotSeen):
            raise
        raise NotSeen(f"not within {seconds:g} s; seen instead: {seen()}") from None
