"""Ring two, faults of what a gateway stands on: a full or read-only disk, a database that is damaged or stops."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from random import Random

import pytest

from tests.crash.disks import SmallDisk
from tests.crash.gateways import BREAKERS_OFF, Gateway
from tests.crash.load import People
from tests.history import watched_problems
from tests.postgres import PostgresServer

pytestmark = pytest.mark.prove
BAD_CONFIG = 78


@pytest.fixture
async def disk(tmp_path: Path) -> AsyncIterator[SmallDisk]:
    """A small disk that only this test uses."""
    async with SmallDisk(tmp_path / "disk") as disk:
        yield disk


async def unready(gateway: Gateway) -> str:
    """Why the gateway is not ready to accept and answer now, though `/health` is 200."""
    ready, health = await gateway.ask("GET", "/ready"), await gateway.ask("GET", "/health")
    assert ready is not None
    assert health is not None
    assert (ready.status, health.status) == (503, 200)
    return str(ready.body["reason"])


async def status_of_a_post(gateway: Gateway) -> int:
    """The HTTP status of a message that is posted now, whatever everybody else waits for."""
    answer = await gateway.post("late", "late", "hello")
    assert answer is not None
    return answer.status


async def end(gateway: Gateway, people: People) -> None:
    """Everybody has their answers: whatever happened, nothing may be wrong."""
    await people.repeat_everything()
    assert watched_problems(await people.look_back()) == []
    assert (await gateway.get("/ready"))["ready"] is True
    assert await gateway.stopped() == 0


async def refusal(gateway: Gateway) -> str:
    """Start a gateway that must refuse to run, and not as something that passes by itself: what it says."""
    await gateway.start()
    assert await gateway.ended() == BAD_CONFIG, gateway.output
    assert "Traceback" not in gateway.output
    return gateway.output


LOCKS = {"gateway.lock", "supervisor.lock"}


def contents(folder: Path) -> dict[str, bytes]:
    """Every file but the locks, which every start writes."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name not in LOCKS}


async def use(gateway: Gateway) -> None:
    """Let it run for a while, and end well."""
    async with gateway:
        await gateway.up()
        for number in range(20):
            await gateway.says("one", f"m{number}", "word " * 100)
            await gateway.reply("one", f"m{number}")
        assert await gateway.stopped() == 0


async def test_a_full_disk_is_reported_and_waited_out(disk: SmallDisk) -> None:
    """The gateway never acknowledges what is not stored, and continues by itself when there is space again."""
    async with Gateway(disk.path, prefix=disk.prefix, seen=disk.seen, settings=BREAKERS_OFF) as gateway:
        people = People(gateway, Random(1), chats=4, tools=False)
        await gateway.up()
        async with people.writing():
            for _ in range(2):
                await people.until_answered(10)
                disk.fill()
                await people.refused()
                assert "the disk is full: free some space" in await unready(gateway)
                disk.free()
        await end(gateway, people)


async def test_a_kill_on_a_full_disk_is_recovered_from_when_there_is_space(disk: SmallDisk) -> None:
    async with Gateway(disk.path, prefix=disk.prefix, seen=disk.seen, settings=BREAKERS_OFF) as gateway:
        people = People(gateway, Random(2), chats=4, tools=False)
        await gateway.up()
        async with people.writing():
            await people.until_answered(10)
            disk.fill()
            await people.refused()
            await gateway.killed()
            await gateway.start()
            await gateway.logs("the disk is full: free some space")
            disk.free()
            await gateway.ready()
        await end(gateway, people)


async def test_a_read_only_home_is_refused_with_a_clear_error_and_not_touched(disk: SmallDisk) -> None:
    await use(Gateway(disk.path, prefix=disk.prefix, seen=disk.seen))
    before = contents(disk.seen)
    await disk.make_read_only()
    async with Gateway(disk.path, prefix=disk.prefix, seen=disk.seen) as gateway:
        assert "Read-only file system" in await refusal(gateway)
    assert contents(disk.seen) == before


async def test_a_read_only_database_is_refused_with_a_clear_error_and_not_touched(
    tmp_path: Path, disk: SmallDisk
) -> None:
    settings = {"EVERTURN_STORE_URL": f"sqlite:///{disk.path}/everturn.db"}
    await use(Gateway(tmp_path / "home", prefix=disk.prefix, settings=settings))
    before = contents(disk.seen)
    await disk.make_read_only()
    async with Gateway(tmp_path / "home", prefix=disk.prefix, settings=settings) as gateway:
        assert "everturn.db is read-only: make the file and its directory writable" in await refusal(gateway)
    assert contents(disk.seen) == before


def overwrite_all(data: bytes) -> bytes:
    """Another file in its place."""
    return b"this is not a database\n" * (len(data) // 23)


def overwrite_schema(data: bytes) -> bytes:
    """Rubbish in the first page behind the header."""
    return data[:100] + b"\xff" * 3996 + data[4096:]


def cut_short(data: bytes) -> bytes:
    """The end is missing."""
    return data[: len(data) // 2]


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (overwrite_all, "is not an Everturn database"),
        (overwrite_schema, "is damaged"),
        (cut_short, "is cut short: restore a backup"),
    ],
)
async def test_a_damaged_database_is_refused_with_a_clear_error_and_not_touched(
    tmp_path: Path, damage: Callable[[bytes], bytes], text: str
) -> None:
    await use(Gateway(tmp_path))
    database = tmp_path / "everturn.db"
    database.write_bytes(damage(database.read_bytes()))
    before = contents(tmp_path)
    async with Gateway(tmp_path, "--supervise") as gateway:
        assert text in await refusal(gateway)
    assert contents(tmp_path) == before


async def test_a_second_gateway_on_a_home_is_refused_and_names_the_first(tmp_path: Path) -> None:
    async with Gateway(tmp_path) as first, Gateway(tmp_path) as second:
        await first.up()
        said = await refusal(second)
        assert f"is locked by process {first.pid}" in said
        assert f"at {first.url}" in said
        await first.says("one", "m1", "hello")
        assert await first.reply("one", "m1")


@pytest.mark.parametrize("mode", ["immediate", "fast"])
async def test_a_database_server_that_stops_is_waited_for(
    tmp_path: Path, own_postgres: PostgresServer, mode: str
) -> None:
    """In the middle of everything, twice: a post meanwhile gets a 503, and nobody loses anything."""
    settings = {**BREAKERS_OFF, "EVERTURN_STORE_URL": own_postgres.url()}
    async with Gateway(tmp_path, settings=settings) as gateway:
        people = People(gateway, Random(3), chats=6)
        await gateway.up()
        async with people.writing():
            for _ in range(2):
                await people.until_answered(10)
                await asyncio.to_thread(own_postgres.stop, "immediate" if mode == "immediate" else "fast")
                assert await status_of_a_post(gateway) == 503
                assert "postgres@127.0.0.1" in await unready(gateway)
                await asyncio.to_thread(own_postgres.start)
        await end(gateway, people)


async def test_a_start_without_the_database_server_says_so_and_may_be_tried_again(
    tmp_path: Path, own_postgres: PostgresServer
) -> None:
    async with Gateway(tmp_path, settings={"EVERTURN_STORE_URL": own_postgres.url()}) as gateway:
        await asyncio.to_thread(own_postgres.stop)
        await gateway.start()
        assert await gateway.ended() == 1
        assert "cannot be reached" in gateway.output
        assert "Traceback" not in gateway.output
        await asyncio.to_thread(own_postgres.start)
        await gateway.up()
