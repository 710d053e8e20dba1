"""Several instances on one database: which is taken for dead, what a wrong verdict does, and which one recovers the work."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
from msgspec import structs

from everturn.errors import InstanceClosed
from everturn.inbox.rows.inbox import accept
from everturn.lifecycle.rows import record_end
from everturn.lifecycle.settings import Settings
from everturn.store.interface import GRACE_S, Op, sql
from everturn.testing import FakePlatform, ManualClock, World
from tests.scenes import EAGER, Actor, answer_to, die, swept, told, until_read
from tests.turns.test_recovery import arrival
from tests.waiting import within

ELSEWHERE = 4711  # nobody's number
PLAIN = Settings(burst_s=0.0)


@dataclass(frozen=True)
class Pair:
    """Two instances on one database; the first has a turn that is held."""

    agent: Actor
    platform: FakePlatform  # of the first
    elsewhere: FakePlatform  # of the other
    first: World
    other: World

    async def answered(self, where: FakePlatform) -> None:
        """Let the turn go on; its answer is seen there."""
        self.agent.release()
        await told(where, "one", "answer")


@asynccontextmanager
async def a_pair(url: str, settings: Settings = PLAIN, ahead_s: float = 0.0) -> AsyncIterator[Pair]:
    """Their clocks stand still, each for itself; the other one's may be ahead."""
    agent, platform, elsewhere, clock = Actor(), FakePlatform(), FakePlatform(), ManualClock()
    first = World(url, agent, [platform], clock, settings)
    other = World(url, agent, [elsewhere], ManualClock(clock.now() + ahead_s), settings)
    async with first, other:
        platform.say("one", "hold")
        await agent.held("hold")
        yield Pair(agent, platform, elsewhere, first, other)
        agent.release()


def pass_grace(world: World) -> None:
    """A heartbeat is due then, too."""
    assert isinstance(world.clock, ManualClock)
    world.clock.advance(GRACE_S)


def closed(world: World, at: float) -> "asyncio.Future[None]":
    """Let another instance take this one for dead."""
    return world.store.run(record_end, world.gateway.instance.number, "unclean", at)


def age(number: int, by_s: float) -> Op[None]:
    """Its last heartbeat was so long ago."""
    yield sql("UPDATE instance SET alive_at=alive_at-$2 WHERE number=$1", number, by_s)


async def test_an_instance_whose_lock_is_free_for_a_moment_goes_on(database_url: str) -> None:
    """As after a restart of the database, which frees all locks at once."""
    async with a_pair(database_url) as pair:
        number = pair.first.gateway.instance.number
        await pair.first.store.lock_instance(ELSEWHERE)
        await until_read(pair.other.store.alive, lambda alive: number not in alive)
        await pair.other.gateway.recovery.sweep()
        await pair.first.store.lock_instance(number)
        await swept(pair.other)
        assert len(pair.agent.attempts) == 1
        await pair.answered(pair.platform)


async def test_an_instance_that_still_beats_is_not_dead_without_its_lock(database_url: str) -> None:
    async with a_pair(database_url) as pair:
        await pair.first.store.lock_instance(ELSEWHERE)
        await until_read(pair.other.store.alive, lambda alive: ELSEWHERE in alive)
        await pair.other.gateway.recovery.sweep()
        before = await until_read(lambda: heartbeat_of(pair.first), bool)
        pass_grace(pair.first)
        await until_read(lambda: heartbeat_of(pair.first), lambda at: at > before)
        pass_grace(pair.other)
        await pair.other.gateway.recovery.sweep()
        assert len(pair.agent.attempts) == 1


async def heartbeat_of(world: World) -> float:
    """The last heartbeat of the instance, by its own clock."""

    def read() -> Op[float]:
        rows = yield sql("SELECT heartbeat_at FROM instance WHERE number=$1", world.gateway.instance.number)
        return float(rows[0][0])

    return await world.store.read(read)


async def test_clocks_that_differ_kill_nobody(database_url: str) -> None:
    async with a_pair(database_url, ahead_s=300.0) as pair:
        await swept(pair.other)
        assert len(pair.agent.attempts) == 1
        await pair.answered(pair.platform)


async def test_an_instance_that_stands_still_is_taken_over(database_url: str) -> None:
    """Its lock is held as long as its connection is, its heartbeat tells the truth. What it still does is refused."""
    async with a_pair(database_url) as pair:
        await pair.first.store.run(age, pair.first.gateway.instance.number, 61.0)
        await swept(pair.other)
        await pair.agent.until(lambda: len(pair.agent.attempts) == 2)
        await pair.answered(pair.elsewhere)
        await pair.first.abandon()
    assert pair.platform.texts("one") == []


async def test_an_instance_that_finds_itself_closed_stops_its_turns_at_once(database_url: str) -> None:
    async with a_pair(database_url) as pair:
        await closed(pair.first, pair.first.clock.now())
        pass_grace(pair.first)
        async with within():
            await asyncio.wait({pair.first.gateway.failed})
        with pytest.raises(InstanceClosed, match="instance 1 was closed"):
            pair.first.gateway.failed.result()
        await pair.agent.until(lambda: not pair.agent.holding)
        await pair.other.gateway.recovery.sweep()
        await pair.agent.held("hold")
        await pair.answered(pair.elsewhere)
        await pair.first.abandon()
    assert [each.number for each in pair.agent.attempts] == [1, 2]


async def test_a_running_turn_of_an_instance_that_was_closed_is_taken_up(store_url: str) -> None:
    """It was taken for dead, worked on, and then died: nobody looks for an end that is there already."""
    platform, agent = FakePlatform(), Actor()
    async with World(store_url, agent, [platform], ManualClock()) as world:
        await closed(world, world.clock.now())
        platform.say("one", "hold")
        await agent.held("hold")
        await die(world)
        agent.release()
        report = await world.start()
        await told(platform, "one", "answer")
    assert (report.continued, [each.number for each in agent.attempts]) == (1, [1, 2])


async def test_a_replica_goes_on_with_the_turn_that_a_planned_stop_cut_off(database_url: str) -> None:
    """The stopped one never returns."""
    async with a_pair(database_url, EAGER) as pair:
        assert await pair.first.stop("stop") is False
        await pair.other.gateway.recovery.sweep()
        await pair.agent.held("hold")
        await pair.answered(pair.elsewhere)


async def test_a_replica_answers_what_a_planned_stop_left_waiting(database_url: str) -> None:
    async with a_pair(database_url, EAGER) as pair:
        message = structs.replace(arrival("m9", "hello", "two"), id=pair.first.gateway.instance.ids.next())
        await pair.first.store.run(accept, message, 10, None)
        await pair.other.gateway.recovery.sweep()
        assert pair.elsewhere.texts("two") == []
        await pair.first.stop("stop")
        await pair.other.gateway.recovery.sweep()
        await told(pair.elsewhere, "two", answer_to("hello"))
