"""Schemas move forward in numbered steps, all or none, once, by one process; a newer one is left alone."""

import asyncio
from pathlib import Path

import asyncpg
import pytest

from everturn.errors import StoreUnusable
from everturn.store.engines import SCHEMA, load, missing
from everturn.store.interface import Op, Rows, sql
from everturn.store.open import open_store
from everturn.store.postgres import PostgresStore
from everturn.store.postgres_server import MIGRATION_LOCK
from tests.store.engine_operations import closing, count, find, make_schema, opened, put
from tests.waiting import read_until

COLOUR = "ALTER TABLE item ADD COLUMN colour TEXT;\nUPDATE item SET colour = 'red';\n"


def versions() -> Op[Rows]:
    return (yield sql("SELECT version FROM everturn_schema ORDER BY version"))


def colours() -> Op[Rows]:
    return (yield sql("SELECT colour FROM item"))


def test_both_engines_have_the_same_migrations() -> None:
    names = [[migration.name for migration in load(SCHEMA / engine)] for engine in ("sqlite", "postgres")]
    assert names[0] == names[1]


def test_migrations_are_read_in_order(tmp_path: Path) -> None:
    migrations = load(make_schema(tmp_path, "SELECT 2", "SELECT 3") / "sqlite")
    assert [migration.version for migration in migrations] == [1, 2, 3]
    assert [migration.text for migration in missing(migrations, 1, "it")] == ["SELECT 2", "SELECT 3"]
    assert missing(migrations, 3, "it") == []


@pytest.mark.parametrize("names", [[], ["0002_a.sql"], ["0001_a.sql", "0003_b.sql"], ["0001_a.sql", "next.sql"]])
def test_a_gap_or_a_stray_file_is_a_mistake(tmp_path: Path, names: list[str]) -> None:
    for name in names:
        (tmp_path / name).touch()
    with pytest.raises(FileNotFoundError):
        load(tmp_path)


async def test_a_store_moves_forward_with_its_rows(fresh_store_url: str, tmp_path: Path) -> None:
    async with closing(await open_store(fresh_store_url, schema=make_schema(tmp_path / "old"))) as store:
        await store.run(put, 1, "kept")
        assert await store.read(versions) == [(1,)]
    async with closing(await open_store(fresh_store_url, schema=make_schema(tmp_path / "new", COLOUR))) as store:
        assert await store.read(versions) == [(1,), (2,)]
        assert await store.read(colours) == [("red",)]


async def test_a_newer_store_is_refused_and_left_alone(fresh_store_url: str, tmp_path: Path) -> None:
    new = make_schema(tmp_path / "new", COLOUR)
    async with closing(await open_store(fresh_store_url, schema=new)) as store:
        await store.run(put, 1, "kept")
    with pytest.raises(StoreUnusable, match=r"newer Everturn \(schema 2, this one knows 1\)"):
        await open_store(fresh_store_url, schema=make_schema(tmp_path / "old"))
    async with closing(await open_store(fresh_store_url, schema=new)) as store:
        assert await store.read(find, 1) == "kept"
        assert await store.read(versions) == [(1,), (2,)]


async def test_a_migration_that_fails_leaves_the_store_to_the_version_before(
    fresh_store_url: str, tmp_path: Path
) -> None:
    old = make_schema(tmp_path / "old")
    async with closing(await open_store(fresh_store_url, schema=old)) as store:
        await store.run(put, 1, "kept")
    bad = make_schema(tmp_path / "bad", COLOUR, "DROP TABLE item;\nSELECT * FROM nowhere;\n")
    with pytest.raises(StoreUnusable, match="nowhere"):
        await open_store(fresh_store_url, schema=bad)
    async with closing(await open_store(fresh_store_url, schema=old)) as store:
        assert await store.read(versions) == [(1,)]
        assert await store.read(count) == 1


async def test_a_migration_may_take_longer_than_a_command(database_url: str, tmp_path: Path) -> None:
    """A large table takes its time."""
    schema = make_schema(tmp_path, "SELECT pg_sleep(0.6);")
    async with closing(await opened(database_url, schema, command_timeout_s=0.3)) as store:
        assert await store.read(versions) == [(1,), (2,)]


async def test_a_start_waits_for_another_that_migrates_longer_than_for_a_command(
    database_url: str, tmp_path: Path
) -> None:
    migrating = await asyncpg.connect(database_url)
    await migrating.execute("SELECT pg_advisory_lock($1)", MIGRATION_LOCK)
    start = asyncio.ensure_future(PostgresStore.open(database_url, schema=make_schema(tmp_path), command_timeout_s=0.3))

    async def waiting() -> list[int]:
        query = "SELECT pid FROM pg_locks JOIN pg_database d ON d.oid = database WHERE datname = current_database()"
        return [row["pid"] for row in await migrating.fetch(f"{query} AND locktype = 'advisory' AND NOT granted")]

    try:
        waiter = await read_until(waiting, bool)
        await migrating.execute("SELECT pg_sleep(0.6)")
        assert (await waiting(), start.done()) == (waiter, False)
    finally:
        start.cancel()
        await asyncio.wait({start})
        await migrating.close()


async def test_starts_at_the_same_time_do_not_race(database_url: str, tmp_path: Path) -> None:
    schema = make_schema(tmp_path, COLOUR)
    stores = await asyncio.gather(*(open_store(database_url, schema=schema) for _ in range(6)))
    assert await stores[0].read(versions) == [(1,), (2,)]
    for store in stores:
        await store.close()
