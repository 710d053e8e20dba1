"""Messages to a running turn steer it, wait for it, end it or take it back; none is lost, calls keep their results."""

import asyncio
from collections.abc import Sequence

import pytest

from everturn.agent.interface import Answer, TurnContext
from everturn.lifecycle.settings import Settings
from everturn.model import Effect, Message, ToolCall
from everturn.sessions.rows.entries import list_entries
from everturn.testing import FakePlatform, ManualClock, ScriptedAgent, World
from tests.scenes import happened, restarted, said_in, session_of, told, trace_of, until_ended


class Worker:
    """Makes some calls at once, waits inside the first until it is released, reads what joined, answers."""

    def __init__(self, *calls: str) -> None:
        self.calls = calls or ("a", "b", "c")
        self.working = asyncio.Event()
        self.go = asyncio.Event()
        self.ran: list[str] = []
        self.notes: list[str] = []
        self.results: list[Message] = []

    async def run(self, turn: TurnContext) -> Answer:
        """`work` works; everything else is answered at once."""
        self.notes.append(turn.note or "")
        if turn.attempt > 1:
            self.results += await turn.settle(self._act)
        heard = [row.content for row in await turn.joined()]
        await turn.calling()
        if turn.text.startswith("work") and turn.attempt == 1:
            calls = [ToolCall(name, name, effect=Effect.ONCE) for name in self.calls]
            self.results += await turn.step("", calls, self._act)
            heard += [row.content for row in await turn.joined()]
        return Answer(f"{turn.text.splitlines()[0]} heard {heard}")

    async def _act(self, call: ToolCall, _key: str) -> str:
        self.ran.append(call.id)
        self.working.set()
        await self.go.wait()
        return f"{call.id} done"


def roles(rows: Sequence[Message]) -> list[str]:
    return [row.role for row in rows]


def unpaired(rows: Sequence[Message]) -> set[str]:
    """Calls without a result."""
    return {call.id for row in rows for call in row.calls} - {row.call_id or "" for row in rows}


async def accepted(platform: FakePlatform) -> None:
    """Wait until the gateway has accepted every message."""
    await platform.until(lambda: platform.acknowledged >= len(platform.said()))


def settings(busy: str) -> Settings:
    return Settings(busy=busy, burst_s=0.0)


async def test_a_message_joins_the_running_turn_after_the_next_tool_call(store_url: str) -> None:
    """What was not begun is skipped for it; it ends with the turn, whose one answer is for both."""
    platform, agent = FakePlatform(), Worker()
    async with World(store_url, agent, [platform]) as world:
        platform.say("one", "work")
        await happened(agent.working)
        more = platform.say("one", "and this")
        await accepted(platform)
        agent.go.set()
        await told(platform, "one", "work heard ['and this']")
        trace = await until_ended(world, more, "done")
        rows = await said_in(world, await session_of(world, platform, "one"))
    assert agent.ran == ["a"]
    assert [row.content[:8] for row in agent.results] == ["a done", "Skipped:", "Skipped:"]
    assert roles(rows) == ["user", "assistant", "tool", "tool", "tool", "user", "assistant"]
    assert (trace["turn"]["state"], platform.texts("one")) == ("answered", ["work heard ['and this']"])


async def test_a_message_that_comes_too_late_to_join_is_the_next_turn(store_url: str) -> None:
    platform, started, go = FakePlatform(), asyncio.Event(), asyncio.Event()

    async def act(name: str, _key: str) -> str:
        started.set()
        await go.wait()
        return name

    async with World(store_url, ScriptedAgent(["tool"], act=act), [platform]):  # it never asks what joined
        platform.say("one", "first")
        await happened(started)
        platform.say("one", "second")
        await accepted(platform)
        go.set()
        await told(platform, "one", "echo: second")
    assert platform.texts("one") == ["echo: first", "echo: second"]


@pytest.mark.parametrize(("say", "busy"), [("/queue later", "steer"), ("later", "queue")])
async def test_a_queued_message_is_a_turn_of_its_own(store_url: str, say: str, busy: str) -> None:
    platform, agent = FakePlatform(), Worker()
    async with World(store_url, agent, [platform], settings=settings(busy)):
        platform.say("one", "work")
        await happened(agent.working)
        platform.say("one", say)
        await accepted(platform)
        agent.go.set()
        await told(platform, "one", "later heard")
    assert platform.texts("one") == ["work heard []", "later heard []"]
    assert agent.ran == ["a", "b", "c"]


async def test_steer_works_in_every_mode(store_url: str) -> None:
    platform, agent = FakePlatform(), Worker()
    async with World(store_url, agent, [platform], settings=settings("queue")):
        platform.say("one", "work")
        await happened(agent.working)
        platform.say("one", "/steer left")
        await accepted(platform)
        agent.go.set()
        await told(platform, "one", "work heard ['left']")


