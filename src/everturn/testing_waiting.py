"""How long tests wait for what must come, and what they say when it did not.

A wait that fails does so after 15 seconds and tells what was seen instead. On a slow machine EVERTURN_TEST_PATIENCE stretches all
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
    """What a test waited for did not come."""


@asynccontextmanager
async def within(seconds: float = WAIT_S, seen: Callable[[], object] = str) -> AsyncIterator[None]:
    """Give what happens inside so many seconds; `seen` says what there was instead."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        if isinstance(error, NotSeen):
            raise
        raise NotSeen(f"not within {seconds:g} s; seen instead: {seen()}") from None
