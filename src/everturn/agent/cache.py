"""What is dear to build, kept for a session while it is used: bounded, and never another session's.

The name of a thing is the session it belongs to and a signature of what it was built from. A reset, a `/resume` or a compaction
gives the key another session, so that an old thing cannot be found by mistake.
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
    """How many things are kept, how many bytes they may take together, and how long without use."""

    entries: int = 128
    size: int = 512_000_000
    idle_s: float = 3600


@dataclass(frozen=True, slots=True)
class Built(Generic[T]):
    """A thing, about how many bytes it takes, and how it is let go."""

    value: T
    size: int
    close: Callable[[], Awaitable[None]]


@dataclass(slots=True)
class _Entry(Generic[T]):
    built: Built[T]
    users: int
    used_at: float


class Shelf(Generic[T]):
    """The bookkeeping, without waiting: what is there, who uses it, what has to go. The oldest stands first."""

    def __init__(self, limits: CacheLimits) -> None:
        self._limits = limits
        self._entries: OrderedDict[Name, _Entry[T]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def names(self) -> list[Name]:
        """What is there, least recently used first."""
        return list(self._entries)

    def size(self) -> int:
        """How many bytes all of it takes."""
        return sum(entry.built.size for entry in self._entries.values())

    def take(self, name: Name, now: float) -> Built[T] | None:
        """Use what is there; None when it is not."""
        entry = self._entries.get(name)
        if entry is None:
            return None
        entry.users += 1
        entry.used_at = now
        self._entries.move_to_end(name)
        return entry.built

    def put(self, name: Name, built: Built[T], now: float) -> None:
        """Keep a thing that is used now; nothing of that name may be there."""
        if name in self._entries:
            raise ValueError("it is there already")
        self._entries[name] = _Entry(built, 1, now)

    def give_back(self, name: Name, now: float) -> None:
        """One use of it is over."""
        entry = self._entries[name]
        entry.users -= 1
        entry.used_at = now
        self._entries.move_to_end(name)

    def evict(self, now: float) -> list[Built[T]]:
        """Take out what has to go; never what is in use, so that the bounds may be passed by that alone."""
        return [self._entries.pop(name).built for name in self._to_go(now)]

    def next_idle_at(self) -> float | None:
        """When the next thing has been idle for too long; None when nothing is idle."""
        idle = [entry.used_at for entry in self._entries.values() if not entry.users]
        return min(idle) + self._limits.idle_s if idle else None

    def _to_go(self, now: float) -> list[Name]:
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
    """A shelf that builds what is missing, once however many ask, and closes what it lets go."""

    def __init__(self, limits: CacheLimits, clock: Clock) -> None:
        self._shelf: Shelf[T] = Shelf(limits)
        self._clock = clock
        self._building: dict[Name, asyncio.Task[Built[T]]] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._sweeping: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._shelf)

    @asynccontextmanager
    async def borrow(
        self, session_id: str, signature: str, build: Callable[[], Awaitable[Built[T]]]
    ) -> AsyncIterator[T]:
        """Use the thing of this session and signature; it is not let go meanwhile."""
        name = (session_id, signature)
        built = await self._get(name, build)
        try:
            yield built.value
        finally:
            self._shelf.give_back(name, self._clock.monotonic())
            self._tidy()

    async def close(self) -> None:
        """Let go of everything; nothing is in use any more."""
        if self._sweeping is not None:
            self._sweeping.cancel()
        for task in self._building.values():
            task.cancel()
        self._let_go(self._shelf.evict(float("inf")))
        while self._closing:
            await asyncio.wait(self._closing)

    async def _get(self, name: Name, build: Callable[[], Awaitable[Built[T]]]) -> Built[T]:
        """Who is cancelled while it is built does not end that for the others."""
        while (built := self._shelf.take(name, self._clock.monotonic())) is None:
            task = self._building.get(name)
            if task is None:
                task = self._building[name] = asyncio.ensure_future(self._build(name, build))
            await asyncio.shield(task)
        self._tidy()
        return built

    async def _build(self, name: Name, build: Callable[[], Awaitable[Built[T]]]) -> Built[T]:
        try:
            built = await build()
            self._shelf.put(name, built, self._clock.monotonic())
            # Those who wait take it now; in the rare case that it has to go before they do, it is built again.
            self._shelf.give_back(name, self._clock.monotonic())
            return built
        finally:
            del self._building[name]

    def _tidy(self) -> None:
        self._let_go(self._shelf.evict(self._clock.monotonic()))
        if self._sweeping is None and self._shelf.next_idle_at() is not None:
            self._sweeping = asyncio.create_task(self._sweep())

    async def _sweep(self) -> None:
        """Let go of what is idle, though nobody comes by; ends when nothing is."""
        try:
            while (at := self._shelf.next_idle_at()) is not None:
                await self._clock.sleep(max(0.0, at - self._clock.monotonic()))
                self._let_go(self._shelf.evict(self._clock.monotonic()))
        finally:
            self._sweeping = None

    def _let_go(self, evicted: list[Built[T]]) -> None:
        for built in evicted:
            task = asyncio.create_task(self._close_one(built))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def _close_one(self, built: Built[T]) -> None:
        try:
            await built.close()
        except Exception as error:  # noqa: BLE001  what can not be closed is gone all the same
            log.warning("a cached thing did not close", error=repr(error))
