"""The SQLite engine on a disk that fails: full, read-only, failing syncs; and how its files grow."""

import asyncio
import shutil
import stat
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import closing as closing_now
from pathlib import Path

import apsw
import pytest

from everturn.errors import StoreUnavailable, StoreUnusable
from everturn.outbox.rows.replies import ADD_REPLY
from everturn.store.engines import SCHEMA, load
from everturn.store.interface import Op, sql
from everturn.store.sqlite import SQLiteStore
from everturn.store.sqlite_file import SQLiteFile
from everturn.store.sqlite_groups import texts
from tests.store.engine_operations import (
    Gate,
    add_one,
    closing,
    count,
    find,
    make_schema,
    numbers,
    put,
    put_then_raise,
    until,
)
from tests.store.faulty_vfs import FaultyDisk
from tests.waiting import WAIT_S, within

MIB = 1024 * 1024
FULL = apsw.FullError("no space left")
BROKEN = apsw.IOError("input/output error")
READ_ONLY = apsw.ReadOnlyError("read-only file system")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "everturn.db"


@pytest.fixture
def schema(tmp_path: Path) -> Path:
    return make_schema(tmp_path / "schema")


@pytest.fixture
def disk() -> FaultyDisk:
    return FaultyDisk("-wal")


@pytest.fixture
async def store(path: Path, schema: Path, disk: FaultyDisk) -> AsyncIterator[SQLiteStore]:
    async with closing(await SQLiteStore.open(path, schema=schema, vfs=disk.name)) as store:
        await store.run(put, 0, "before")
        yield store
        disk.faults.clear()


def tried(runs: list[int], number: int) -> Op[str]:
    """`put` that notes how often it was run."""
    runs.append(number)
    return (yield from put(number, "x"))


def size(path: Path) -> int:
    return path.stat().st_size


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


async def behind_a_gate(store: SQLiteStore) -> Gate:
    """What is run after this waits until the gate opens, so it makes one group."""
    gate = Gate()
    store.run(gate.wait)
    await gate.reached()
    return gate


async def test_what_waits_together_is_committed_together(store: SQLiteStore) -> None:
    gate = await behind_a_gate(store)
    before = store.commits
    calls = [store.run(put, number, "x") for number in range(1, 101)]
    gate.open()
    await asyncio.gather(*calls)
    assert store.commits - before == 2
    assert await store.read(count) == 101


async def test_what_one_iteration_of_the_event_loop_asks_for_is_committed_together(store: SQLiteStore) -> None:
    begun = threading.Event()

    def first() -> Op[str]:
        begun.set()
        return (yield from put(1, "x"))

    before = store.commits
    calls = [store.run(first)]
    assert not begun.wait(0.05)  # the writer is idle, and the event loop has not yet come to the end of its iteration
    calls += [store.run(put, number, "x") for number in range(2, 11)]
    await asyncio.gather(*calls)
    assert store.commits - before == 1


async def test_a_group_is_limited(store: SQLiteStore) -> None:
    gate = await behind_a_gate(store)
    before = store.commits
    calls = [store.run(put, number, "x") for number in range(1, 1001)]
    gate.open()
    await asyncio.gather(*calls)
    assert store.commits - before == 3


async def test_one_that_fails_half_way_costs_its_group_no_more_commits(store: SQLiteStore) -> None:
    gate = await behind_a_gate(store)
    before = store.commits
    calls = [store.run(put, number, "x") for number in range(1, 11)]
    bad = store.run(put_then_raise, 11, ValueError("half-way"))
    gate.open()
    await asyncio.gather(*calls)
    with pytest.raises(ValueError, match="half-way"):
        await bad
    assert store.commits - before == 2
    assert await store.read(numbers) == list(range(11))


async def test_a_commit_whose_sync_fails_is_run_again(store: SQLiteStore, disk: FaultyDisk) -> None:
    runs: list[int] = []
    disk.once["sync"] = BROKEN
    assert await store.run(tried, runs, 1) == "x"
    assert runs == [1, 1]
    assert await store.read(numbers) == [0, 1]
    assert store.trouble() is None


async def test_a_commit_reported_as_failed_may_be_there_after_reopening(
    store: SQLiteStore, disk: FaultyDisk, path: Path, schema: Path, tmp_path: Path
) -> None:
    disk.faults["sync"] = BROKEN
    call = store.run(put, 1, "told as failed")
    await disk.hit(2)
    copy = tmp_path / "copy.db"
    shutil.copy(path, copy)
    shutil.copy(f"{path}-wal", f"{copy}-wal")
    async with closing(await SQLiteStore.open(copy, schema=schema)) as after_death:
        assert await after_death.read(find, 1) == "told as failed"
        assert await after_death.run(put, 1, "again") == "told as failed"
    disk.faults.clear()
    assert await call == "told as failed"


