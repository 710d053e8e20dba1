"""The rules of a tool at the time of a call and after a crash: the stricter ones decide."""

import asyncio

import pytest

from everturn.agent.toolbox import Ask, Tool, ToolPlace, no_approval
from everturn.inbox.rules import OUTCOME_UNKNOWN
from everturn.model import Effect, Json
from tests.agent.tools.benches import Bench
from tests.scenes import die, happened, told


class Changing:
    """A tool whose rules the owner changes, and which may be missing."""

    def __init__(self) -> None:
        self.ran = 0
        self.begun = asyncio.Event()
        self.go = asyncio.Event()
        self.offered: list[Tool] = []

    def rule(self, effect: Effect, ask: Ask = no_approval) -> None:
        """From now on it is offered so."""
        self.offered = [
            Tool(name="act", description="", parameters={"type": "object"}, run=self._run, effect=effect, ask=ask)
        ]

    async def _run(self, _given: Json, _place: ToolPlace) -> str:
        self.begun.set()
        await self.go.wait()
        self.ran += 1
        return "acted"


def asks(_given: Json) -> str:
    return "Act?"


async def died_in_a_call(bench: Bench, tool: Changing) -> str:
    """A call that was begun when the gateway died."""
    message = bench.say(("act", {}))
    await happened(tool.begun)
    await die(bench.world)
    tool.go.set()
    return message


async def test_a_call_that_could_be_repeated_is_not_if_its_tool_may_run_only_once_now(store_url: str) -> None:
    tool = Changing()
    tool.rule(Effect.PURE)
    async with Bench(store_url, lambda _: tool.offered) as bench:
        message = await died_in_a_call(bench, tool)
        tool.rule(Effect.ONCE)
        await bench.world.start()
        (result,) = await bench.results(message)
    assert (result.content, tool.ran) == (OUTCOME_UNKNOWN, 0)


@pytest.mark.parametrize(("says", "ran"), [("/approve", 1), ("/deny", 0)])
async def test_a_call_that_is_repeated_is_asked_about_if_its_tool_asks_now(store_url: str, says: str, ran: int) -> None:
    tool = Changing()
    tool.rule(Effect.IDEMPOTENT)
    async with Bench(store_url, lambda _: tool.offered) as bench:
        message = await died_in_a_call(bench, tool)
        tool.rule(Effect.IDEMPOTENT, asks)
        await bench.world.start()
        await told(bench.platform, "one", "May I use act?")
        assert tool.ran == 0
        bench.platform.say("one", says)
        await bench.results(message)
    assert tool.ran == ran


async def test_what_was_approved_before_a_death_is_not_asked_again(store_url: str) -> None:
    tool = Changing()
    tool.rule(Effect.IDEMPOTENT, asks)
    async with Bench(store_url, lambda _: tool.offered) as bench:
        message = bench.say(("act", {}))
        await told(bench.platform, "one", "May I use act?")
        bench.platform.say("one", "/approve")
        await happened(tool.begun)
        await die(bench.world)
        tool.go.set()
        await bench.world.start()
        (result,) = await bench.results(message)
    assert (result.content, tool.ran) == ("acted", 1)
    assert sum("May I use" in text for text in bench.platform.texts("one")) == 1
