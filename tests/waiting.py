"""Wait for a condition with a time limit: whoever changes something wakes those who wait.

Every limit comes from `everturn.testing.clock`: EVERTURN_TEST_PATIENCE stretches it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from everturn.testing.clock import PATIENCE, WAIT_S, NotSeen, within

__all__ = ["PATIENCE", "WAIT_S", "Changes", "NotSeen", "poll", "read_until", "within"]
T = TypeVar("T")


class Changes:
    """Wakes everybody who waits when something changed; each checks its own condition."""

    def __init__(self, seen: Callable[[], object] = str) -> None:
        self._next = asyncio.Event()
        self._seen = seen  # what there is, for whom waits in vain

    def changed(self) -> None:
        """Wake everybody who waits."""
        self._next.set()
        self._next = asyncio.Event()

    async def until(self, true: Callable[[], T], within_s: float = WAIT_S) -> T:
        """Wait until this is true, and return what it said."""
        async with within(within_s, self._seen):
            while not (found := true()):
                await self._next.wait()
        return found

    async def next(self, at_most_s: float) -> None:
        """Wait for any change, or for so long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(at_most_s):
                await self._next.wait()


async def read_until(
    read: Callable[[], Awaitable[T]], true: Callable[[T], bool], within_s: float = WAIT_S, every_s: float = 0.01
) -> T:
    """Read again and again, and return what is true. The pause is for others: who reads without one may keep a machine of two
    cores from writing what is waited for.
    """
    seen: list[T] = []
    async with within(within_s, lambda: seen[-1:]):
        while not true(found := await read()):
            seen[:] = [found]
            await asyncio.sleep(every_s)
    return found


async def poll(
    true: Callable[[], bool], within_s: float = WAIT_S, every_s: float = 0.02, seen: Callable[[], object] = str
) -> None:
    """Look again and again: for what another process changes and cannot tell us."""
    async with within(within_s, seen):
        while not true():  # noqa: ASYNC110  nobody can tell us
            await asyncio.sleep(every_s)
