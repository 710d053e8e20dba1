"""Waits until an album or a burst of messages is whole, then wakes its session key; the beginning of a turn joins them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from functools import partial

from everturn.clock import Clock
from everturn.inbox.rules import ALBUM_S


class Bursts:
    """One timer per key that collects now. They are in memory only: the next process finds the messages again."""

    def __init__(self, clock: Clock, wake: Callable[[str], None]) -> None:
        self._clock = clock
        self._wake = wake
        self._timers: dict[str, asyncio.Task[None]] = {}
        self._storing: Counter[str] = Counter()  # parts of albums that are being stored

    def storing_part(self, key: str) -> None:
        """Note that a part of an album is being stored: however long that takes, the album is not whole before."""
        self._storing[key] += 1

    def stored_part(self, key: str) -> None:
        """Note that a part was stored or refused: its album is whole when nothing more comes for a while from now on."""
        self._storing[key] -= 1
        self.wake_at(key, self._clock.now() + ALBUM_S)

    def wake_at(self, key: str, at: float) -> None:
        """Wake the key then, if it has no timer; messages that come meanwhile are considered when it wakes."""
        if key not in self._timers:
            timer = asyncio.create_task(self._until(at))
            self._timers[key] = timer
            timer.add_done_callback(partial(self._quiet, key))

    async def _until(self, at: float) -> None:
        """Sleep until a time; the delay is computed when the task starts, as time may pass before it does."""
        await self._clock.sleep(max(0.0, at - self._clock.now()))

    def stop(self) -> None:
        """Cancel all timers."""
        for timer in list(self._timers.values()):
            timer.cancel()

    def _quiet(self, key: str, timer: asyncio.Task[None]) -> None:
        del self._timers[key]
        if self._storing[key] > 0:  # stored_part wakes it again
            return
        del self._storing[key]
        if not timer.cancelled():
            self._wake(key)
