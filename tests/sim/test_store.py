"""The simulated driver of the store against the contract of all drivers, and what only a simulation can arrange for it."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import dataclass
from random import Random
from typing import Any

import apsw
import pytest

from tests.sim.loop import GRAIN_S, Group, SimLoop
from tests.sim.store import DOWN, FULL, SimDatabase, SimStore, Weather
from tests.store.engine_operations import TABLES, add_one, count, find, put
from tests.store.test_engine_contract import CONTRACT, Opening

SEEDS = range(3)
UNKNOWN = 0.4  # the share of commits whose outcome stays unknown, where there are faults
SHAPES = {
    "alone": (True, 0.0),
    "alone, with faults": (True, UNKNOWN),
    "several": (False, 0.0),
    "several, with faults": (False, UNKNOWN),
}
# Promises whose tests use operations that may not be run twice, as every operation of the gateway may. After a commit whose outcome
# is unknown an operation is run again, so they hold only where there are no faults; each with what comes of the second run.
NOT_RUN_TWICE = {
    "a_statement_says_how_many_rows_it_wrote": "the second run finds the rows of the first, and writes none",
    "a_statement_without_result_gives_no_rows": "the second run inserts the same row again, which breaks the constraint",
    "what_was_read_under_a_lock_does_not_change_before_it_is_written": "the second run counts again, so a number is left out",
}
KEPT = [
    (promise, shape) for promise in CONTRACT for shape in SHAPES if not SHAPES[shape][1] or promise not in NOT_RUN_TWICE
]


@dataclass
class Simulated:
    """A database with the tiny schema, and processes that use it."""

    loop: SimLoop
    database: SimDatabase
    alone: bool

    def store(self, process: Group) -> SimStore:
        """The store of one process. A test compares its clock with the machine's."""
        return SimStore(self.database, process, self.loop.time, alone=self.alone, epoch=time.time())

    def rows(self) -> list[tuple[Any, ...]]:
        """The items that are committed."""
        return self.database.rows("SELECT id, body FROM item ORDER BY id")


def simulated(
    work: Callable[[Simulated], Awaitable[None]], *, alone: bool, unknown: float = 0.0, seed: int = 0
) -> None:
    """Run it in virtual time."""
    made = apsw.Connection(":memory:")
    made.execute(TABLES)
    weather = Weather(Random(f"store {seed}"), unknown=unknown)
    with closing(SimLoop(Random(f"order {seed}"))) as loop:
        loop.run_until_complete(work(Simulated(loop, SimDatabase(made.serialize("main"), weather), alone)))
        assert loop.errors == []


def keep(promise: Callable[[Opening], Awaitable[None]], shape: str, seed: int) -> None:
    """Try a promise of the contract on a driver of this shape: all that its test does belongs to one process."""
    alone, unknown = SHAPES[shape]

    async def work(here: Simulated) -> None:
        process = Group("the process")

        async def opening() -> SimStore:
            return here.store(process)

        async def trying() -> None:
            await promise(opening)

        await here.loop.create_task(trying(), context=process.context)

    simulated(work, alone=alone, unknown=unknown, seed=seed)


@pytest.mark.parametrize(("promise", "shape"), KEPT)
def test_the_simulated_driver_keeps_the_contract(promise: str, shape: str) -> None:
    for seed in SEEDS:
        keep(CONTRACT[promise], shape, seed)


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if SHAPES[shape][1]])
@pytest.mark.parametrize("promise", NOT_RUN_TWICE)
def test_what_is_left_out_where_there_are_faults_would_fail_there(promise: str, shape: str) -> None:
    def keep_all() -> None:
        for seed in SEEDS:
            keep(CONTRACT[promise], shape, seed)

    with pytest.raises((AssertionError, apsw.ConstraintError)):
        keep_all()


@pytest.mark.parametrize("alone", [True, False])
def test_no_update_is_lost_where_operations_are_run_again(alone: bool) -> None:  # noqa: FBT001
    async def work(here: Simulated) -> None:
        store = here.store(Group("the process"))
        values = await asyncio.gather(*(store.run(add_one, "n") for _ in range(100)))
        [(counted,)] = here.database.rows("SELECT value FROM counter")
        assert len(set(values)) == 100
        assert counted > 100  # some were run again, so this tried what it says
        assert max(values) <= counted
        await store.close()

    simulated(work, alone=alone, unknown=UNKNOWN)


def test_alone_what_was_not_committed_dies_with_its_process() -> None:
    async def work(here: Simulated) -> None:
        process = Group("the process")
        asked = here.store(process).run(put, 1, "never")
        process.dead = True
        assert (await fate(here, asked)) == []

    simulated(work, alone=True)


def test_of_several_what_was_in_flight_may_be_committed_after_its_process_died() -> None:
    fates: list[list[tuple[Any, ...]]] = []

    async def work(here: Simulated) -> None:
        process = Group("the process")
        asked = here.store(process).run(put, 1, "perhaps")
        process.dead = True
        fates.append(await fate(here, asked))

    for seed in range(20):
        simulated(work, alone=False, seed=seed)
    assert [] in fates
    assert [(1, "perhaps")] in fates


