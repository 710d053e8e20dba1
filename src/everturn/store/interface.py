"""What the gateway knows of a database: it runs operations. An operation is a generator without I/O that yields statements
and receives rows, so one text serves both engines and a test can drive it by hand.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import Any, ParamSpec, Protocol, TypeVar

from everturn.meters import StoreMeters

T = TypeVar("T")
P = ParamSpec("P")
Row = tuple[Any, ...]
Rows = list[Row]


GRACE_S = 5.0  # within this time a living instance has taken its lock again, whatever freed it

Statement = tuple[str, tuple[object, ...]]
"""One SQL text with `$1` parameters, and their values. `/*lock*/` locks the rows read, where the engine has row locks. `/*did*/` at
the end of a text that writes gives a row for each that was written, whose values do not matter.
"""

Op = Generator[Statement, Rows, T]


def sql(text: str, *args: object) -> Statement:
    """A statement to yield from an operation."""
    return text, args


class Store(Protocol):
    """A database that keeps what it was told.

    `run` gets the function, not a started generator: an engine may have to run it again (a group that vanished, a commit
    whose outcome is unknown), so every id comes from the caller and an operation run twice says the same.
    Cancelling the caller does not undo the operation. A fault of the disk or the network is waited out; an error inside
    the operation is the caller's.
    """

    def run(self, operation: Callable[P, Op[T]], *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[T]:
        """Run and commit; returns after the commit is durable."""
        ...

    def read(self, operation: Callable[P, Op[T]], *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[T]:
        """Run on a reader, beside the writer; the operation only selects."""
        ...

    async def hold(self, instance: int) -> None:
        """Be seen as alive under this number for as long as this process lives."""
        ...

    async def alive(self) -> set[int]:
        """The instance numbers whose process is held alive now (this one included)."""
        ...

    async def now(self) -> float:
        """UTC seconds by the database's own clock: the same for all its instances."""
        ...

    async def settled(self) -> None:
        """Return when every living instance has had the time to be seen by `alive`: a database that restarts frees all
        locks at once.
        """
        ...

    def trouble(self) -> str | None:
        """What keeps the database from committing now, in plain words; None when all is well."""
        ...

    def meters(self) -> StoreMeters:
        """How long commits and reads took since it was opened."""
        ...

    async def close(self) -> None:
        """Finish what was accepted, then let go of the database."""
        ...
