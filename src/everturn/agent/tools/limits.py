"""Time limits on a given clock, so that tests can advance the time."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from everturn.clock import Clock

T = TypeVar("T")
UNWIND_S = 5.0  # for cancelled work to end; what ignores the cancellation is left to itself


async def within(clock: Clock, seconds: float, work: Coroutine[Any, Any, T]) -> T:
    """Await the work with a time limit; at the limit it is cancelled and TimeoutError raised."""
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
