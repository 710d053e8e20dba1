"""Several instances on one database: which is taken for dead, what a wrong verdict does, and which one recovers the work."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from msgspec import structs

from everturn.errors import InstanceClosed
from everturn.ids import Instance, Machine
from everturn.inbox.rows.inbox import accept
from everturn.lifecycle.liveness import Liveness
from everturn.lifecycle.rows import join, record_end, record_lock
from everturn.lifecycle.settings import Settings
from everturn.store.interface import GRACE_S, Op, Store, sql
from everturn.store.open import open_store
from everturn.testing import FakePlatform, ManualClock, World
from everturn.turns.recovery import NEGLECTED_S
from tests.scenes import EAGER, Actor, answer_to, die, swept, told, until_read
from tests.turns.test_recovery import arrival
from tests.waiting import Changes, within

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
        platform.say("one", "hold")
        await agent.held("hold")
        await closed(world, world.clock.now())
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


async def test_what_an_instance_stored_after_it_was_closed_is_answered_by_a_replica(database_url: str) -> None:
    """Others had looked for what it left, and then it ended: nothing but the age of its message tells."""
    async with a_pair(database_url) as pair:
        await closed(pair.first, pair.first.clock.now())
        await pair.other.gateway.recovery.sweep()
        message = structs.replace(arrival("m9", "hello", "two"), id=pair.first.gateway.instance.ids.next())
        await pair.first.store.run(accept, message, 10, None)
        await pair.first.abandon()
        await pair.answered(pair.elsewhere)  # of what it left, the other one goes on with all that can be seen
        recovery, clock = pair.other.gateway.recovery, pair.other.clock
        assert isinstance(clock, ManualClock)
        for _ in range(2):
            await recovery.sweep()
            await recovery.wake_neglected()
            await pair.other.gateway.turns.quiet()
            assert pair.elsewhere.texts("two") == []
            clock.advance(NEGLECTED_S + 1.0)  # now it is old; and then it was so at the last look as well
        await recovery.wake_neglected()
        await told(pair.elsewhere, "two", answer_to("hello"))


# -- a start, while the database restarts ------------------------------------------------------------------------------


class Naps(ManualClock):
    """It keeps how long somebody sleeps."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []
        self.changes = Changes(lambda: self.seconds)

    def sleep(self, seconds: float) -> Coroutine[Any, Any, None]:
        """Report it, and wait."""
        self.seconds.append(seconds)
        self.changes.changed()
        return super().sleep(seconds)


@asynccontextmanager
async def joined(url: str, clock: ManualClock) -> AsyncIterator[tuple[Store, Instance]]:
    """The connection of an instance that holds its lock."""
    store, instance = await open_store(url), Instance(clock, Machine())
    try:
        instance.join(await store.run(join, f"token {id(instance)}", "host", 1, clock.now()), 0)
        await store.lock_instance(instance.number)
        await store.run(record_lock, instance.number, await store.now())
        yield store, instance
    finally:
        await store.close()


async def test_a_start_whose_own_lock_is_free_takes_nobody_for_dead_yet(database_url: str) -> None:
    """The database has restarted since: it freed all locks, and those of running instances are taken again in a moment."""
    clock = Naps()
    async with joined(database_url, clock) as (running, first), joined(database_url, clock) as (starting, second):
        await running.lock_instance(ELSEWHERE)
        await starting.lock_instance(ELSEWHERE + 1)
        await until_read(starting.alive, lambda alive: alive == {ELSEWHERE, ELSEWHERE + 1})
        looking = asyncio.ensure_future(Liveness(starting, second).dead_at_start())
        looking.add_done_callback(lambda _: clock.changes.changed())
        await clock.changes.until(lambda: clock.seconds == [GRACE_S] or looking.done())
        assert not looking.done()
        await running.lock_instance(first.number)
        await starting.lock_instance(second.number)
        clock.advance(GRACE_S)
        async with within():
            assert await looking == []
    assert clock.seconds == [GRACE_S]


async def test_a_start_that_holds_its_lock_takes_who_does_not_for_dead_at_once(database_url: str) -> None:
    clock = Naps()
    async with joined(database_url, clock) as (dying, first), joined(database_url, clock) as (starting, second):
        await dying.close()
        await until_read(starting.alive, lambda alive: alive == {second.number})
        dead = await Liveness(starting, second).dead_at_start()
    assert ([each.number for each in dead], clock.seconds) == ([first.number], [])
