"""A cache of objects that are expensive to build, keyed by session: bounded, and never shared between sessions.

The cache key is the session id and a signature of what the object was built from. A reset, a `/resume` or a compaction
gives the session key another session id, so that an old object cannot be found by mistake.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

import structlog

from everturn.clock import Clock

log = structlog.get_logger()
T = TypeVar("T")
Name = tuple[str, str]
"""The session's id and the signature."""


@dataclass(frozen=True, slots=True)
class CacheLimits:
    """How many objects are kept, how many bytes they may take together, and how long without use."""

    entries: int = 128
    size: int = 512_000_000
    idle_s: float = 3600


@dataclass(frozen=True, slots=True)
class CachedValue(Generic[T]):
    """A cached object, about how many bytes it takes, and how it is closed."""

    value: T
    size: int
    close: Callable[[], Awaitable[None]]


@dataclass(slots=True)
class _Entry(Generic[T]):
    built: CachedValue[T]
    users: int
    used_at: float


class CacheEntries(Generic[T]):
    """The bookkeeping of the cache, without I/O: entries, users and eviction. The least recently used entry comes first."""

    def __init__(self, limits: CacheLimits) -> None:
        self._limits = limits
        self._entries: OrderedDict[Name, _Entry[T]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def names(self) -> list[Name]:
        """The keys of all entries, least recently used first."""
        return list(self._entries)

    def size(self) -> int:
        """How many bytes all entries take."""
        return sum(entry.built.size for entry in self._entries.values())

    def take(self, name: Name, now: float) -> CachedValue[T] | None:
        """Use an entry and count the user; None when it is not there."""
        entry = self._entries.get(name)
        if entry is None:
            return None
        entry.users += 1
        entry.used_at = now
        self._entries.move_to_end(name)
        return entry.built

    def put(self, name: Name, built: CachedValue[T], now: float) -> None:
        """Add an entry that is used now; the key must be new."""
        if name in self._entries:
            raise ValueError("this key is in the cache already")
        self._entries[name] = _Entry(built, 1, now)

    def release(self, name: Name, now: float) -> None:
        """End one use of an entry."""
        entry = self._entries[name]
        entry.users -= 1
        entry.used_at = now
        self._entries.move_to_end(name)

    def evict(self, now: float) -> list[CachedValue[T]]:
        """Remove what is over a limit, idle or outdated; never what is in use, which alone may pass the limits."""
        return [self._entries.pop(name).built for name in self._evictable(now)]

    def next_idle_at(self) -> float | None:
        """When the next entry has been idle for too long; None when nothing is idle."""
        idle = [entry.used_at for entry in self._entries.values() if not entry.users]
        return min(idle) + self._limits.idle_s if idle else None

    def _evictable(self, now: float) -> list[Name]:
        count, size = len(self._entries), self.size()
        newest = {session: signature for session, signature in self._entries}  # noqa: C416  the last one of each counts
        going: list[Name] = []
        for name, entry in self._entries.items():
            over = count > self._limits.entries or size > self._limits.size
            outdated = newest[name[0]] != name[1]  # the session has been built anew since
            if not entry.users and (over or outdated or now - entry.used_at >= self._limits.idle_s):
                going.append(name)
                count, size = count - 1, size - entry.built.size
        return going


class Cache(Generic[T]):
    """Builds each missing object once, however many callers wait for it, and closes what it evicts."""

    def __init__(self, limits: CacheLimits, clock: Clock) -> None:
        self._entries: CacheEntries[T] = CacheEntries(limits)
        self._clock = clock
        self._building: dict[Name, asyncio.Task[CachedValue[T]]] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._sweeping: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._entries)

    @asynccontextmanager
    async def borrow(
        self, session_id: str, signature: str, build: Callable[[], Awaitable[CachedValue[T]]]
    ) -> AsyncIterator[T]:
        """Use the object of this session and signature; it is not evicted meanwhile."""
        name = (session_id, signature)
        built = await self._get(name, build)
        try:
            yield built.value
        finally:
            self._entries.release(name, self._clock.monotonic())
            self._evict()

    async def close(self) -> None:
        """Close everything; nothing is in use any more."""
        if self._sweeping is not None:
            self._sweeping.cancel()
        for task in self._building.values():
            task.cancel()
        self._close_in_background(self._entries.evict(float("inf")))
        while self._closing:
            await asyncio.wait(self._closing)

    async def _get(self, name: Name, build: Callable[[], Awaitable[CachedValue[T]]]) -> CachedValue[T]:
        """Get or build an entry. A caller that is cancelled meanwhile does not cancel the build for the others."""
        while (built := self._entries.take(name, self._clock.monotonic())) is None:
            task = self._building.get(name)
            if task is None:
                task = self._building[name] = asyncio.ensure_future(self._build(name, build))
            await asyncio.shield(task)
        self._evict()
        return built

    async def _build(self, name: Name, build: Callable[[], Awaitable[CachedValue[T]]]) -> CachedValue[T]:
        try:
            built = await build()
            self._entries.put(name, built, self._clock.monotonic())
            # The callers that wait take it now; in the rare case that it is evicted before they do, it is built again.
            self._entries.release(name, self._clock.monotonic())
            return built
        finally:
            del self._building[name]

    def _evict(self) -> None:
        self._close_in_background(self._entries.evict(self._clock.monotonic()))
        if self._sweeping is None and self._entries.next_idle_at() is not None:
            self._sweeping = asyncio.create_task(self._sweep())

    async def _sweep(self) -> None:
        """Evict idle entries in the background; ends when nothing is idle."""
        try:
            while (at := self._entries.next_idle_at()) is not None:
                await self._clock.sleep(max(0.0, at - self._clock.monotonic()))
                self._close_in_background(self._entries.evict(self._clock.monotonic()))
        finally:
            self._sweeping = None

    def _close_in_background(self, evicted: list[CachedValue[T]]) -> None:
        for built in evicted:
            task = asyncio.create_task(self._close_one(built))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def _close_one(self, built: CachedValue[T]) -> None:
        try:
            await built.close()
        except Exception as error:  # noqa: BLE001  what cannot be closed is gone all the same
            log.warning("cached object not closed", error=repr(error))
