"""A planned stop: running chats get a notice, turns and deliveries may finish, what is left is marked with the true reason."""

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from everturn.agent.interface import Answer, TurnContext
from everturn.lifecycle.settings import Settings
from everturn.model import ACTIVE, ResumePending, SessionSource, Suspended
from everturn.outbox.rules.delivery import Surety
from everturn.testing import EditingPlatform, FakePlatform, ManualClock, World
from tests.outbox.test_sender import Slow
from tests.outbox.test_streaming import EAGER as STREAMS
from tests.scenes import (
    EAGER,
    Actor,
    answer_to,
    ask,
    die,
    entry_of,
    happened,
    said_in,
    told,
    trace_of,
    until_ended,
    while_time_passes,
)
from tests.waiting import Changes, within


async def holding(platform: FakePlatform, agent: Actor, *chats: str, text: str = "hold") -> None:
    """Wait until each of these chats has a turn that is held."""
    for chat in chats:
        platform.say(chat, f"{text} {chat}")
    await agent.held(*(f"{text} {chat}" for chat in chats))


async def test_each_chat_with_a_running_turn_gets_one_restart_banner(store_url: str) -> None:
    platform, agent = FakePlatform(), Actor()
    async with World(store_url, agent, [platform], ManualClock(), EAGER) as world:
        await holding(platform, agent, "one", "two")
        await ask(platform, "idle", "hello")
        await world.stop("restart")
        for chat in ("one", "two"):
            (banner,) = platform.texts(chat)
            assert "restarting" in banner
            assert "try to resume" in banner
        assert platform.texts("idle") == [answer_to("hello")]


async def test_two_conversations_in_one_chat_share_a_banner(store_url: str) -> None:
    platform, agent = FakePlatform(), Actor()
    async with World(store_url, agent, [platform], ManualClock(), EAGER) as world:
        for user in ("ann", "bob"):
            platform.say("group", f"hold {user}", user_id=user, chat_type="group")
        await agent.held("hold ann", "hold bob")
        await world.stop("restart")
        assert len(platform.texts("group")) == 1


async def test_a_shutdown_promises_no_resume(store_url: str) -> None:
    platform, agent = FakePlatform(), Actor()
    async with World(store_url, agent, [platform], ManualClock(), EAGER) as world:
        await holding(platform, agent, "one")
        await world.stop("stop")
        (banner,) = platform.texts("one")
        assert "shutting down" in banner
        assert "try to resume" not in banner


@pytest.mark.parametrize(
    ("kind", "reason", "said"),
    [
        ("restart", "restart_timeout", "gateway restart"),
        ("stop", "shutdown_timeout", "gateway shutdown"),
    ],
)
async def test_a_drain_that_times_out_marks_every_running_lane_with_its_reason(
    store_url: str, kind: str, reason: str, said: str
) -> None:
    """Marked with the real reason and counted in one transaction; the next start does not count again."""
    platform, agent = FakePlatform(), Actor()
    async with World(store_url, agent, [platform], ManualClock(), EAGER) as world:
        await holding(platform, agent, "one", "two")
        assert await world.stop(kind) is False
        report = await world.start()
        await agent.held("hold one", "hold two")
        for chat in ("one", "two"):
            entry = await entry_of(world, platform, chat)
            assert entry.state == ResumePending(reason, world.clock.now())
            assert entry.unclean_ends == 1
            assert said in agent.notes(f"hold {chat}")[1]
        assert (report.previous_exit, report.resumable, report.suspended) == (kind, 2, 0)
        agent.release()


async def test_a_clean_drain_marks_nothing_and_interrupts_nothing(store_url: str) -> None:
    platform, agent = FakePlatform(), Actor()
    async with World(store_url, agent, [platform], ManualClock()) as world:
        await holding(platform, agent, "one")
        stopping = asyncio.ensure_future(world.stop("restart"))
        await told(platform, "one", "restarting")
        agent.release()
        assert await stopping is True
        report = await world.start()
        entry = await entry_of(world, platform, "one")
        assert (entry.state, entry.unclean_ends, len(agent.attempts)) == (ACTIVE, 0, 1)
        assert (report.previous_exit, report.resumable) == ("restart", 0)
        assert platform.texts("one")[1:] == [answer_to("hold one")]


