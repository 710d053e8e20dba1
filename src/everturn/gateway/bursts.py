"""Keys whose messages are being collected: each is looked at again when it may have been quiet for long enough."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from everturn.clock import Clock


class Bursts:
    """One timer per key that collects now. They are in memory only: the next life finds the messages and looks again."""

    def __init__(self, clock: Clock, wake: Callable[[str], None]) -> None:
        self._clock = clock
        self._wake = wake
        self._timers: dict[str, asyncio.Task[None]] = {}

    def wake_at(self, key: str, at: float) -> None:
        """Look at the key then; more messages move the time when it is looked at, not before."""
        if key not in self._timers:
            timer = asyncio.create_task(self._until(at))
            self._timers[key] = timer
            timer.add_done_callback(partial(self._quiet, key))

    async def _until(self, at: float) -> None:
        """How long that is, is asked when the waiting begins: time may pass before it does."""
        await self._clock.sleep(max(0.0, at - self._clock.now()))

    def stop(self) -> None:
        """Wake nobody any more."""
        for timer in list(self._timers.values()):
            timer.cancel()

    def _quiet(self, key: str, timer: asyncio.Task[None]) -> None:
        del self._timers[key]
        if not timer.cancelled():
            self._wake(key)
