"""Boundaries seen from the model: what it is given after each, and that nothing is added to what was left.

Agents keep no session state, so there is none that a reset could leave behind.
"""

import asyncio
from collections.abc import Callable

import pytest

from everturn.agent.interface import Answer, TurnContext
from everturn.lifecycle.settings import Policies, Settings
from everturn.model import Effect, ToolCall
from everturn.sessions.rules.reset_policy import ResetPolicy
from everturn.testing import FakePlatform, ManualClock, World
from tests.scenes import entry_of, happened, restarted, said_in, session_of, told

HOUR = 3600.0
TIMED = Settings(policies=Policies(default=ResetPolicy("both", idle_minutes=60)))


class Recaller:
    """Answers with what it was given; `compact` compacts first, `tool` uses a tool, `hold` waits, `raise` fails."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, list[str]]] = []
        self.frozen: list[str] = []
        self.notes: list[str | None] = []
        self.holds = asyncio.Event()
        self.goes_on = asyncio.Event()

    async def run(self, turn: TurnContext) -> Answer:
        """What a model would see is what is recorded."""
        self.notes.append(turn.note)
        await turn.calling()
        if turn.attempt > 1:
            await turn.settle(self._use)
        text = turn.text.split()
        if "tool" in text and not any(row.calls for row in await turn.own()):
            await turn.step("", [ToolCall("call", "tool", effect=Effect.ONCE)], self._use)
        if "compact" in text and not await self._compacted(turn):
            await turn.session.compact("summary", 2)
        if "hold" in text:
            self.holds.set()
            await self.goes_on.wait()
        self.frozen.append(await turn.session.freeze(f"prompt {len(self.frozen)}"))
        self.requests.append((turn.text, turn.session_id, [row.content for row in await turn.history()]))
        if "raise" in text:
            raise RuntimeError("the model is not there")
        return Answer(f"answer: {turn.text}")

    async def _compacted(self, turn: TurnContext) -> bool:
        return any(row.role == "summary" for row in await turn.history())

    async def _use(self, call: ToolCall, _key: str) -> str:
        return f"{call.id} done"

    def given(self, text: str) -> list[str]:
        """What the model saw with this text, last."""
        return next(seen for said, _, seen in reversed(self.requests) if said == text)


async def say(platform: FakePlatform, text: str) -> None:
    """Say something, and wait for its answer."""
    platform.say("one", text)
    await told(platform, "one", f"answer: {text}")


async def _pass_hours(_platform: FakePlatform, clock: ManualClock) -> None:
    clock.advance(2 * HOUR)


async def _pass_a_day(_platform: FakePlatform, clock: ManualClock) -> None:
    clock.advance(24 * HOUR)


async def _new(platform: FakePlatform, _clock: ManualClock) -> None:
    platform.say("one", "/new")
    await told(platform, "one", "fresh conversation")


BOUNDARIES: dict[str, tuple[Settings, Callable[[FakePlatform, ManualClock], object]]] = {
    "idle": (TIMED, _pass_hours),
    "daily": (Settings(policies=Policies(default=ResetPolicy("daily"))), _pass_a_day),
    "new": (Settings(), _new),
}


@pytest.mark.parametrize("boundary", BOUNDARIES)
async def test_after_a_session_boundary_the_model_sees_only_the_new_session(store_url: str, boundary: str) -> None:
    """Neither the old session id nor any of its rows; the old session gets no new row; each session's prompt stays frozen."""
    settings, cross = BOUNDARIES[boundary]
    platform, agent, clock = FakePlatform(), Recaller(), ManualClock()
    async with World(store_url, agent, [platform], clock, settings) as world:
        await say(platform, "before")
        old = await session_of(world, platform, "one")
        await cross(platform, clock)  # type: ignore[misc]
        await say(platform, "first")
        await say(platform, "second")
        new, rows = await session_of(world, platform, "one"), await said_in(world, old)
    assert new != old
    assert agent.given("first") == ["first"]
    assert agent.given("second") == ["first", "answer: first", "second"]
    assert [row.content for row in rows] == ["before", "answer: before"]
    assert agent.frozen == ["prompt 0", "prompt 1", "prompt 1"]