async def fate(here: Simulated, asked: asyncio.Future[str]) -> list[tuple[Any, ...]]:
    """What is committed when all that was on its way has arrived. The dead hear nothing of it."""
    await passed(here, 60.0)
    assert not asked.done()
    return here.rows()


async def passed(here: Simulated, seconds: float) -> None:
    """Let virtual time pass."""
    over: asyncio.Future[None] = here.loop.create_future()
    here.loop.call_later(seconds, over.set_result, None)
    await over


@pytest.mark.parametrize("alone", [True, False])
def test_a_dead_process_commits_and_asks_nothing_new(alone: bool) -> None:  # noqa: FBT001
    async def work(here: Simulated) -> None:
        process = Group("the process")
        store = here.store(process)
        process.dead = True
        asked, read = store.run(put, 1, "late"), store.read(count)
        assert await fate(here, asked) == []
        assert not read.done()

    simulated(work, alone=alone)


def test_several_see_who_is_alive() -> None:
    async def work(here: Simulated) -> None:
        one, other = Group("one"), Group("other")
        first, second = here.store(one), here.store(other)
        await first.lock_instance(1)
        await second.lock_instance(2)
        assert await first.alive() == {1, 2}
        other.dead = True
        assert await first.alive() == {1}
        await first.close()
        assert await here.store(Group("third")).alive() == set()

    simulated(work, alone=False)


def test_one_alone_counts_every_other_one_as_dead() -> None:
    async def work(here: Simulated) -> None:
        await here.store(Group("before")).lock_instance(1)
        store = here.store(Group("now"))
        assert await store.alive() == set()
        await store.lock_instance(2)
        assert await store.alive() == {2}

    simulated(work, alone=True)


def test_closing_frees_no_lock_of_another_one() -> None:
    async def work(here: Simulated) -> None:
        cut_off, next_one = here.store(Group("cut off")), here.store(Group("next one"))
        await cut_off.lock_instance(1)
        cut_off.locks.lose()
        await next_one.lock_instance(1)
        await cut_off.close()
        assert await next_one.alive() == {1}

    simulated(work, alone=False)


def test_what_the_database_said_may_be_old_when_it_is_heard() -> None:
    async def work(here: Simulated) -> None:
        process, other = Group("the process"), Group("other")
        store = here.store(process)
        await here.store(other).lock_instance(2)
        began = await store.now()

        async def ask() -> tuple[float, set[int]]:
            return await asyncio.gather(store.now(), store.alive())

        asking = here.loop.create_task(ask(), context=process.context)
        await passed(here, GRAIN_S)  # all that it does at once is done; an answer takes longer
        process.paused_until = here.loop.at + 10.0
        await passed(here, 1.0)
        other.dead = True
        await passed(here, 9.0)
        here.loop.go_on(process)
        heard, living = await asking
        assert began < heard < began + 1.0
        assert living == {2}
        assert here.loop.at > 10.0

    simulated(work, alone=False)


def test_a_database_that_cannot_be_reached_is_waited_for() -> None:
    async def work(here: Simulated) -> None:
        store = here.store(Group("the process"))
        here.database.weather.down_until = 5.0
        asked = store.run(put, 1, "late")
        await passed(here, 1.0)
        assert store.trouble() == DOWN
        assert await asked == "late"
        assert here.loop.at > 5.0
        assert store.trouble() is None

    simulated(work, alone=False)


def test_only_who_is_cut_off_has_to_wait() -> None:
    async def work(here: Simulated) -> None:
        away, here_still = Group("away"), Group("here still")
        here.database.weather.cut_off[away] = 5.0
        asked = here.store(away).run(put, 1, "late")
        assert await here.store(here_still).run(put, 2, "soon") == "soon"
        assert here.loop.at < 5.0
        assert await asked == "late"
        assert here.loop.at > 5.0

    simulated(work, alone=False)


def test_a_full_disk_is_waited_for_and_reads_go_on() -> None:
    async def work(here: Simulated) -> None:
        store = here.store(Group("the process"))
        here.database.weather.full_until = 5.0
        asked = [store.run(put, number, "late") for number in (1, 2)]
        await passed(here, 1.0)
        assert store.trouble() == FULL
        assert await store.read(find, 1) is None
        assert await asyncio.gather(*asked) == ["late"] * 2
        assert here.loop.at > 5.0
        assert store.trouble() is None

    simulated(work, alone=True)


def test_the_same_seed_gives_the_same_run() -> None:
    moments: list[list[float]] = []

    async def work(here: Simulated) -> None:
        store = here.store(Group("the process"))
        heard: list[float] = []
        for number in range(20):
            await store.run(put, number, "x")
            heard.append(here.loop.at)
        moments.append(heard)

    for seed in (1, 1, 2):
        simulated(work, alone=False, unknown=UNKNOWN, seed=seed)
    assert moments[0] == moments[1] != moments[2]
