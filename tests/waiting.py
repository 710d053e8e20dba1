"""Waiting for a condition with a time limit, without polling: whoever changes something tells those who wait."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")
LONGEST_S = 60.0


class Changes:
    """Tells everybody who waits that something changed; each looks whether it is what they wait for."""

    def __init__(self) -> None:
        self._next = asyncio.Event()

    def changed(self) -> None:
        """Wake who waits."""
        self._next.set()
        self._next = asyncio.Event()

    async def until(self, true: Callable[[], T], within_s: float = LONGEST_S) -> T:
        """Wait until this is true, and return what it said; TimeoutError after so many seconds."""
        async with asyncio.timeout(within_s):
            while not (found := true()):
                await self._next.wait()
        return found

    async def next(self, at_most_s: float) -> None:
        """Wait for any change, or for so long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(at_most_s):
                await self._next.wait()


async def read_until(
    read: Callable[[], Awaitable[T]], true: Callable[[T], bool], within_s: float = LONGEST_S, every_s: float = 0.01
) -> T:
    """Read again and again, and return what is true. The pause is for others: who reads without one may keep a machine of two
    cores from writing what is waited for.
    """
    async with asyncio.timeout(within_s):
        while not true(found := await read()):  # noqa: ASYNC110  nobody can tell us
            await asyncio.sleep(every_s)
    return found


async def poll(true: Callable[[], bool], within_s: float = LONGEST_S, every_s: float = 0.02) -> None:
    """Look again and again: for what another process changes and cannot tell us."""
    async with asyncio.timeout(within_s):
        while not true():  # noqa: ASYNC110  nobody can tell us
            await asyncio.sleep(every_s)
