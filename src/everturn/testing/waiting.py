"""Time limits of tests for what must happen, and the report when it did not.

A wait that fails does so after 15 seconds and reports what was seen instead. On a slow machine EVERTURN_TEST_PATIENCE stretches all
of them: 3 means three times as long.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

PATIENCE = float(os.environ.get("EVERTURN_TEST_PATIENCE") or 1)
WAIT_S = 15.0 * PATIENCE


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
