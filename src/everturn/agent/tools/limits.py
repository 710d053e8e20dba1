"""Time limits on a given clock, so that a test moves the time by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from everturn.clock import Clock

T = TypeVar("T")
UNWIND_S = 5.0  # for work that is told to end; what ignores it is left to itself


async def within(clock: Clock, seconds: float, work: Coroutine[Any, Any, T]) -> T:
    """The result of the work, if it comes in time; else it is ended and TimeoutError raised."""
    limit = asyncio.ensure_future(clock.sleep(seconds))  # first: the time runs before the work does anything
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait({task, limit}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise TimeoutError
        return task.result()
    finally:
        limit.cancel()
        if not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=UNWIND_S)
