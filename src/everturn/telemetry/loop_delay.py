"""Measures event loop delay: the first sign that something blocks the loop, or that the machine is too small."""

from __future__ import annotations

import asyncio
import time

from everturn.telemetry.meters import Histogram

EVERY_S = 0.25


def watch_delay(delays: Histogram) -> None:
    """Sample the delay of the running loop until it ends; a sample costs two reads of the clock."""
    loop = asyncio.get_running_loop()

    def sample(due: float) -> None:
        now = time.perf_counter()
        delays.add(max(0.0, now - due))
        loop.call_later(EVERY_S, sample, now + EVERY_S)

    loop.call_later(EVERY_S, sample, time.perf_counter() + EVERY_S)
