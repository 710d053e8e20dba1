"""Tiny operations and a tiny schema, so that the engines are tested without the gateway's tables."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TypeVar

from everturn.errors import StoreUnavailable
from everturn.store.interface import Op, Store, sql
from everturn.store.postgres import PostgresStore
from tests.waiting import WAIT_S, read_until, within

S = TypeVar("S", bound=Store)

TABLES = """\
CREATE TABLE item (id BIGINT PRIMARY KEY, body TEXT NOT NULL);
CREATE TABLE counter (name TEXT PRIMARY KEY, value BIGINT NOT NULL);
"""


def make_schema(directory: Path, *later: str) -> Path:
    """A schema directory for both engines; `later` are the migrations after the first."""
    for engine in ("sqlite", "postgres"):
        folder = directory / engine
        folder.mkdir(parents=True)
        for number, text in enumerate((TABLES, *later), 1):
            (folder / f"{number:04}_step.sql").write_text(text, encoding="utf-8")
    return directory


def put(number: int, body: str) -> Op[str]:
    """Store an item once; run again it finds its own row and returns the same."""
    yield sql("INSERT INTO item (id, body) VALUES ($1, $2) ON CONFLICT (id) DO NOTHING", number, body)
    rows = yield sql("SELECT body FROM item WHERE id = $1", number)
    return str(rows[0][0])


def put_then_raise(number: int, error: BaseException) -> Op[None]:
    yield sql("INSERT INTO item (id, body) VALUES ($1, 'half')", number)
    raise error


def look_then_raise(error: BaseException) -> Op[None]:
    yield sql("SELECT id FROM item")
    raise error


def find(number: int) -> Op[str | None]:
    rows = yield sql("SELECT body FROM item WHERE id = $1", number)
    return str(rows[0][0]) if rows else None


def count() -> Op[int]:
    rows = yield sql("SELECT count(*) FROM item")
    return int(rows[0][0])


def numbers() -> Op[list[int]]:
    rows = yield sql("SELECT id FROM item ORDER BY id")
    return [number for (number,) in rows]


def add_one(name: str) -> Op[int]:
    """Read, then write what was read: right only if nobody comes in between."""
    yield sql("INSERT INTO counter (name, value) VALUES ($1, 0) ON CONFLICT (name) DO NOTHING", name)
    rows = yield sql("SELECT value FROM counter WHERE name = $1/*lock*/", name)
    yield sql("UPDATE counter SET value = $2 WHERE name = $1", name, rows[0][0] + 1)
    return int(rows[0][0]) + 1


class Gate:
    """Holds the thread that runs `wait` or `put` until it is opened; SQLite only, whose operations run on threads."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self._reached = threading.Event()

    def wait(self) -> Op[None]:
        self._reached.set()
        assert self._open.wait(WAIT_S)
        yield sql("SELECT 1")

    def put(self, number: int, body: str) -> Op[None]:
        """Stay inside the transaction, with a row that is not committed."""
        yield sql("INSERT INTO item (id, body) VALUES ($1, $2)", number, body)
        self._reached.set()
        assert self._open.wait(WAIT_S)

    async def reached(self) -> None:
        assert await asyncio.to_thread(self._reached.wait, WAIT_S)

    def open(self) -> None:
        self._open.set()


async def opened(url: str, schema: Path, command_timeout_s: float) -> PostgresStore:
    """Open a store whose commands are bound: again, where a machine that stalled was slower than one of them."""
    async with within():
        while True:
            with suppress(StoreUnavailable):
                return await PostgresStore.open(url, schema=schema, command_timeout_s=command_timeout_s)


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Ask the store again and again until the condition holds."""
    await read_until(condition, bool, every_s=0.001)


@asynccontextmanager
async def closing(store: S) -> AsyncIterator[S]:
    try:
        yield store
    finally:
        await store.close()
