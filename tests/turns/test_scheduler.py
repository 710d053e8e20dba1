"""Scheduling turns: one at a time per key, fair between keys, within their slots; late writers are refused."""

import asyncio

from everturn.agent.interface import Answer, TurnContext
from everturn.errors import FenceLost
from everturn.lifecycle.settings import Settings
from everturn.model import Effect, ToolCall
from everturn.testing import FakePlatform, World
from tests.scenes import (
    Actor,
    answer_to,
    ask,
    die,
    entry_of,
    happened,
    said_in,
    session_of,
    told,
    trace_of,
    until_ended,
)


async def test_one_talkative_chat_does_not_keep_others_waiting(store_url: str) -> None:
    """Fair between keys: a lane that has more to do goes to the end of the queue."""
    platform, agent = FakePlatform(), Actor()
    async with World(store_url, agent, [platform], settings=Settings(running_turns=1, burst_s=0.0)):
        for chat, text in (("a", "hold"), ("a", "a2"), ("a", "a3"), ("b", "b1")):
            platform.say(chat, text)
        await agent.held("hold")
        await told_of_all(platform, 4)
        agent.release()
        await platform.until(lambda: len(platform.screen) == 4)
    assert [each.text for each in agent.attempts] == ["hold", "b1", "a2", "a3"]
    assert platform.texts("a") == [answer_to(text) for text in ("hold", "a2", "a3")]


async def told_of_all(platform: FakePlatform, count: int) -> None:
    """Wait until the gateway has accepted every message."""
    await platform.until(lambda: platform.acknowledged >= count)


async def test_no_more_turns_run_at_once_than_allowed(store_url: str) -> None:
    platform, agent = FakePlatform(), Actor()
    chats = [f"chat {number}" for number in range(7)]
    async with World(store_url, agent, [platform], settings=Settings(running_turns=2, burst_s=0.0)):
        for chat in chats:
            platform.say(chat, f"hold {chat}")
        for left in range(len(chats), 0, -1):
            await all_at_work(agent, min(2, left))
            held = min(agent.holding)
            agent.release(held)
            await told(platform, held.removeprefix("hold "), "answer")
    assert agent.most_at_once == 2


async def all_at_work(agent: Actor, count: int) -> None:
    """Wait until so many turns are held."""
    await agent.until(lambda: len(agent.holding) == count)


async def test_half_of_the_slots_are_kept_for_new_work(store_url: str) -> None:
    platform, agent = FakePlatform(), Actor()
    async with World(store_url, agent, [platform], settings=Settings(running_turns=4)) as world:
        for number in range(4):
            platform.say(f"old {number}", f"hold {number}")
        await agent.until(lambda: len(agent.holding) == 4)
        await die(world)
        await world.start()
        await agent.until(lambda: len(agent.holding) == 2)
        for number in range(3):
            await ask(platform, f"new {number}", "hello")
        assert len(agent.holding) == 2
        agent.release()
        await platform.until(lambda: all(platform.texts(f"old {number}") for number in range(4)))


async def test_an_agent_that_raises_ends_its_turn_visibly(store_url: str) -> None:
    """Promise 1: a dead letter, and its sender gets the real reason."""
    platform = FakePlatform()
    async with World(store_url, Actor(), [platform]) as world:
        failed = platform.say("one", "raise")
        await told(platform, "one", "the model is not there")
        trace = await until_ended(world, failed, "dead")
        assert trace["turn"]["state"] == "failed"
        await ask(platform, "one", "next")


async def test_an_empty_answer_is_not_a_success(store_url: str) -> None:
    platform = FakePlatform()
    async with World(store_url, Actor(), [platform]) as world:
        empty = platform.say("one", "empty")
        await told(platform, "one", "empty answer")
        assert (await until_ended(world, empty, "dead"))["turn"]["state"] == "failed"


class Stubborn:
    """An agent that does not notice it was stopped: it swallows the cancellation and writes on."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.refused: list[str] = []

    async def run(self, turn: TurnContext) -> Answer:
        """Hold on to the turn."""
        if turn.text != "stubborn":
            return Answer(f"fine: {turn.text}")
        await turn.calling()
        try:
            self.begun.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await self._write_late(turn)
        return Answer("too late")

    async def _write_late(self, turn: TurnContext) -> None:
        try:
            await turn.step("late", [ToolCall("late", "tool", effect=Effect.ONCE)], self._act)
        except FenceLost as error:
            self.refused.append(str(error))

    async def _act(self, call: ToolCall, key: str) -> str:
        raise AssertionError(f"a late effect must not happen: {call.id} {key}")


async def stopped_late(store_url: str, command: str, part: str) -> tuple[FakePlatform, Stubborn, list[str]]:
    """Let a command end a stubborn turn; returns what was seen, and everything its session holds."""
    platform, agent = FakePlatform(), Stubborn()
    async with World(store_url, agent, [platform]) as world:
        message = platform.say("one", "stubborn")
        await happened(agent.begun)
        session_id = await session_of(world, platform, "one")
        platform.say("one", command)
        await told(platform, "one", part)
        platform.say("one", "next")
        await told(platform, "one", "fine: next")
        assert (await trace_of(world, message))["turn"]["state"] == "stopped"
        now = await session_of(world, platform, "one")
        return platform, agent, [row.content for each in {session_id, now} for row in await said_in(world, each)]


async def test_late_writes_of_a_stopped_turn_are_refused(store_url: str) -> None:
    """Promise 8: neither sent nor stored, and the next turn is not disturbed."""
    platform, agent, transcripts = await stopped_late(store_url, "/stop", "Stopped")
    assert len(agent.refused) == 1
    assert "too late" not in str(platform.screen)
    assert "late" not in transcripts


async def test_late_writes_of_a_turn_whose_session_was_left_are_refused(store_url: str) -> None:
    """Promise 8: nothing is written into the ended session, nor into the new one."""
    platform, agent, transcripts = await stopped_late(store_url, "/new", "fresh conversation")
    assert len(agent.refused) == 1
    assert "too late" not in str(platform.screen)
    assert "late" not in transcripts


async def test_a_successful_turn_leaves_a_clean_entry(store_url: str) -> None:
    platform = FakePlatform()
    async with World(store_url, Actor(), [platform]) as world:
        await ask(platform, "one", "tool tool")
        entry = await entry_of(world, platform, "one")
        rows = await said_in(world, entry.session_id or "")
    assert [row.role for row in rows] == ["user", "assistant", "tool", "assistant", "tool", "assistant"]
    assert (entry.turn, entry.holder, entry.unclean_ends, entry.tail) == (None, None, 0, False)


async def test_a_later_turn_sees_the_whole_history(store_url: str) -> None:
    platform, agent = FakePlatform(), Actor()
    async with World(store_url, agent, [platform]):
        for text in ("one", "two", "three"):
            await ask(platform, "one", text)
    assert [each.earlier for each in agent.attempts] == [0, 2, 4]
