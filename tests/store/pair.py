"""Both engines side by side: each operation runs on both, and what they return and store is compared at once.

To read every table of PostgreSQL after every operation takes several times as long as the operation: each table is a round trip. So
PostgreSQL first gives one fingerprint of each table, in one statement, and then the rows of those tables whose fingerprint changed. SQLite reads its rows in
this process; all of them are read each time.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

import uvloop

from everturn.store.interface import Op, P, Rows, Store, sql
from everturn.store.open import open_store
from tests.contracts.store import TABLES, Dump, broken, comparable

T = TypeVar("T")
# The hash covers every value of a row; the sum does not depend on the order of the rows.
FINGERPRINTS = " UNION ALL ".join(
    f"SELECT '{table}', count(*), coalesce(sum(hashtextextended(r::text, 0)), 0)::text FROM {table} r"
    for table in TABLES
)


@dataclass(frozen=True, slots=True)
class Seen:
    """What one engine stored when it was last looked at: its rows by table, and what tells whether a table changed."""

    signs: Mapping[str, object] = field(default_factory=dict)
    tables: Dump = field(default_factory=dict)

    def updated(self, signs: Mapping[str, object], changed: Mapping[str, Rows]) -> "Seen":
        """The same with the rows of the tables that changed."""
        return Seen(signs, self.tables | {table: comparable(table, rows) for table, rows in changed.items()})


def look_at_rows(seen: Seen) -> Op[Seen]:
    """The sign of a table is its rows."""
    signs: dict[str, Rows] = {}
    for table in TABLES:
        signs[table] = yield sql(f"SELECT * FROM {table}")
    return seen.updated(signs, {table: rows for table, rows in signs.items() if seen.signs.get(table) != rows})


def look_at_fingerprints(seen: Seen) -> Op[Seen]:
    """The sign of a table is the number of its rows and the sum of their hashes. For PostgreSQL alone."""
    signs = {table: tuple(sign) for table, *sign in (yield sql(FINGERPRINTS))}
    changed: dict[str, Rows] = {}
    for table in TABLES:
        if seen.signs.get(table) != signs[table]:
            changed[table] = yield sql(f"SELECT * FROM {table}")
    return seen.updated(signs, changed)


class Pair:
    """Two stores that run the same operations."""

    def __init__(self, loop: asyncio.AbstractEventLoop, sqlite: Store, postgres: Store) -> None:
        self.sqlite, self.postgres = sqlite, postgres
        self.until = loop.run_until_complete  # a runner's `run` takes and gives back SIGINT each time
        self._here, self._there = Seen(), Seen()

    def both(self, operation: Callable[P, Op[T]], *args: P.args, **kwargs: P.kwargs) -> T | None:
        """Run it on both; what they return and store is the same, and no rule is broken. None for an error."""
        return self.until(self._both(operation, *args, **kwargs))

    def twice(self, operation: Callable[P, Op[T]], *args: P.args, **kwargs: P.kwargs) -> T | None:
        """Run it on both twice, as after a commit whose outcome is unknown."""
        first = self.both(operation, *args, **kwargs)
        stored = self._here.tables
        again = self.both(operation, *args, **kwargs)
        assert again == first, f"{operation.__name__} said {first!r}, and then {again!r}"
        assert self._here.tables == stored, f"{operation.__name__} stores something else when it is run again"
        return first

    async def _both(self, operation: Callable[P, Op[T]], *args: P.args, **kwargs: P.kwargs) -> T | None:
        runs = [store.run(operation, *args, **kwargs) for store in (self.sqlite, self.postgres)]
        here, there = await asyncio.gather(*runs, return_exceptions=True)
        assert repr(here) == repr(there), f"{operation.__name__}: SQLite says {here!r}, PostgreSQL {there!r}"
        await self._compare()
        return None if isinstance(here, BaseException) else here

    async def _compare(self) -> None:
        before = self._here.tables
        self._here, self._there = await asyncio.gather(
            self.sqlite.read(look_at_rows, self._here), self.postgres.read(look_at_fingerprints, self._there)
        )
        here, there = self._here.tables, self._there.tables
        for table in TABLES:
            assert here[table] == there[table], f"{table}: SQLite stores {here[table]}, PostgreSQL {there[table]}"
        if here != before:
            found = await self.sqlite.read(broken)  # both have the same rows
            assert found == {}, found


@contextmanager
def paired(sqlite_url: str, postgres_url: str) -> Iterator[Pair]:
    """A pair on these two databases, which are empty, with an event loop of its own."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        stores = [runner.run(open_store(url)) for url in (sqlite_url, postgres_url)]
        try:
            yield Pair(runner.get_loop(), *stores)
        finally:
            for store in stores:
                runner.run(store.close())
