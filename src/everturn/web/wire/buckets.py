"""Token buckets in memory, for rate limits. They start full after a restart, and their number is bounded."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from everturn.clock import Clock

MOST = 10_000


@dataclass(slots=True)
class _Bucket:
    tokens: float
    at: float


class Buckets:
    """One bucket per name: `size` tokens at once, then one more every `refill_s` seconds."""

    def __init__(self, clock: Clock, size: float, refill_s: float) -> None:
        self._clock = clock
        self._size = size
        self._refill_s = refill_s
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def take(self, name: str) -> float | None:
        """Take a token. Returns None, or the seconds until there is one."""
        wait = self.wait(name)
        if wait is None:
            self._buckets[name].tokens -= 1
        return wait

    def wait(self, name: str) -> float | None:
        """Return the seconds until there is a token, without taking it; None if there is one now."""
        bucket = self._filled(name)
        return None if bucket.tokens >= 1 else (1 - bucket.tokens) * self._refill_s

    def is_empty(self, name: str) -> bool:
        """Whether an existing bucket is empty. Creates no bucket."""
        return name in self._buckets and self.wait(name) is not None

    def _filled(self, name: str) -> _Bucket:
        now = self._clock.monotonic()
        bucket = self._buckets.get(name)
        if bucket is None:
            bucket = self._buckets[name] = _Bucket(self._size, now)
            if len(self._buckets) > MOST:
                self._buckets.popitem(last=False)  # the least recently used one has refilled most
        else:
            bucket.tokens = min(self._size, bucket.tokens + (now - bucket.at) / self._refill_s)
            bucket.at = now
            self._buckets.move_to_end(name)
        return bucket