@pytest.mark.parametrize("end", ["well", "raise"])
async def test_a_lane_that_ends_during_a_drain_that_times_out_is_not_marked(store_url: str, end: str) -> None:
    """Only what still runs at the time limit is marked, not what ran when the drain began."""
    platform, agent = FakePlatform(), Actor()
    async with World(store_url, agent, [platform], ManualClock()) as world:
        await holding(platform, agent, "late")
        ends = f"hold {end}"
        message = platform.say("ends", ends)
        await agent.held(ends)
        stopping = asyncio.ensure_future(world.stop("restart"))
        await told(platform, "ends", "restarting")
        agent.release(ends)
        await platform.until(lambda: len(platform.texts("ends")) == 2)
        assert await while_time_passes(world, stopping) is False
        await world.start()
        assert isinstance((await entry_of(world, platform, "late")).state, ResumePending)
        ended = await entry_of(world, platform, "ends")
        assert (ended.state, ended.unclean_ends, len(agent.given(ends))) == (ACTIVE, 0, 1)
        assert (await trace_of(world, message))["state"] == ("done" if end == "well" else "dead")
        agent.release()


async def test_a_turn_that_has_not_called_the_model_is_not_marked(store_url: str) -> None:
    platform, agent = FakePlatform(), Actor()
    async with World(store_url, agent, [platform], settings=EAGER) as world:
        await holding(platform, agent, "one", text="nocall hold")
        await world.stop("restart")
        agent.release()
        await world.start()
        entry = await entry_of(world, platform, "one")
        await told(platform, "one", "answer")
        assert (entry.state, entry.unclean_ends) == (ACTIVE, 0)
        assert [(each.number, each.note) for each in agent.attempts] == [(1, ""), (2, "")]


@pytest.mark.parametrize("surety", Surety)
async def test_a_drain_waits_for_the_answer_that_is_being_sent(store_url: str, surety: Surety) -> None:
    platform = Slow("one", surety)
    async with World(store_url, Actor(), [platform], ManualClock()) as world:
        platform.say("one", "hello")
        await happened(platform.asked)
        stopping = asyncio.ensure_future(world.stop("restart"))
        await until_ended(world, "m1", "done")
        assert not stopping.done()
        platform.go_on.set()
        assert await stopping is True
        assert platform.texts("one") == [answer_to("hello")]


@pytest.mark.parametrize("surety", [Surety.KEYED, Surety.READ_BACK])
async def test_an_answer_that_could_not_be_sent_before_the_end_is_sent_by_the_next_life(
    store_url: str, surety: Surety
) -> None:
    """Promise 6: a planned end must not leave a reply in `sending` without a sender."""
    platform = Slow("one", surety)
    async with World(store_url, Actor(), [platform], ManualClock()) as world:
        platform.say("one", "hello")
        await happened(platform.asked)
        assert await while_time_passes(world, world.stop("restart")) is False
        platform.go_on.set()
        await world.start()
        await told(platform, "one", "answer: hello")
        assert platform.texts("one") == [answer_to("hello")]


async def test_three_deployments_during_a_long_task_are_not_a_loop_ten_are(store_url: str) -> None:
    """A planned drain does not count against a turn that took a step since its last interruption, up to ten times."""
    platform, agent = FakePlatform(), Actor()
    async with World(store_url, agent, [platform], settings=EAGER) as world:
        counts = []
        await holding(platform, agent, "one", text="step hold")
        for _ in range(12):
            await world.stop("restart")
            await world.start()
            entry = await entry_of(world, platform, "one")
            counts.append(entry.unclean_ends)
            if not isinstance(entry.state, Suspended):
                await agent.held("step hold one")
        assert counts == [0] * 9 + [1, 2, 3]
        await told(platform, "one", "interrupted three times in a row")


async def test_three_drains_without_a_step_between_them_suspend(store_url: str) -> None:
    platform, agent = FakePlatform(), Actor()
    async with World(store_url, agent, [platform], settings=EAGER) as world:
        await holding(platform, agent, "one")
        for _ in range(2):
            await world.stop("restart")
            await world.start()
            await agent.held("hold one")
        await world.stop("restart")
        await world.start()
        assert isinstance((await entry_of(world, platform, "one")).state, Suspended)
        await told(platform, "one", "/resume")


