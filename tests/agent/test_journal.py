"""What an agent may rely on: committed steps are not paid again, and each tool call ends by its class."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from everturn.agent.interface import Answer, TurnContext
from everturn.inbox.rules import OUTCOME_UNKNOWN
from everturn.model import Effect, Message, ToolCall
from everturn.testing import FakePlatform, World
from tests.scenes import die, told, trace_of


class Interrupted:
    """Asks once for some calls, is cut off in the middle of one of them, and goes on after the interruption."""

    def __init__(self, *calls: ToolCall, dies_in: str) -> None:
        self._calls = calls
        self._dies_in = dies_in
        self.cut_off = asyncio.Event()
        self.responses = 0
        self.runs: list[tuple[str, str]] = []
        self.results: list[Message] = []

    async def run(self, turn: TurnContext) -> Answer:
        """The model is asked once; what it wanted is brought to an end."""
        turn.calling()
        if turn.attempt == 1:
            self.responses += 1
            await turn.step("thinking", self._calls, self._act)
        await turn.settle(self._act)
        self.results = [row for row in await turn.own() if row.role == "tool"]
        return Answer("done")

    async def _act(self, call: ToolCall, key: str) -> str:
        self.runs.append((call.id, key))
        if call.id == self._dies_in and not self.cut_off.is_set():
            self.cut_off.set()
            await asyncio.Event().wait()
        return f"{call.id} is done"


async def interrupted(url: str, agent: Interrupted) -> dict[str, Any]:
    """Run it through its interruption; returns the message's timeline."""
    platform = FakePlatform()
    async with World(url, agent, [platform]) as world:
        message = platform.say("one", "go")
        await agent.cut_off.wait()
        await die(world)
        await world.start()
        await told(platform, "one", "done")
        return await trace_of(world, message)


def call(name: str, effect: Effect) -> ToolCall:
    return ToolCall(name, "tool", effect=effect)


async def test_a_once_tool_that_was_begun_is_not_run_again(store_url: str) -> None:
    """Promise 5: the model sees that the outcome is unknown."""
    agent = Interrupted(call("a", Effect.ONCE), dies_in="a")
    trace = await interrupted(store_url, agent)
    assert [name for name, _ in agent.runs] == ["a"]
    assert [(result.content, result.unknown) for result in agent.results] == [(OUTCOME_UNKNOWN, True)]
    assert [(each["class"], each["state"]) for each in trace["turn"]["effects"]] == [("once", "done")]


@pytest.mark.parametrize("effect", [Effect.PURE, Effect.IDEMPOTENT])
async def test_a_harmless_tool_is_run_again_with_the_same_key(store_url: str, effect: Effect) -> None:
    agent = Interrupted(call("a", effect), dies_in="a")
    await interrupted(store_url, agent)
    assert len(agent.runs) == 2
    assert agent.runs[0] == agent.runs[1]
    assert [(result.content, result.unknown) for result in agent.results] == [("a is done", False)]


async def test_calls_behind_the_interrupted_one_are_run_once(store_url: str) -> None:
    """Promise 4: what has a result keeps it, what was never begun is begun, in order."""
    calls = [call(name, Effect.ONCE) for name in "abc"]
    agent = Interrupted(*calls, dies_in="b")
    await interrupted(store_url, agent)
    assert [name for name, _ in agent.runs] == ["a", "b", "c"]
    assert [result.unknown for result in agent.results] == [False, True, False]
    assert agent.responses == 1


async def test_keys_differ_between_calls_and_turns(store_url: str) -> None:
    platform, agent = FakePlatform(), Interrupted(call("a", Effect.ONCE), call("b", Effect.ONCE), dies_in="")
    async with World(store_url, agent, [platform]):
        for chat in ("one", "two"):
            platform.say(chat, "go")
            await told(platform, chat, "done")
    assert len({key for _, key in agent.runs}) == 4


class Curious:
    """Looks at what it is given."""

    def __init__(self) -> None:
        self.look: Callable[[TurnContext], Any] = lambda _: None
        self.seen: list[Any] = []

    async def run(self, turn: TurnContext) -> Answer:
        """Look, then answer."""
        self.seen.append(await turn.history(last=3))
        self.seen.append(await turn.own())
        turn.stream("so far")
        return Answer(f"answer to {turn.text} in {turn.source.chat_id} of {turn.key}")


async def test_an_agent_sees_the_newest_rows_and_its_own(store_url: str) -> None:
    platform, agent = FakePlatform(), Curious()
    async with World(store_url, agent, [platform]):
        for text in ("first", "second"):
            platform.say("one", text)
            await told(platform, "one", f"answer to {text}")
    history, own = agent.seen[2:]
    assert [row.role for row in history] == ["user", "assistant", "user"]
    assert [(row.role, row.content) for row in own] == [("user", "second")]
    assert platform.texts("one")[1] == "answer to second in one of agent:main:fake:dm:one"
