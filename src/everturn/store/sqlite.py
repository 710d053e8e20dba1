"""The SQLite engine: operations go to one writer thread with group commit, reads to two readers beside it."""

from __future__ import annotations

import asyncio
import queue
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self, TypeVar

import apsw

from everturn.errors import StoreUnavailable
from everturn.store.engines import SCHEMA, OnDeath, end_process, load
from everturn.store.interface import Op, P
from everturn.store.sqlite_file import SQLiteFile
from everturn.store.sqlite_groups import Call
from everturn.store.sqlite_threads import GROUP, Calls, SQLiteReader, SQLiteWriter
from everturn.telemetry.meters import StoreMeters, merged

T = TypeVar("T")
READERS = 2


class SQLiteStore:
    """The database file of a home. No other program opens it meanwhile."""

    def __init__(
        self, file: SQLiteFile, anchor: apsw.Connection, on_death: OnDeath = end_process, close_within_s: float = 5.0
    ) -> None:
        """Use `open`: it checks the file first."""
        loop = asyncio.get_running_loop()
        reads: Calls = queue.SimpleQueue()
        self._writer = SQLiteWriter(file, anchor, loop, on_death, close_within_s)
        self._readers = [SQLiteReader(file, reads, loop, on_death, close_within_s) for _ in range(READERS)]
        self._held: set[int] = set()
        self._accepting = True
        self._create_future = loop.create_future
        self._call_soon = loop.call_soon
        self._asked: list[Call] = []  # the operations of the event loop's present iteration so far
        self._handed_over = 0
        self._put = self._writer.calls.put
        self._put_read = reads.put

    @classmethod
    async def open(
        cls,
        path: Path,
        *,
        schema: Path = SCHEMA,
        vfs: str | None = None,
        on_death: OnDeath = end_process,
        close_within_s: float = 5.0,
    ) -> Self:
        """Check the file, migrate its schema, start the threads."""
        file = SQLiteFile(path, vfs)
        anchor = await asyncio.to_thread(file.prepare, load(schema / "sqlite"))
        return cls(file, anchor, on_death, close_within_s)

    @property
    def commits(self) -> int:
        """How many groups were committed and synced."""
        return self._writer.groups.commits

    @property
    def operations(self) -> int:
        """How many operations were committed."""
        return self._writer.groups.operations

    def run(self, operation: Callable[P, Op[T]], *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[T]:
        """Run the operation and commit it; the future resolves after the commit is durable."""
        future: asyncio.Future[T] = self._create_future()
        if self._accepting:
            if not self._asked:
                self._call_soon(self._hand_over)
            self._asked.append((operation, args, kwargs, future))
        else:
            future.set_exception(StoreUnavailable("the store is closed"))
        return future

    def read(self, operation: Callable[P, Op[T]], *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[T]:
        """Run an operation that only selects, on a reader beside the writer."""
        future: asyncio.Future[T] = self._create_future()
        if self._accepting:
            self._put_read([(operation, args, kwargs, future)])
        else:
            future.set_exception(StoreUnavailable("the store is closed"))
        return future

    async def lock_instance(self, instance: int) -> None:
        """Remember the number: the home's file lock already proves that no other instance runs."""
        self._held = {instance}

    async def alive(self) -> set[int]:
        """Return this instance alone: the process that locks the home knows that every other instance is dead."""
        return set(self._held)

    async def now(self) -> float:
        """Return the machine's clock: the file has no other."""
        return time.time()

    async def locks_settled(self) -> None:
        """Return at once: the home's lock does not end before its process."""

    def trouble(self) -> str | None:
        """Return what keeps the store from committing or reading now, or None."""
        return next((text for thread in (self._writer, *self._readers) if (text := thread.trouble())), None)

    def meters(self) -> StoreMeters:
        """Return how long commits and reads took; each thread counts for itself."""
        read = merged(reader.took for reader in self._readers)
        waiting = len(self._asked) + self._handed_over - self._writer.taken
        groups = self._writer.groups
        return StoreMeters(groups.took, groups.sizes, read, waiting)

    async def close(self) -> None:
        """Finish the accepted operations, then close the file. The writer ends last and leaves no WAL behind."""
        self._accepting = False
        self._put_read(None)
        for reader in self._readers:
            await reader.ended()
        self._hand_over()
        self._put(None)
        await self._writer.ended()

    def _hand_over(self) -> None:
        """Pass all operations of one event loop iteration to the writer at once, so that they share a sync.

        A writer that took each operation as it comes would begin with the first one and let the others wait for a second sync.
        """
        asked, self._asked = self._asked, []
        self._handed_over += len(asked)
        for first in range(0, len(asked), GROUP):
            self._put(asked[first : first + GROUP])
