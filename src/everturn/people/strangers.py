"""Counts denied messages. Their text is neither stored nor logged, and a flood of them is one log line a minute."""

from __future__ import annotations

from collections import Counter

import structlog

from everturn.clock import Clock

log = structlog.get_logger()
EVERY_S = 60.0


class Strangers:
    """How many messages were denied, by platform, since this process began."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.denied: Counter[str] = Counter()
        self._logged_at: dict[str, float] = {}

    def count_denied(self, platform: str) -> None:
        """Count one denied message."""
        self.denied[platform] += 1
        now = self._clock.monotonic()
        if now - self._logged_at.get(platform, -EVERY_S) >= EVERY_S:
            self._logged_at[platform] = now
            log.info("messages denied", platform=platform, messages=self.denied[platform])