async def test_after_resume_the_next_two_requests_show_the_old_session_again(store_url: str) -> None:
    platform, agent = FakePlatform(), Recaller()
    async with World(store_url, agent, [platform]) as world:
        await say(platform, "before")
        platform.say("one", "/new")
        await told(platform, "one", "fresh conversation")
        await say(platform, "between")
        left = await session_of(world, platform, "one")
        platform.say("one", "/resume 1")
        await told(platform, "one", "with its whole history")
        await say(platform, "first")
        await say(platform, "second")
        rows = await said_in(world, left)
    assert agent.given("first") == ["before", "answer: before", "first"]
    assert agent.given("second")[-3:] == ["first", "answer: first", "second"]
    assert [row.content for row in rows] == ["between", "answer: between"]
    assert agent.frozen == ["prompt 0", "prompt 1", "prompt 0", "prompt 0"]


async def test_after_a_compaction_the_next_two_requests_show_the_child(store_url: str) -> None:
    """The frozen prompt is inherited, the parent keeps what it had."""
    platform, agent = FakePlatform(), Recaller()
    async with World(store_url, agent, [platform]) as world:
        for text in ("one", "two"):
            await say(platform, text)
        parent = await session_of(world, platform, "one")
        await say(platform, "compact")
        await say(platform, "second")
        rows = await said_in(world, parent)
        entry = await entry_of(world, platform, "one")
    assert agent.given("compact") == ["summary", "answer: two", "compact"]
    assert agent.given("second") == ["summary", "answer: two", "compact", "answer: compact", "second"]
    assert [row.content for row in rows] == ["one", "answer: one", "two", "answer: two", "compact"]
    assert (entry.previous_session_id, set(agent.frozen)) == (parent, {"prompt 0"})


@pytest.mark.parametrize("end", ["raise", "/stop"])
async def test_a_failed_or_stopped_turn_after_a_compaction_leaves_its_key_on_the_child(
    store_url: str, end: str
) -> None:
    """Whatever ends the turn after a compaction, the next message continues in the child."""
    platform, agent = FakePlatform(), Recaller()
    async with World(store_url, agent, [platform]) as world:
        await say(platform, "one")
        parent = await session_of(world, platform, "one")
        platform.say("one", "compact raise" if end == "raise" else "compact hold")
        if end == "/stop":
            await happened(agent.holds)
            platform.say("one", end)
        await told(platform, "one", "could not answer" if end == "raise" else "Stopped")
        await say(platform, "next")
        rows = await said_in(world, parent)
        assert await session_of(world, platform, "one") != parent
    assert agent.given("next")[0] == "summary"
    assert len(rows) == 3


async def test_new_wins_over_a_compaction_of_the_running_turn(store_url: str) -> None:
    """The old run's move never reaches the new session."""
    platform, agent = FakePlatform(), Recaller()
    async with World(store_url, agent, [platform]) as world:
        platform.say("one", "compact hold")
        await happened(agent.holds)
        platform.say("one", "/new")
        await told(platform, "one", "fresh conversation")
        fresh = await session_of(world, platform, "one")
        agent.goes_on.set()
        await say(platform, "next")
        assert await session_of(world, platform, "one") == fresh
    assert agent.given("next") == ["next"]


async def test_a_crash_after_a_compaction_resumes_in_the_child_without_a_stored_note(store_url: str) -> None:
    """A note is never a row, so a compaction cannot copy one into a child."""
    platform, agent = FakePlatform(), Recaller()
    async with World(store_url, agent, [platform]) as world:
        platform.say("one", "tool hold compact")
        await happened(agent.holds)
        child = await session_of(world, platform, "one")
        agent.holds.clear()
        agent.goes_on.set()
        await restarted(world)
        await told(platform, "one", "answer: tool hold compact")
        rows = await said_in(world, child)
    assert [row.content for row in rows] == [
        "summary", "tool hold compact", "", "call done", "answer: tool hold compact",
    ]  # fmt: skip
    assert [bool(note) for note in agent.notes] == [False, True]
