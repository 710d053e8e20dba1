"""Conversations that are reset automatically: by policy, with a notice of the true reason, and by the user's clock alone."""

import pytest

from everturn.commands.rows.sessions import earlier_sessions
from everturn.lifecycle.settings import Policies, Settings
from everturn.model import ACTIVE, ResumePending
from everturn.sessions.rules.reset_policy import ResetPolicy
from everturn.testing import FakePlatform, ManualClock, World, key_of
from everturn.turns.rules.turns import TurnTimeouts
from tests.scenes import EAGER, Actor, ask, die, entry_of, restarted, told, trace_of, until_read

HOUR = 3600.0
ENDLESS = TurnTimeouts(inactive_s=0, warn_s=0, working_s=0, stall_s=0)
IDLE = ResetPolicy("idle", idle_minutes=60)
DAILY = ResetPolicy("daily", at_hour=4, timezone="Europe/Berlin")
MORNING = 1_800_000_000.0  # 2027-01-15, 9 o'clock in Berlin


def settings(policy: ResetPolicy, patience: TurnTimeouts = TurnTimeouts()) -> Settings:  # noqa: B008  frozen
    return Settings(policies=Policies(default=policy), patience=patience)


@pytest.mark.parametrize(
    ("policy", "hours", "reason", "said"),
    [
        (IDLE, 1.1, "idle", "inactive"),
        (DAILY, 20, "daily", "daily schedule"),
        (ResetPolicy("both", idle_minutes=60), 30, "idle", "inactive"),
    ],
)
async def test_an_expired_session_ends_by_itself_and_the_next_message_gets_a_notice(
    store_url: str, policy: ResetPolicy, hours: float, reason: str, said: str
) -> None:
    """The notice to the user and the note to the agent are really given, with the true reason."""
    platform, agent, clock = FakePlatform(), Actor(), ManualClock(MORNING)
    async with World(store_url, agent, [platform], clock, settings(policy)) as world:
        await ask(platform, "one", "hello")
        old = await entry_of(world, platform, "one")
        clock.advance(hours * HOUR)
        await until_read(lambda: entry_of(world, platform, "one"), lambda entry: entry.expired == reason)
        (ended,) = await world.store.read(earlier_sessions, old.key, None)
        message = await ask(platform, "one", "again")
        new = await entry_of(world, platform, "one")
        trace = await trace_of(world, message)
    assert (ended.session_id, ended.end_reason) == (old.session_id, reason)
    assert (new.auto_reset_reason, new.previous_session_id) == (reason, old.session_id)
    assert "fresh conversation" in platform.texts("one")[1]
    assert said in agent.notes("again")[0]
    assert str(old.session_id) in agent.notes("again")[0]
    assert (agent.attempts[1].earlier, trace["turn"]["note"]) == (0, f"reset:{reason}")


async def test_the_watcher_ends_each_expired_session_once(store_url: str) -> None:
    platform, clock = FakePlatform(), ManualClock(MORNING)
    async with World(store_url, Actor(), [platform], clock, settings(IDLE)) as world:
        for chat in ("one", "two", "three"):
            await ask(platform, chat, "hello")
        assert await world.gateway.upkeep.expire_once() == 0
        await world.stop()
        clock.advance(2 * HOUR)
        await world.start()
        assert [await world.gateway.upkeep.expire_once() for _ in range(2)] == [3, 0]
    assert len(platform.screen) == 3


async def test_without_a_policy_nothing_expires(store_url: str) -> None:
    platform, agent, clock = FakePlatform(), Actor(), ManualClock(MORNING)
    async with World(store_url, agent, [platform], clock) as world:
        await ask(platform, "one", "hello")
        clock.advance(1000 * HOUR)
        assert await world.gateway.upkeep.expire_once() == 0
        await ask(platform, "one", "again")
    assert len({each.session_id for each in agent.attempts}) == 1


async def test_the_reset_note_is_given_once(store_url: str) -> None:
    platform, agent, clock = FakePlatform(), Actor(), ManualClock(MORNING)
    async with World(store_url, agent, [platform], clock, settings(IDLE)):
        await ask(platform, "one", "hello")
        clock.advance(2 * HOUR)
        for text in ("again", "more"):
            await ask(platform, "one", text)
    assert [bool(each.note) for each in agent.attempts] == [False, True, False]
    assert len(platform.texts("one")) == 4


async def test_who_wants_no_notice_gets_none(store_url: str) -> None:
    platform, agent, clock = FakePlatform(), Actor(), ManualClock(MORNING)
    quiet = settings(ResetPolicy("idle", idle_minutes=60, notify=False))
    async with World(store_url, agent, [platform], clock, quiet):
        await ask(platform, "one", "hello")
        clock.advance(2 * HOUR)
        await ask(platform, "one", "again")
    assert len(platform.texts("one")) == 2
    assert "inactive" in agent.notes("again")[0]


