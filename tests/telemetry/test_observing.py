"""Counters of the gateway: each end of a turn, each attempt to deliver, each recovery, once and with the right label."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

from everturn.agent.interface import Answer, TurnContext
from everturn.errors import Refused, TryLater
from everturn.model import ToolCall, Usage
from everturn.operator.rows.reading import count_open
from everturn.telemetry.meters import TURNS, VERDICTS, Meters
from everturn.testing import FakePlatform, ManualClock, SendFault, World
from tests.scenes import EAGER, Actor, ask, die, until_read, while_time_passes


class Spender:
    """Calls a model twice and a tool once."""

    async def run(self, turn: TurnContext) -> Answer:
        await turn.calling()
        await turn.failed("overloaded", "try again", 0.0)
        await turn.calling()
        usage = Usage(requests=1, input_tokens=100, output_tokens=10, cached_tokens=40, cost=0.25)
        await turn.step("", [ToolCall("c1", "look")], self._act, usage=usage)
        await turn.calling()
        return Answer("done", usage=Usage(requests=1, input_tokens=200, output_tokens=20))

    async def _act(self, _call: ToolCall, _key: str) -> str:
        return "seen"


def at(home: Path) -> str:
    return f"sqlite:///{home / 'everturn.db'}"


async def until(world: World, true: Callable[[], bool]) -> None:
    """Wait for a counter of this loop."""
    await until_read(lambda: world.store.read(count_open), lambda _: true())


def meters_of(world: World) -> Meters:
    return world.gateway.observing.meters


async def test_each_end_of_a_turn_has_its_name(tmp_path: Path) -> None:
    platform, agent = FakePlatform(), Actor()
    async with World(at(tmp_path), agent, [platform], ManualClock(), EAGER) as world:
        meters = meters_of(world)
        await ask(platform, "one", "fine")
        platform.say("two", "raise")
        platform.say("three", "hold on")
        await agent.held("hold on")
        platform.say("three", "/stop")
        await until(world, lambda: meters.turns.total() == 3)
        platform.say("four", "hold fast")
        platform.say("five", "nocall hold")
        await agent.held("hold fast", "nocall hold")
        assert meters.running == 2
        await world.stop()
    assert meters.running == 0
    assert meters.turns == Counter(
        {(each,): 1 for each in ("answered", "failed", "stopped", "interrupted", "returned")}
    )


async def test_models_and_tools_are_counted_and_timed(tmp_path: Path) -> None:
    platform = FakePlatform()
    async with World(at(tmp_path), Spender(), [platform]) as world:
        platform.say("one", "go")
        await platform.until(lambda: platform.texts("one") == ["done"])
        meters = meters_of(world)
    assert (meters.requests, meters.failures, meters.cost) == (2, 1, 0.25)
    assert (meters.input_tokens, meters.output_tokens, meters.cached_tokens) == (300, 30, 40)
    assert (meters.model.count(), meters.tool.count()) == (2, 1)


async def test_each_try_to_deliver_has_its_name(tmp_path: Path) -> None:
    platform = FakePlatform(faults=[SendFault(TryLater("slow down", 0)), None, SendFault(Refused("blocked"))])
    async with World(at(tmp_path), Actor(), [platform], ManualClock()) as world:
        await while_time_passes(world, ask(platform, "one", "first"))
        platform.say("two", "second")
        meters = meters_of(world)
        await until(world, lambda: meters.deliveries.total() == 3)
    assert set(meters.turns) | set(meters.recovered) == {
        (each,) for each in (*TURNS, *VERDICTS)
    }  # no name that is not declared
    assert meters.deliveries == Counter({("fake", each): 1 for each in ("retried", "sent", "dead")})
    assert meters.messages == Counter({("fake", "accepted"): 2})


async def test_what_a_crash_left_is_counted_where_it_is_recovered(store_url: str) -> None:
    platform, agent = FakePlatform(), Actor()
    async with World(store_url, agent, [platform]) as world:
        platform.say("one", "hold on")
        await agent.held("hold on")
        await die(world)
        agent.release()
        await world.start()
        meters = meters_of(world)
        await platform.until(lambda: bool(platform.texts("one")))
    assert (meters.instances, meters.recovered.total()) == (1, 1)
    assert meters.answer.total >= meters.turn.total > 0
