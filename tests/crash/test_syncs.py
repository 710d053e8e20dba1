"""Ring two, at every sync: strace kills a gateway on SQLite exactly when one of its threads begins its N-th sync.

strace counts for each thread alone. The thread that makes a new database syncs more often than the writer does at first,
so the writer's syncs are swept in a home that has its database already.
"""

import asyncio
import itertools
import shutil
import signal
from pathlib import Path
from random import Random

import pytest

from tests.crash.gateways import BREAKERS_OFF, Gateway
from tests.crash.load import People
from tests.history import watched_problems

pytestmark = pytest.mark.prove
TEXTS = ("hello", "work 2 0")
AT_ONCE = 2


def killer(call: str, number: int) -> list[str]:
    """strace that lets everything pass but the N-th call of this name in a thread."""
    inject = ["-e", f"trace={call}", "-e", f"inject={call}:signal=KILL:when={number}"]
    return ["strace", "-f", "-qq", "-o", "/dev/null", *inject]


async def run_to_end(gateway: Gateway, people: People) -> int:
    """Run a process until everybody is answered and a planned stop; the exit code says whether it got so far."""
    content = asyncio.ensure_future(people.content())
    ended = asyncio.ensure_future(gateway.ended())
    await asyncio.wait({content, ended}, return_when=asyncio.FIRST_COMPLETED)
    if not ended.done():
        gateway.kill_inner(signal.SIGTERM)
    content.cancel()
    return await ended


async def dies_at(home: Path, call: str, number: int) -> bool:
    """Die at the N-th sync of a thread; the next process finishes, and the history must be right. False without a death."""
    async with Gateway(home, settings=BREAKERS_OFF) as gateway:
        people = People(gateway, Random(number), chats=1, script=TEXTS)
        await gateway.start(*killer(call, number))
        async with people.writing():
            code = await run_to_end(gateway, people)
            assert code in {0, -signal.SIGKILL}, (number, code, gateway.output)
            await gateway.up()
        watched = await people.look_back()
        assert await gateway.stopped() == 0
    assert watched_problems(watched) == [], (call, number)
    return code != 0


async def sweep(folder: Path, call: str, known: Path | None = None) -> int:
    """Die at the first, second, ... sync until a process passes without; returns how many deaths there were."""

    async def one(number: int) -> bool:
        home = folder / f"{call}-{number}"
        if known:
            shutil.copytree(known, home)
        return await dies_at(home, call, number)

    deaths = 0
    for first in itertools.count(1, AT_ONCE):
        died = await asyncio.gather(*(one(number) for number in range(first, first + AT_ONCE)))
        deaths += sum(died)
        if not all(died):
            return deaths
    raise AssertionError


@pytest.fixture
async def known(tmp_path: Path) -> Path:
    """A home in which a gateway ran and ended well."""
    home = tmp_path / "known"
    async with Gateway(home) as gateway:
        await gateway.up()
        assert await gateway.stopped() == 0
    return home


async def test_a_death_at_any_sync_of_a_first_process_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """The creation of the database, and its first messages."""
    assert await sweep(tmp_path, "fdatasync") > 12


async def test_a_death_at_any_sync_of_a_later_process_loses_and_doubles_nothing(tmp_path: Path, known: Path) -> None:
    """Every commit and checkpoint of the writer, from the start to the planned end."""
    assert await sweep(tmp_path, "fdatasync", known) > 12


async def test_a_death_between_an_effect_and_its_commit_is_reported_as_unknown(tmp_path: Path, known: Path) -> None:
    """The ledger's own syncs: the effect has happened, and nobody wrote down that it did."""
    assert await sweep(tmp_path, "fsync", known) == len(["step 1", "step 2"])