async def test_platform_and_chat_type_have_their_own_policy(store_url: str) -> None:
    policies = Policies(by_platform={"other": IDLE}, by_chat_type={"group": IDLE})
    fake, other, clock = FakePlatform(), FakePlatform("other"), ManualClock(MORNING)
    async with World(store_url, Actor(), [fake, other], clock, Settings(policies=policies)) as world:
        await ask(fake, "one", "hello")
        await ask(other, "one", "hello")
        fake.say("group", "hello", chat_type="group")
        await told(fake, "group", "answer")
        await world.stop()
        clock.advance(2 * HOUR)
        await world.start()
        assert await world.gateway.upkeep.expire_once() == 2
        assert (await entry_of(world, fake, "one")).expired is None


async def test_a_session_with_work_is_not_expired(store_url: str) -> None:
    """A turn begun before a boundary finishes in its session; policy applies to the next message."""
    platform, agent, clock = FakePlatform(), Actor(), ManualClock(MORNING)
    async with World(store_url, agent, [platform], clock, settings(IDLE, ENDLESS)) as world:
        platform.say("one", "hold")
        await agent.held("hold")
        clock.advance(2 * HOUR)
        assert await world.gateway.upkeep.expire_once() == 0
        agent.release()
        await told(platform, "one", "answer: hold")
        entry = await entry_of(world, platform, "one")
    assert (entry.state, entry.auto_reset_reason) == (ACTIVE, None)


async def test_an_interrupted_session_is_left_to_its_mark(store_url: str) -> None:
    platform, agent, clock = FakePlatform(), Actor(), ManualClock(MORNING)
    async with World(store_url, agent, [platform], clock, settings(IDLE)) as world:
        platform.say("one", "hold")
        await agent.held("hold")
        await die(world)
        clock.advance(2 * HOUR)
        await world.start()
        assert await world.gateway.upkeep.expire_once() == 0
        entry = await entry_of(world, platform, "one")
        await ask(platform, "one", "again")
        after = await entry_of(world, platform, "one")
    assert isinstance(entry.state, ResumePending)
    assert after.auto_reset_reason == "idle"  # the policy comes before the age of the mark: promise 10


async def test_bookkeeping_never_moves_the_users_clock(store_url: str) -> None:
    """Resumes, marks, notices, commands and looks are not the user's activity."""
    platform, agent, clock = FakePlatform(), Actor(), ManualClock(MORNING)
    async with World(store_url, agent, [platform], clock, EAGER) as world:
        platform.say("one", "hold")
        await agent.held("hold")
        clock.advance(100)
        await world.stop("restart")
        clock.advance(100)
        await world.start()
        await agent.held("hold")
        await restarted(world)
        platform.say("one", "/status")
        await told(platform, "one", "Conversation")
        agent.release()
        await told(platform, "one", "answer")
        clock.advance(100)
        await world.gateway.upkeep.expire_once()
        assert (await entry_of(world, platform, "one")).active_at == MORNING


@pytest.mark.parametrize("policy", [IDLE, DAILY, ResetPolicy()])
async def test_a_clock_set_back_causes_no_expiry_no_crash_loop_and_no_reordering(
    store_url: str, policy: ResetPolicy
) -> None:
    """No false expiry, no false crash loop, and messages keep their order across the restart."""
    platform, agent, clock = FakePlatform(), Actor(), ManualClock(MORNING)
    async with World(store_url, agent, [platform], clock, settings(policy)) as world:
        await ask(platform, "one", "hello")
        for text in ("hold", "before"):
            platform.say("one", text)
        await agent.held("hold")
        await platform.until(lambda: platform.acknowledged == 3)
        await die(world)
        clock.set_back(30 * HOUR)
        agent.release()
        report = await world.start()
        await ask(platform, "one", "after")
        assert await world.gateway.upkeep.expire_once() == 0
        entry = await entry_of(world, platform, "one")
    assert not report.crash_loop
    assert [text.removeprefix("answer: ") for text in platform.texts("one")] == ["hello", "hold", "before", "after"]
    assert (entry.auto_reset_reason, len({each.session_id for each in agent.attempts})) == (None, 1)


async def test_expired_conversations_can_be_resumed(store_url: str) -> None:
    platform, agent, clock = FakePlatform(), Actor(), ManualClock(MORNING)
    async with World(store_url, agent, [platform], clock, settings(IDLE)) as world:
        await ask(platform, "one", "hello")
        clock.advance(2 * HOUR)
        await ask(platform, "one", "again")
        platform.say("one", "/resume 1")
        await told(platform, "one", "with its whole history")
        await ask(platform, "one", "more")
        assert len(await world.store.read(earlier_sessions, key_of(platform, "one"), None)) == 2
    assert (agent.attempts[2].session_id, agent.attempts[2].earlier) == (agent.attempts[0].session_id, 2)