@pytest.mark.parametrize(
    ("action", "fault", "text"),
    [
        ("write", FULL, "the disk is full"),
        ("write", READ_ONLY, "is read-only"),
        ("write", BROKEN, "the disk reports an error"),
        ("sync", BROKEN, "the disk reports an error"),
    ],
)
async def test_a_fault_is_waited_out_and_nothing_is_lost(
    store: SQLiteStore, disk: FaultyDisk, action: str, fault: Exception, text: str
) -> None:
    disk.faults[action] = fault
    calls = [store.run(put, number, "x") for number in range(1, 31)]
    await disk.hit(5)
    assert text in (store.trouble() or "")
    assert not any(call.done() for call in calls)
    assert await store.read(count) == 1
    disk.faults.clear()
    assert await asyncio.gather(*calls) == ["x"] * 30
    assert await store.read(count) == 31
    assert store.trouble() is None


async def test_a_group_whose_transaction_vanished_is_run_again(store: SQLiteStore, disk: FaultyDisk) -> None:
    def put_much(number: int) -> Op[None]:
        for offset in range(40):
            yield sql("INSERT INTO item (id, body) VALUES ($1, $2)", number + offset, "x" * 1_000_000)

    gate = await behind_a_gate(store)
    disk.once["write"] = FULL  # met while the transaction spills from memory, long before its commit
    first, much, last = store.run(put, 1, "small"), store.run(put_much, 100), store.run(put, 2, "small")
    gate.open()
    await asyncio.gather(first, much, last)
    assert await store.read(count) == 43


async def test_an_operation_in_trouble_does_not_hold_up_the_others(store: SQLiteStore, path: Path) -> None:
    stuck = True

    def on_a_bad_sector() -> Op[str]:
        yield sql("SELECT 1")
        if stuck:
            raise BROKEN
        return "readable again"

    call = store.run(on_a_bad_sector)
    for number in range(1, 20):
        assert await store.run(put, number, "x") == "x"
    assert "the disk reports an error" in (store.trouble() or "")
    stuck = False
    assert await call == "readable again"
    assert store.trouble() is None


async def test_reads_wait_a_fault_out(path: Path, schema: Path) -> None:
    disk = FaultyDisk()
    async with closing(await SQLiteStore.open(path, schema=schema, vfs=disk.name)) as store:
        await store.run(put, 1, "x")
        disk.faults["read"] = disk.faults["open"] = BROKEN
        call = store.read(find, 1)
        await disk.hit(3)
        assert store.trouble()
        disk.faults.clear()
        assert await call == "x"
        assert store.trouble() is None


async def test_closing_on_a_broken_disk_ends_in_time_and_says_so(path: Path, schema: Path) -> None:
    disk = FaultyDisk("-wal")
    store = await SQLiteStore.open(path, schema=schema, vfs=disk.name, close_within_s=0.2)
    disk.faults["write"] = FULL
    calls = [store.run(put, number, "x") for number in range(5)]
    await disk.hit(2)  # the first was noticed
    async with within():
        await store.close()
    for call in calls:
        with pytest.raises(StoreUnavailable, match="the disk is full"):
            await call


async def test_reads_see_only_what_is_committed_and_do_not_wait_for_the_writer(store: SQLiteStore) -> None:
    gate = Gate()
    call = store.run(gate.put, 1, "not yet")
    await gate.reached()
    assert await store.read(numbers) == [0]
    gate.open()
    await call
    assert await store.read(numbers) == [0, 1]


async def test_a_read_sees_one_state_while_the_writer_goes_on(store: SQLiteStore) -> None:
    gate = Gate()

    def look_twice() -> Op[tuple[int, int]]:
        first = yield from count()
        yield from gate.wait()
        return first, (yield from count())

    call = store.read(look_twice)
    await gate.reached()
    await store.run(put, 1, "x")
    gate.open()
    assert await call == (1, 1)


async def test_a_writer_that_dies_is_reported(path: Path, schema: Path) -> None:
    deaths: asyncio.Queue[BaseException] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def on_death(error: BaseException) -> None:
        loop.call_soon_threadsafe(deaths.put_nowait, error)

    store = await SQLiteStore.open(path, schema=schema, on_death=on_death)
    store.run(put_then_raise, 1, SystemExit("out of the thread"))
    assert isinstance(await asyncio.wait_for(deaths.get(), WAIT_S), SystemExit)
    await store.close()


async def test_without_its_writer_the_process_ends(path: Path, schema: Path) -> None:
    program = (
        "import asyncio, pathlib, sys\n"
        "from everturn.store.sqlite import SQLiteStore\n"
        "def die():\n"
        "    raise SystemExit(0)\n"
        "    yield\n"
        "async def main():\n"
        "    await (await SQLiteStore.open(pathlib.Path(sys.argv[1]), schema=pathlib.Path(sys.argv[2]))).run(die)\n"
        "asyncio.run(main())\n"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, str(path), str(schema), stdout=asyncio.subprocess.PIPE
    )
    output, _ = await asyncio.wait_for(process.communicate(), WAIT_S)
    assert process.returncode == 1
    assert b"store.died" in output