async def test_messages_accepted_during_a_drain_run_after_the_restart_once_and_in_order(store_url: str) -> None:
    platform, agent = FakePlatform(), Actor()
    async with World(store_url, agent, [platform], ManualClock()) as world:
        await holding(platform, agent, "one")
        stopping = asyncio.ensure_future(world.stop("restart"))
        await told(platform, "one", "restarting")
        for chat, text in (("one", "second"), ("one", "third"), ("two", "hello")):
            platform.say(chat, text)
        await platform.until(lambda: platform.acknowledged == 4)
        await while_time_passes(world, stopping)
        assert [each.text for each in agent.attempts] == ["hold one"]
        agent.release()
        await world.start()
        await platform.until(lambda: len(platform.texts("one")) == 4 and bool(platform.texts("two")))
        assert platform.texts("one")[1:] == [answer_to(text) for text in ("hold one", "second", "third")]
        assert platform.texts("two") == [answer_to("hello")]


async def test_a_turn_cut_off_by_a_drain_goes_on_from_its_last_step(store_url: str) -> None:
    platform, agent = FakePlatform(), Actor()
    async with World(store_url, agent, [platform], settings=EAGER) as world:
        await holding(platform, agent, "one", text="tool hold tool")
        await world.stop("restart")
        agent.release()
        await world.start()
        await told(platform, "one", "answer")
        entry = await entry_of(world, platform, "one")
        rows = await said_in(world, entry.session_id or "")
        assert [row.role for row in rows] == ["user", "assistant", "tool", "assistant", "tool", "assistant"]
        assert len(agent.effects) == 2
        assert (entry.state, entry.unclean_ends) == (ACTIVE, 0)


async def test_a_kill_in_the_middle_of_a_drain_is_read_as_that_drain(store_url: str) -> None:
    """Nothing had been marked yet: the next process marks with the reason that the drain had recorded."""
    platform, agent = FakePlatform(), Actor()
    async with World(store_url, agent, [platform], ManualClock(), Settings(drain_s=100)) as world:
        await holding(platform, agent, "one")
        stopping = asyncio.ensure_future(world.stop("restart"))
        await told(platform, "one", "restarting")
        stopping.cancel()
        await asyncio.wait({stopping})
        await die(world)
        report = await world.start()
        await agent.until(lambda: len(agent.attempts) == 2)
        agent.release()
        await told(platform, "one", "answer")
        assert report.previous_exit == "unclean"
        assert "gateway restart" in agent.attempts[1].note


class Deaf:
    """An agent that ignores its end."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.let_go = asyncio.Event()

    async def run(self, turn: TurnContext) -> Answer:
        """Wait, whoever cancels it."""
        await turn.calling()
        self.begun.set()
        while not self.let_go.is_set():
            with suppress(asyncio.CancelledError):
                await self.let_go.wait()
        return Answer("late")


async def test_an_agent_that_ignores_its_end_does_not_keep_the_gateway_alive(store_url: str) -> None:
    platform, agent = FakePlatform(), Deaf()
    async with World(store_url, agent, [platform], ManualClock(), EAGER) as world:
        platform.say("one", "hello")
        await happened(agent.begun)
        await while_time_passes(world, world.stop("restart"))
        agent.let_go.set()
        await world.start()
        await told(platform, "one", "late")
    assert len(platform.texts("one")) == 2


class Stuck(EditingPlatform):
    """A platform that never answers an edit of a message."""

    def __init__(self) -> None:
        super().__init__()
        self.stuck = 0
        self.changes = Changes(lambda: self.stuck)

    async def edit(self, to: SessionSource, message_id: str, text: str) -> None:  # noqa: ARG002  a platform's words
        """For ever."""
        self.stuck += 1
        self.changes.changed()
        await asyncio.Event().wait()


class Streaming:
    """An agent that shows a first word, then a second, and never ends."""

    def __init__(self) -> None:
        self.more = asyncio.Event()

    async def run(self, turn: TurnContext) -> Answer:
        """Until it is cancelled."""
        await turn.calling()
        turn.stream("one two")
        await self.more.wait()
        turn.stream("one two three four")
        await asyncio.Event().wait()
        return Answer("")


@pytest.mark.prove
async def test_many_turns_are_cut_off_at_once(tmp_path: Path) -> None:
    """One after the other, each may need seconds until its last edit times out."""
    platform, agent, chats = Stuck(), Streaming(), [f"chat {number}" for number in range(10)]
    async with World(f"sqlite:///{tmp_path / 'everturn.db'}", agent, [platform], settings=STREAMS) as world:
        for chat in chats:
            platform.say(chat, "hello")
        await platform.until(lambda: all(platform.texts(chat) for chat in chats))
        agent.more.set()
        await platform.changes.until(lambda: platform.stuck >= len(chats))
        async with within():
            assert await world.stop("restart") is False
        report = await world.start()
        assert (report.previous_exit, report.resumable) == ("restart", len(chats))
        await world.abandon()
