"""The interface of a store: it runs operations. An operation is a generator without I/O that yields statements
and receives rows, so one text serves both engines and a test can drive it itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import Any, ParamSpec, Protocol, TypeVar

from everturn.telemetry.meters import StoreMeters

T = TypeVar("T")
P = ParamSpec("P")
Row = tuple[Any, ...]
Rows = list[Row]


GRACE_S = 5.0  # within this time a running instance has taken its lock again, whatever freed it

Statement = tuple[str, tuple[object, ...]]
"""One SQL text with `$1` parameters, and their values. `/*lock*/` locks the rows read, where the engine has row locks. `/*did*/` at
the end of a text that writes gives a row for each that was written, whose values do not matter.
"""

Op = Generator[Statement, Rows, T]


def sql(text: str, *args: object) -> Statement:
    """Return a statement to yield from an operation."""
    return text, args


class Store(Protocol):
    """A database that runs operations durably.

    `run` gets the function, not a started generator: an engine may have to run it again (a group that vanished, a commit
    whose outcome is unknown), so every id comes from the caller and an operation run twice returns the same.
    Cancelling the caller does not undo the operation. A fault of the disk or the network is waited out; an error inside
    the operation is the caller's.
    """

    def run(self, operation: Callable[P, Op[T]], *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[T]:
        """Run the operation and commit it; the future resolves after the commit is durable."""
        ...

    def read(self, operation: Callable[P, Op[T]], *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[T]:
        """Run an operation that only selects, on a reader beside the writer."""
        ...

    async def lock_instance(self, instance: int) -> None:
        """Lock this instance number, so that `alive` lists it, for as long as this process runs."""
        ...

    async def alive(self) -> set[int]:
        """Return the instance numbers that are locked by a running process now (this one included)."""
        ...

    async def now(self) -> float:
        """Return UTC seconds by the database's own clock: the same for all its instances."""
        ...

    async def locks_settled(self) -> None:
        """Wait until every running instance has had time to lock its number again: a database that restarts frees all
        locks at once.
        """
        ...

    def trouble(self) -> str | None:
        """Return what keeps the database from committing now, as a sentence; None if nothing does."""
        ...

    def meters(self) -> StoreMeters:
        """Return how long commits and reads took since the store was opened."""
        ...

    async def close(self) -> None:
        """Finish the accepted operations, then close the database."""
        ...
