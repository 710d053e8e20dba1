"""Ring two, at every sync: strace kills a gateway on SQLite exactly when one of its threads begins its N-th sync.

strace counts for each thread alone. The thread that makes a new database syncs more often than the writer does at first,
so the writer's syncs are swept in a home that has its database already.
"""

import asyncio
import itertools
import signal
from pathlib import Path
from random import Random

import pytest

from tests.crash.gateways import BREAKERS_OFF, Gateway
from tests.crash.load import People
from tests.history import watched_problems

WORDS = ("hello", "work 2 0")
AT_ONCE = 2


def killer(call: str, number: int) -> list[str]:
    """strace that lets everything pass but the N-th call of this name in a thread."""
    inject = ["-e", f"trace={call}", "-e", f"inject={call}:signal=KILL:when={number}"]
    return ["strace", "-f", "--seccomp-bpf", "-qq", "-o", "/dev/null", *inject]


async def live(gateway: Gateway, people: People) -> int:
    """A whole life, until everybody is answered and a planned stop; the exit code says whether it got so far."""
    content = asyncio.ensure_future(people.content())
    ended = asyncio.ensure_future(gateway.ended())
    await asyncio.wait({content, ended}, return_when=asyncio.FIRST_COMPLETED)
    if not ended.done():
        gateway.kill_inner(signal.SIGTERM)
    content.cancel()
    return await ended


async def dies_at(home: Path, call: str, number: int, *, known: bool) -> bool:
    """Die at the N-th sync of a thread; the next life finishes, and the history must be right. False without a death."""
    gateway = Gateway(home, **BREAKERS_OFF)
    people = People(gateway, Random(number), chats=1, script=WORDS)
    if known:
        await (await gateway.start()).ready()
        assert await gateway.stopped() == 0
    await gateway.start(*killer(call, number))
    async with people.writing():
        code = await live(gateway, people)
        assert code in {0, -signal.SIGKILL}, (number, code, gateway.output)
        await (await gateway.start()).ready()
    watched = await people.look_back()
    assert await gateway.stopped() == 0
    await gateway.close()
    assert watched_problems(watched) == [], (call, number)
    return code != 0


async def sweep(folder: Path, call: str, *, known: bool) -> int:
    """Die at the first, second, ... sync until a life passes without; returns how many deaths there were."""
    deaths = 0
    for first in itertools.count(1, AT_ONCE):
        numbers = range(first, first + AT_ONCE)
        died = await asyncio.gather(*(dies_at(folder / f"{call}-{each}", call, each, known=known) for each in numbers))
        deaths += sum(died)
        if not all(died):
            return deaths
    raise AssertionError


@pytest.mark.timeout(200)
async def test_a_death_at_any_sync_of_a_first_life_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """The making of the database, and its first messages."""
    assert await sweep(tmp_path, "fdatasync", known=False) > 12


@pytest.mark.timeout(200)
async def test_a_death_at_any_sync_of_a_later_life_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """Every commit and checkpoint of the writer, from the start to the planned end."""
    assert await sweep(tmp_path, "fdatasync", known=True) > 12


@pytest.mark.timeout(100)
@pytest.mark.parametrize("known", [False, True])
async def test_a_death_between_an_effect_and_its_commit_is_told_as_unknown(tmp_path: Path, *, known: bool) -> None:
    """The ledger's own syncs: the effect has happened, nobody wrote down that it did. (The first is the API token's.)"""
    assert await sweep(tmp_path, "fsync", known=known) >= 2