@pytest.mark.parametrize(("busy", "state"), [("interrupt", "stopped"), ("rollback", "rolled_back")])
async def test_a_new_message_may_end_the_running_turn(store_url: str, busy: str, state: str) -> None:
    platform, agent = FakePlatform(), Worker()
    async with World(store_url, agent, [platform], settings=settings(busy)) as world:
        first = platform.say("one", "work")
        await happened(agent.working)
        platform.say("one", "stop that")
        await told(platform, "one", "stop that heard")
        trace = await trace_of(world, first)
        rows = await said_in(world, await session_of(world, platform, "one"))
    assert (trace["state"], trace["turn"]["state"]) == ("withdrawn", state)
    assert "your new message is next" in platform.texts("one")[0]
    assert platform.texts("one")[1:] == ["stop that heard []"]
    assert (unpaired(rows), len(rows)) == (set(), {"interrupt": 7, "rollback": 2}[busy])
    assert ["a()" in note for note in agent.notes] == [False, busy == "rollback"]


async def test_a_mode_of_a_platform_beats_the_general_one(store_url: str) -> None:
    platform, agent = FakePlatform(), Worker()
    modes = Settings(busy="queue", busy_by_platform={"fake": "steer"}, burst_s=0.0)
    async with World(store_url, agent, [platform], settings=modes):
        platform.say("one", "work")
        await happened(agent.working)
        platform.say("one", "more")
        await accepted(platform)
        agent.go.set()
        await told(platform, "one", "work heard ['more']")


async def test_collected_messages_are_one_turn_after_a_quiet_moment(store_url: str) -> None:
    platform, agent, clock = FakePlatform(), Worker(), ManualClock()
    async with World(store_url, agent, [platform], clock, settings("collect")) as world:
        platform.say("one", "work")
        await happened(agent.working)
        for text in ("x", "y"):
            platform.say("one", text)
        await accepted(platform)
        agent.go.set()
        await told(platform, "one", "work heard []")
        await world.gateway.turns.quiet()
        clock.advance(2.0)
        await told(platform, "one", "x heard")
        rows = await said_in(world, await session_of(world, platform, "one"))
    assert [row.content for row in rows if row.role == "user"] == ["work", "x", "y"]


async def test_what_is_collected_survives_a_death(store_url: str) -> None:
    platform, agent, clock = FakePlatform(), Worker(), ManualClock()
    async with World(store_url, agent, [platform], clock, settings("collect")) as world:
        platform.say("one", "work")
        await happened(agent.working)
        platform.say("one", "x")
        await accepted(platform)
        agent.go.set()
        await told(platform, "one", "work heard []")
        clock.advance(1.0)
        await restarted(world)
        clock.advance(1.0)
        await told(platform, "one", "x heard")


async def test_a_burst_is_one_turn_and_keeps_its_rows(store_url: str) -> None:
    platform, agent, clock = FakePlatform(), Worker(), ManualClock()
    modes = Settings(busy="queue", burst_s=0.35)
    async with World(store_url, agent, [platform], clock, modes) as world:
        platform.say("one", "work")
        await happened(agent.working)
        for text in ("x", "y"):
            platform.say("one", text)
        await accepted(platform)
        agent.go.set()
        await told(platform, "one", "x heard []")
        rows = await said_in(world, await session_of(world, platform, "one"))
    assert [row.content for row in rows][-3:] == ["x", "y", "x heard []"]


async def test_a_steer_accepted_before_a_death_joins_the_next_attempt(store_url: str) -> None:
    """Calls that were not begun are skipped for it there, the begun one is of unknown outcome."""
    platform, agent = FakePlatform(), Worker()
    async with World(store_url, agent, [platform]) as world:
        platform.say("one", "work")
        await happened(agent.working)
        platform.say("one", "and this")
        await accepted(platform)
        await restarted(world)
        await told(platform, "one", "work heard ['and this']")
        rows = await said_in(world, await session_of(world, platform, "one"))
    assert [(row.unknown, row.content[:8]) for row in rows if row.role == "tool"] == [
        (True, "The outc"), (False, "Skipped:"), (False, "Skipped:"),
    ]  # fmt: skip
    assert unpaired(rows) == set()


async def test_stop_pairs_the_calls_it_cuts_off(store_url: str) -> None:
    platform, agent = FakePlatform(), Worker()
    async with World(store_url, agent, [platform]) as world:
        platform.say("one", "work")
        await happened(agent.working)
        platform.say("one", "/stop")
        await told(platform, "one", "Stopped")
        rows = await said_in(world, await session_of(world, platform, "one"))
        platform.say("one", "next")
        await told(platform, "one", "next heard")
    assert (unpaired(rows), roles(rows)) == (set(), ["user", "assistant", "tool", "tool", "tool"])


async def test_anybody_in_a_shared_chat_may_steer_and_is_named(store_url: str) -> None:
    platform, agent = FakePlatform(), Worker()
    where = {"chat_type": "group", "thread_id": "t"}
    async with World(store_url, agent, [platform]) as world:
        platform.say("one", "work", user_name="Ann", **where)
        await happened(agent.working)
        platform.say("one", "me too", user_id="bob", **where)
        await accepted(platform)
        agent.go.set()
        await told(platform, "one", "heard ['me too']")
        rows = await said_in(world, await shared_session(world))
    assert [row.author for row in rows if row.role == "user"] == ["Ann", "bob"]


async def shared_session(world: World) -> str:
    """The session of the group's thread."""
    (entry,) = await world.store.read(list_entries, "", 10)
    return str(entry["session_id"])
