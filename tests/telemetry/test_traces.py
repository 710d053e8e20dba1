"""Spans of one gateway: their trace, their parent, and their links."""

import asyncio
from pathlib import Path

from everturn.agent.interface import Answer, TurnContext
from everturn.errors import TryLater
from everturn.ids import Ids
from everturn.telemetry.spans import Span, TraceIds, is_sampled
from everturn.testing import FakePlatform, ManualClock, SendFault, World
from tests.scenes import Actor, answer_to, ask, die, happened, told, trace_of, until_ended, while_time_passes


class Kept:
    """Keeps spans in a list."""

    def __init__(self) -> None:
        self.spans: list[Span] = []

    def record(self, span: Span) -> None:
        self.spans.append(span)

    async def close(self) -> None:
        """Do nothing: no span is buffered."""

    def of(self, trace: int) -> dict[str, Span]:
        """Return the spans of a trace by name; of several the last."""
        return {each.name: each for each in self.spans if each.trace == trace}

    def names(self, trace: int) -> list[str]:
        return [each.name for each in self.spans if each.trace == trace]


class Listener:
    """Reads messages that joined its turn, once it is released."""

    def __init__(self) -> None:
        self.began, self.go = asyncio.Event(), asyncio.Event()

    async def run(self, turn: TurnContext) -> Answer:
        self.began.set()
        await self.go.wait()
        return Answer(f"heard {len(await turn.joined())}")


def at(home: Path) -> str:
    return f"sqlite:///{home / 'everturn.db'}"


async def turn_of(world: World, message: str) -> int:
    return int((await until_ended(world, message, "done"))["turn"]["id"])


async def test_a_turn_from_intake_to_delivery(tmp_path: Path) -> None:
    platform, kept = FakePlatform(faults=[SendFault(TryLater("slow down", 0))]), Kept()
    async with World(at(tmp_path), Actor(), [platform], ManualClock(), tracer=kept) as world:
        turn = await turn_of(world, await while_time_passes(world, ask(platform, "one", "tool please")))
    assert kept.names(turn) == ["intake", "model", "tool", "turn", "message", "send", "send"]
    spans = kept.of(turn)
    assert spans["tool"].parent == spans["model"].parent == spans["turn"].place == "attempt 1"
    assert spans["send"].attributes == {"everturn.platform": "fake", "everturn.outcome": "sent", "everturn.attempt": 2}
    assert spans["message"].start <= spans["intake"].start <= spans["turn"].start


async def test_what_joins_a_turn_has_its_own_trace_and_both_know(tmp_path: Path) -> None:
    platform, agent, kept = FakePlatform(), Listener(), Kept()
    async with World(at(tmp_path), agent, [platform], tracer=kept) as world:
        first = platform.say("one", "begin")
        await happened(agent.began)
        platform.say("one", "and this")
        await platform.until(lambda: platform.acknowledged == 2)  # its row is there before its turn hears of it
        agent.go.set()
        turn = await turn_of(world, first)
    (own,) = (each for each in kept.spans if each.links == (turn,))
    assert kept.of(turn)["joined"].links == (own.trace,)
    assert (own.name, sorted(kept.names(own.trace))) == ("message", ["intake", "message", "wait"])


async def test_what_waits_for_its_turn_has_that_in_its_trace(tmp_path: Path) -> None:
    platform, agent, clock, kept = FakePlatform(), Actor(), ManualClock(), Kept()
    async with World(at(tmp_path), agent, [platform], clock, tracer=kept) as world:
        first = platform.say("one", "hold on")
        await agent.held("hold on")
        later = platform.say("one", "/queue and then")
        await platform.until(lambda: platform.acknowledged == 2)
        clock.advance(1)
        agent.release()
        turn, queued = await turn_of(world, first), await turn_of(world, later)
    assert "wait" not in kept.names(turn)
    assert kept.names(queued)[:2] == ["intake", "wait"]
    assert kept.of(queued)["wait"].end >= kept.of(turn)["turn"].end


async def test_a_delivery_after_a_death_is_in_the_same_trace(tmp_path: Path) -> None:
    clock = ManualClock()
    platform, kept = FakePlatform(faults=[SendFault(TryLater("down", 60))]), Kept()
    async with World(at(tmp_path), Actor(), [platform], clock, tracer=kept) as world:
        message = platform.say("one", "hello")
        await platform.until(lambda: platform.calls == 1)
        turn = await turn_of(world, message)
        await world.gateway.outbox.quiet()  # what came of the first try is kept
        await die(world)
        clock.advance(61)
        await world.start()
        await told(platform, "one", answer_to("hello"))
        await trace_of(world, message)
    sends = [each for each in kept.spans if each.name == "send"]
    assert [(each.trace, each.attributes["everturn.outcome"]) for each in sends] == [(turn, "retried"), (turn, "sent")]


async def test_a_command_has_a_trace_of_its_own(tmp_path: Path) -> None:
    platform, kept = FakePlatform(), Kept()
    async with World(at(tmp_path), Actor(), [platform], tracer=kept) as world:
        platform.say("one", "/help")
        await platform.until(lambda: bool(platform.texts("one")))
        await world.stop()
    assert [each.name for each in kept.spans] == ["command", "send"]
    assert kept.spans[0].trace == kept.spans[1].trace


def test_ids_are_the_same_in_every_process_and_differ_between_services() -> None:
    ids, others, number = TraceIds("one"), TraceIds("other"), Ids(ManualClock(), 1).next()
    assert ids.trace(number) == TraceIds("one").trace(number) != others.trace(number)
    assert ids.span(number, "attempt 1") == TraceIds("one").span(number, "attempt 1") != ids.span(number, "attempt 2")
    assert ids.span(number, None) != ids.span(number, None)


def test_the_share_that_is_kept_is_as_asked() -> None:
    traces = [TraceIds("one").trace(number) for number in range(10_000)]
    assert all(is_sampled(each, 1.0) for each in traces)
    assert not any(is_sampled(each, 0.0) for each in traces)
    assert 2300 < sum(is_sampled(each, 0.25) for each in traces) < 2700