async def test_the_wal_stays_small_while_readers_read_all_the_time(store: SQLiteStore, path: Path) -> None:
    sizes: list[int] = []

    async def read_on() -> None:
        while True:
            await store.read(count)

    readers = [asyncio.create_task(read_on()) for _ in range(4)]
    for first in range(1, 2000, 160):
        await put_mebibytes(store, 10, first)
        sizes.append(size(path.with_name(f"{path.name}-wal")))
    for reader in readers:
        reader.cancel()
    await asyncio.gather(*readers, return_exceptions=True)
    assert max(sizes) < 64 * MIB < size(path)


async def test_the_wal_is_small_again_after_a_stranger_held_it(store: SQLiteStore, path: Path) -> None:
    stranger = apsw.Connection(str(path))
    stranger.execute("BEGIN; SELECT count(*) FROM item").fetchall()
    await put_mebibytes(store, 60, first=1)
    wal = path.with_name(f"{path.name}-wal")
    held = size(wal)
    assert held > 40 * MIB
    stranger.execute("COMMIT")
    stranger.close()
    await put_mebibytes(store, 60, first=10_000)
    assert size(wal) < held
    assert await store.read(count) == 1 + 2 * 60 * 16


async def put_mebibytes(store: SQLiteStore, amount: int, first: int) -> None:
    for start in range(first, first + amount * 16, 16):
        await asyncio.gather(*(store.run(put, start + n, "x" * 65_000) for n in range(16)))


async def test_the_file_shrinks_after_much_was_deleted(store: SQLiteStore, path: Path) -> None:
    def delete_all() -> Op[None]:
        yield sql("DELETE FROM item")

    await asyncio.gather(*(store.run(put, number, "x" * 60_000) for number in range(1, 400)))
    await store.run(delete_all)

    async def small() -> bool:
        await store.read(count)
        return size(path) < 8 * MIB

    await until(small)


async def test_nobody_else_may_read_the_files(store: SQLiteStore, path: Path) -> None:
    files = sorted(path.parent.glob("everturn.db*"))
    assert [file.name for file in files] == ["everturn.db", "everturn.db-shm", "everturn.db-wal"]
    assert {mode(file) for file in files} == {0o600}


async def test_a_file_with_a_wider_mode_is_narrowed(path: Path, schema: Path) -> None:
    await (await SQLiteStore.open(path, schema=schema)).close()
    path.chmod(0o644)  # noqa: ASYNC240  a test may block
    await (await SQLiteStore.open(path, schema=schema)).close()
    assert mode(path) == 0o600


async def test_closing_leaves_one_file(path: Path, schema: Path) -> None:
    store = await SQLiteStore.open(path, schema=schema)
    await store.run(put, 1, "x")
    await store.close()
    assert [file.name for file in path.parent.glob("everturn.db*")] == ["everturn.db"]


def damage_table(path: Path, table: str) -> None:
    """Overwrite the page on which the table begins."""
    with closing_now(apsw.Connection(str(path))) as db:
        page = db.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (table,)).get
    with path.open("r+b") as file:
        file.seek((page - 1) * 4096)
        file.write(b"\xff" * 4096)


async def test_damage_that_is_met_later_is_named_and_the_rest_goes_on(path: Path, schema: Path) -> None:
    await (await SQLiteStore.open(path, schema=schema)).close()
    damage_table(path, "counter")
    async with closing(await SQLiteStore.open(path, schema=schema)) as store:
        assert await store.run(put, 1, "x") == "x"
        with pytest.raises(StoreUnusable, match="damaged"):
            await store.run(add_one, "n")
        assert await store.run(put, 2, "x") == "x"
        assert "restore a backup" in (store.trouble() or "")


def test_a_statement_is_prepared_once_whatever_is_bound(path: Path) -> None:
    """SQLite asks the authorizer whenever it prepares. This one was prepared anew for each reply, which took longer than to run it."""
    file, asked, before = SQLiteFile(path), list[int](), 0

    def allow(action: int, *_: object) -> int:
        asked.append(action)
        return apsw.SQLITE_OK

    with closing_now(file.prepare(load(SCHEMA / "sqlite"))), closing_now(file.writer()) as db:
        db.authorizer = allow
        for number in range(3):
            before = len(asked)
            reply = (number, "key", 1, "reply", "fake", "{}", "text", "pending", 1.0 + number, *[None] * 5)
            db.execute(texts[ADD_REPLY][0], reply).fetchall()
    assert len(asked) == before > 0
