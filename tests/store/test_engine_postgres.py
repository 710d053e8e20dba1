"""The PostgreSQL engine with connections cut, a server that stops, and instances that die."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg
import pytest

from everturn.errors import StoreUnavailable
from everturn.store.interface import Op, sql
from everturn.store.postgres import PostgresStore
from tests.postgres import PostgresServer, StopMode
from tests.store.cutting_proxy import Cut, CuttingProxy
from tests.store.engine_operations import add_one, closing, count, find, make_schema, numbers, opened, put, until
from tests.waiting import WAIT_S, read_until, within


@pytest.fixture
def schema(tmp_path: Path) -> Path:
    return make_schema(tmp_path)


@pytest.fixture
async def store(database_url: str, schema: Path) -> AsyncIterator[PostgresStore]:
    async with closing(await PostgresStore.open(database_url, schema=schema)) as store:
        yield store


@pytest.fixture(scope="module")
def stopping_postgres() -> Iterator[PostgresServer]:
    """A server that the tests of this file may stop: one after the other, so they share it."""
    with PostgresServer() as server:
        yield server


@pytest.fixture
def own_url(stopping_postgres: PostgresServer) -> str:
    """An empty database there; it runs when the test begins."""
    stopping_postgres.start()
    return stopping_postgres.create_database()


@pytest.fixture
async def own_store(own_url: str, schema: Path) -> AsyncIterator[PostgresStore]:
    """A store on a server that the test may stop."""
    async with closing(await PostgresStore.open(own_url, schema=schema)) as store:
        yield store


@pytest.fixture
async def proxy(postgres: PostgresServer) -> AsyncIterator[CuttingProxy]:
    async with CuttingProxy(postgres.port) as proxy:
        yield proxy


def tried(runs: list[int], number: int) -> Op[str]:
    """`put` that notes how often it was run."""
    runs.append(number)
    return (yield from put(number, "x"))


@pytest.mark.parametrize("cut", ["before", "after"])
async def test_a_commit_whose_outcome_is_unknown_is_run_again(
    proxy: CuttingProxy, database_url: str, schema: Path, cut: Cut
) -> None:
    runs: list[int] = []
    async with closing(await PostgresStore.open(proxy.url(database_url), schema=schema)) as store:
        await store.run(put, 0, "before")
        proxy.word, proxy.cut = b"COMMIT", cut
        assert await store.run(tried, runs, 1) == "x"
        assert proxy.was_cut.is_set()
        assert runs == [1, 1]
        assert await store.read(numbers) == [0, 1]
        assert store.trouble() is None


async def test_a_connection_lost_inside_an_operation_is_made_again(
    proxy: CuttingProxy, database_url: str, schema: Path
) -> None:
    async with closing(await PostgresStore.open(proxy.url(database_url), schema=schema)) as store:
        await store.run(add_one, "n")
        proxy.word = b"BEGIN"
        assert await store.run(add_one, "n") == 2
        assert proxy.was_cut.is_set()


async def test_a_fault_is_over_with_the_call_that_met_it_however_the_call_ends(
    proxy: CuttingProxy, database_url: str, schema: Path
) -> None:
    """Nobody may use that connection again for hours."""
    async with closing(await PostgresStore.open(proxy.url(database_url), schema=schema)) as store:
        await store.run(put, 1, "x")
        proxy.word = b"COMMIT"
        with pytest.raises(asyncpg.UniqueViolationError):
            await store.run(insert_twice, [])
        assert proxy.was_cut.is_set()
        assert store.trouble() is None


def insert_twice(runs: list[int]) -> Op[None]:
    """The second run finds what the first one could not know: it is refused."""
    runs.append(1)
    yield sql("INSERT INTO item VALUES ($1, 'x')", 3 - len(runs))


async def test_a_network_that_swallows_everything_is_noticed(
    proxy: CuttingProxy, database_url: str, schema: Path
) -> None:
    url = proxy.url(database_url)
    async with closing(await opened(url, schema, command_timeout_s=WAIT_S / 15)) as store:
        await store.run(put, 1, "x")
        proxy.frozen = True
        call = store.run(put, 2, "y")
        await until_trouble(store)
        proxy.frozen = False
        assert await call == "y"


async def until_trouble(store: PostgresStore) -> str:
    """It is noted a few milliseconds before a connection is made again."""

    async def trouble() -> str:
        return store.trouble() or ""

    return await read_until(trouble, bool, every_s=0.001)


@pytest.mark.parametrize("mode", ["fast", "immediate"])
async def test_a_server_that_stops_and_starts_again_loses_nothing(
    own_store: PostgresStore, stopping_postgres: PostgresServer, mode: StopMode
) -> None:
    store = own_store

    async def work(caller: int) -> None:
        for number in range(40):
            assert await store.run(put, caller * 1000 + number, "x") == "x"

    callers = [asyncio.create_task(work(caller)) for caller in range(8)]
    await until(lambda: at_least(store, 20))
    await asyncio.to_thread(stopping_postgres.stop, mode)
    waiting = store.run(put, 99_999, "while it was away")
    assert "cannot" in await until_trouble(store)
    await asyncio.to_thread(stopping_postgres.start)
    await asyncio.gather(*callers)
    assert await waiting == "while it was away"
    assert await store.read(count) == 8 * 40 + 1
    assert store.trouble() is None


async def at_least(store: PostgresStore, items: int) -> bool:
    return await store.read(count) >= items


async def test_of_two_that_lock_each_other_out_one_is_run_again(store: PostgresStore, database_url: str) -> None:
    other = await asyncpg.connect(database_url)
    await other.execute("SELECT pg_advisory_lock(1)")
    database = await other.fetchval("SELECT current_database()")
    await other.execute(f'ALTER DATABASE "{database}" SET deadlock_timeout = 20')  # the server looks after a second
    runs: list[str] = []
    both = asyncio.Event()

    def lock_both(first: str, second: str) -> Op[None]:
        yield sql("UPDATE counter SET value = 1 WHERE name = $1", first)
        runs.append(first)
        if len(runs) == 2:
            both.set()
        yield sql("SELECT pg_advisory_xact_lock_shared(1)")  # until both have their first lock
        yield sql("UPDATE counter SET value = 1 WHERE name = $1", second)

    await store.run(add_one, "a")
    await store.run(add_one, "b")
    calls = [store.run(lock_both, "a", "b"), store.run(lock_both, "b", "a")]
    async with within(seen=lambda: runs):
        await both.wait()
    await other.close()
    await asyncio.gather(*calls)
    assert len(runs) == 3
    assert store.trouble() is None


async def test_reads_see_only_what_is_committed_and_do_not_wait(store: PostgresStore, database_url: str) -> None:
    other = await asyncpg.connect(database_url)
    async with other.transaction():
        await other.execute("INSERT INTO item VALUES (1, 'not yet')")
        assert await store.read(numbers) == []
    await other.close()
    assert await store.read(numbers) == [1]


async def test_a_read_sees_one_state(store: PostgresStore, database_url: str) -> None:
    other = await asyncpg.connect(database_url)
    await other.execute("SELECT pg_advisory_lock(1)")
    looked = asyncio.Event()

    def look_twice() -> Op[tuple[int, int]]:
        first = yield from count()
        looked.set()
        yield sql("SELECT pg_advisory_xact_lock(1)")
        return first, (yield from count())

    call = store.read(look_twice)
    async with within():
        await looked.wait()
    await store.run(put, 1, "x")
    await other.close()
    assert await call == (0, 0)


async def test_rows_that_others_have_locked_are_skipped_where_asked(store: PostgresStore, database_url: str) -> None:
    def claim() -> Op[list[int]]:
        rows = yield sql("SELECT id FROM item ORDER BY id/*skip*/")
        return [number for (number,) in rows]

    await store.run(put, 1, "x")
    await store.run(put, 2, "x")
    other = await asyncpg.connect(database_url)
    async with other.transaction():
        await other.execute("SELECT id FROM item WHERE id = 1 FOR UPDATE")
        assert await store.run(claim) == [2]
    await other.close()


async def test_an_instance_is_alive_until_it_closes(store: PostgresStore, database_url: str, schema: Path) -> None:
    await store.lock_instance(1)
    async with closing(await PostgresStore.open(database_url, schema=schema)) as other:
        await other.lock_instance(2)
        assert await store.alive() == {1, 2} == await other.alive()
    await until(lambda: only_alive(store, 1))


async def only_alive(store: PostgresStore, instance: int) -> bool:
    return await store.alive() == {instance}


@pytest.mark.parametrize("instance", [0, -1, 2**31])
async def test_a_number_that_has_no_lock_is_refused(store: PostgresStore, instance: int) -> None:
    with pytest.raises(ValueError, match="no number"):
        await store.lock_instance(instance)


async def test_holding_again_lets_go_of_the_first_number(store: PostgresStore) -> None:
    await store.lock_instance(1)
    await store.lock_instance(2)
    await until(lambda: only_alive(store, 2))


async def test_instances_of_other_databases_are_not_ours(
    store: PostgresStore, postgres: PostgresServer, schema: Path
) -> None:
    url = postgres.create_database()
    async with closing(await PostgresStore.open(url, schema=schema)) as elsewhere:
        await elsewhere.lock_instance(5)
        assert await store.alive() == set()
    await asyncio.to_thread(postgres.drop_database, url)


async def test_an_instance_lock_whose_connection_was_killed_is_taken_again(
    store: PostgresStore, database_url: str
) -> None:
    await store.lock_instance(3)
    other = await asyncpg.connect(database_url)
    first = await holder(other)
    await other.execute("SELECT pg_terminate_backend($1)", first)

    async def taken_again() -> bool:
        return await holder(other) not in {None, first}

    await until(taken_again)
    assert await store.alive() == {3}
    await other.close()


async def holder(connection: "asyncpg.Connection[asyncpg.Record]") -> int | None:
    """The process on the server that holds the lock."""
    pid: int | None = await connection.fetchval(
        "SELECT pid FROM pg_locks JOIN pg_database ON pg_database.oid = pg_locks.database"
        " WHERE locktype = 'advisory' AND granted AND datname = current_database()"
    )
    return pid


async def test_the_instance_lock_comes_back_with_the_server(
    own_store: PostgresStore, stopping_postgres: PostgresServer
) -> None:
    await own_store.lock_instance(4)
    await asyncio.to_thread(stopping_postgres.restart, "immediate")
    await until(lambda: only_alive(own_store, 4))


async def test_a_restarted_server_settles_when_instances_had_time_to_lock_again(
    schema: Path, own_url: str, stopping_postgres: PostgresServer
) -> None:
    async with closing(await PostgresStore.open(own_url, schema=schema, grace_s=0.5)) as store:
        await asyncio.to_thread(stopping_postgres.restart, "immediate")
        began = await store.now()
        await store.locks_settled()
        assert await store.run(uptime) >= 0.5
        first = await store.now()
        await store.locks_settled()
        assert await store.now() - first < first - began + 0.5


def uptime() -> Op[float]:
    rows = yield sql("SELECT extract(epoch FROM clock_timestamp() - pg_postmaster_start_time())::float8")
    return float(rows[0][0])


async def test_closing_while_the_server_is_down_ends_in_time_and_says_so(
    schema: Path, own_url: str, stopping_postgres: PostgresServer
) -> None:
    store = await PostgresStore.open(own_url, schema=schema, connections=2, close_within_s=0.3)
    await store.lock_instance(1)
    await asyncio.to_thread(stopping_postgres.stop)
    calls = [store.run(put, number, "x") for number in range(5)]
    await until_trouble(store)
    async with within():
        await store.close()
    for call in calls:
        with pytest.raises(StoreUnavailable, match="closed before it could be written"):
            await call


async def test_more_callers_than_connections_take_turns(database_url: str, schema: Path) -> None:
    async with closing(await PostgresStore.open(database_url, schema=schema, connections=2)) as store:
        values = await asyncio.gather(*(store.run(add_one, "n") for _ in range(50)))
        assert sorted(values) == list(range(1, 51))
        assert await store.run(find, 1) is None


async def test_a_worker_that_dies_is_reported(database_url: str, schema: Path) -> None:
    deaths: asyncio.Queue[BaseException] = asyncio.Queue()

    class Unforeseen(BaseException):
        pass

    def die() -> Op[None]:
        yield sql("SELECT 1")
        raise Unforeseen

    store = await PostgresStore.open(database_url, schema=schema, on_death=deaths.put_nowait)
    call = store.run(die)
    assert isinstance(await asyncio.wait_for(deaths.get(), WAIT_S), Unforeseen)
    call.cancel()
    await store.close()


async def test_no_password_is_shown(database_url: str, schema: Path) -> None:
    url = database_url.replace("postgres@", "postgres:secret@")
    async with closing(await PostgresStore.open(url, schema=schema)) as store:
        assert "secret" not in repr(vars(store))
