"""Three unclean ends suspend a conversation, its user gets a notice, the others go on; a crash loop delays resumes."""

from everturn.lifecycle.settings import Settings
from everturn.model import ACTIVE, ResumePending, Suspended
from everturn.testing import FakePlatform, ManualClock, World
from tests.scenes import Actor, answer_to, ask, die, entry_of, restarted, session_of, told, trace_of


async def die_while(world: World, agent: Actor, text: str, times: int) -> list[int]:
    """Crash so often while the turn of this text runs; returns what was suspended by each start."""
    suspended = []
    for _ in range(times):
        await agent.held(text)
        await die(world)
        suspended.append((await world.start()).suspended)
    return suspended


async def test_the_third_unclean_end_suspends_and_the_count_survives_starts(
    store_url: str,
) -> None:
    """Promise 9: one number alone can suspend, in the entry's row; below three it is kept from start to start."""
    platform, agent = FakePlatform(), Actor()
    async with World(store_url, agent, [platform]) as world:
        await ask(platform, "other", "hello")
        message = platform.say("one", "hold")
        counts: list[int] = []
        for _ in range(3):
            assert await die_while(world, agent, "hold", 1) == [int(len(counts) == 2)]
            counts.append((await entry_of(world, platform, "one")).unclean_ends)
        entry = await entry_of(world, platform, "one")
        notice = await told(platform, "one", "suspended")
        trace = await trace_of(world, message)
        other = await entry_of(world, platform, "other")
    assert (counts, type(entry.state)) == ([1, 2, 3], Suspended)
    assert "three times in a row" in notice
    assert "/resume" in notice
    assert (trace["state"], trace["turn"]["state"]) == ("dead", "suspended")
    assert (other.state, other.unclean_ends) == (ACTIVE, 0)


async def test_a_success_between_them_starts_the_count_again(store_url: str) -> None:
    platform, agent = FakePlatform(), Actor()
    async with World(store_url, agent, [platform], settings=Settings(unclean_boots=0)) as world:
        platform.say("one", "hold 1")
        await die_while(world, agent, "hold 1", 2)
        agent.release("hold 1")
        await told(platform, "one", "answer: hold 1")
        platform.say("one", "hold 2")
        assert await die_while(world, agent, "hold 2", 2) == [0, 0]
        agent.release()
        await told(platform, "one", "answer: hold 2")


async def test_resume_returns_to_a_suspended_session_with_history_and_note(store_url: str) -> None:
    """Suspending deletes nothing, and what killed the process three times is not run again by itself."""
    platform, agent = FakePlatform(), Actor()
    async with World(store_url, agent, [platform]) as world:
        await ask(platform, "one", "hello")
        session_id = await session_of(world, platform, "one")
        platform.say("one", "hold")
        await die_while(world, agent, "hold", 3)
        platform.say("one", "/resume")
        await told(platform, "one", "write to continue it")
        back = await entry_of(world, platform, "one")
        await ask(platform, "one", "go on")
    assert (back.session_id, back.unclean_ends, type(back.state)) == (session_id, 0, ResumePending)
    last = agent.attempts[-1]
    assert (last.text, last.session_id, last.earlier) == ("go on", session_id, 3)
    assert "gateway interruption" in last.note
    assert len(agent.given("hold")) == 3


async def test_a_message_to_a_suspended_session_starts_a_fresh_one_and_runs_held_messages(store_url: str) -> None:
    """Suspended wins over everything; the user and the agent get that and why."""
    platform, agent = FakePlatform(), Actor()
    async with World(store_url, agent, [platform]) as world:
        platform.say("one", "hold")
        await agent.held("hold")
        held = platform.say("one", "held")
        await trace_of(world, held)
        await die_while(world, agent, "hold", 3)
        await told(platform, "one", "1 queued message is held until you write")
        old = await session_of(world, platform, "one")
        await restarted(world)
        assert (await trace_of(world, held))["state"] == "queued"
        await ask(platform, "one", "new")
        entry = await entry_of(world, platform, "one")
    assert platform.texts("one")[-2:] == [answer_to("held"), answer_to("new")]
    assert (entry.auto_reset_reason, entry.previous_session_id, entry.state) == ("suspended", old, ACTIVE)
    assert any("because the earlier one was suspended" in text for text in platform.texts("one"))
    assert "suspended" in agent.notes("held")[0]
    assert agent.notes("new") == [""]


async def test_a_message_with_a_clock_set_back_is_not_held_for_ever(store_url: str) -> None:
    platform, agent, clock = FakePlatform(), Actor(), ManualClock()
    async with World(store_url, agent, [platform], clock) as world:
        platform.say("one", "hold")
        await die_while(world, agent, "hold", 3)
        clock.set_back(1000)
        await ask(platform, "one", "new")


async def test_zero_switches_the_breaker_off(store_url: str) -> None:
    platform, agent = FakePlatform(), Actor()
    async with World(store_url, agent, [platform], settings=Settings(stuck_after=0, unclean_boots=0)) as world:
        platform.say("one", "hold")
        assert await die_while(world, agent, "hold", 5) == [0] * 5
        assert (await entry_of(world, platform, "one")).unclean_ends == 5
        agent.release()
        await told(platform, "one", "answer")


async def test_later_crashes_leave_a_suspended_session_unchanged(store_url: str) -> None:
    platform, agent = FakePlatform(), Actor()
    async with World(store_url, agent, [platform]) as world:
        platform.say("one", "hold")
        await die_while(world, agent, "hold", 3)
        before = await entry_of(world, platform, "one")
        await restarted(world)
        assert await entry_of(world, platform, "one") == before
    assert len(platform.texts("one")) == 1


async def test_suspects_run_one_at_a_time_until_they_are_proven(store_url: str) -> None:
    """Blame is fair: the third crash can only fall on the turn that runs unproven."""
    platform, agent, clock = FakePlatform(), Actor(), ManualClock()
    async with World(store_url, agent, [platform], clock) as world:
        for chat in ("one", "two"):
            platform.say(chat, f"hold {chat}")
        for _ in range(2):
            await agent.held("hold one", "hold two")
            await die(world)
            await world.start()
        await agent.until(lambda: len(agent.holding) == 1)
        await ask(platform, "three", "hello")
        assert len(agent.holding) == 1
        clock.advance(60)
        await agent.held("hold one", "hold two")
        agent.release()
        await platform.until(lambda: all(answer_to(f"hold {chat}") in platform.texts(chat) for chat in ("one", "two")))


async def test_a_step_proves_a_suspect(store_url: str) -> None:
    platform, agent = FakePlatform(), Actor()
    async with World(store_url, agent, [platform], ManualClock()) as world:
        texts = [f"step hold {chat}" for chat in ("one", "two", "three")]
        for text in texts:
            platform.say(text, text)
        for _ in range(2):
            await agent.held(*texts)
            await die(world)
            await world.start()
        await agent.held(*texts)
        agent.release()
        await platform.until(lambda: all(platform.texts(text) for text in texts))


async def test_a_message_to_a_suspect_waits_for_its_turn_too(store_url: str) -> None:
    """However started: a suspect's turn runs only while no other suspect is unproven."""
    platform, agent, clock = FakePlatform(), Actor(), ManualClock()
    async with World(store_url, agent, [platform], clock, Settings(resume="on_message")) as world:
        for text in ("hold {}", "hold {}\nagain"):
            for chat in ("one", "two"):
                platform.say(chat, text.format(chat).splitlines()[-1])
            await agent.held(*(text.format(chat) for chat in ("one", "two")))
            await die(world)
            await world.start()
        for chat in ("one", "two"):
            platform.say(chat, "once more")
        await agent.until(lambda: len(agent.holding) == 1)
        await ask(platform, "three", "hello")
        assert len(agent.holding) == 1
        agent.release()
        await platform.until(lambda: bool(platform.texts("one")) and bool(platform.texts("two")))


async def test_after_three_unclean_boots_resumes_are_delayed(store_url: str) -> None:
    """A crash loop: new messages are answered meanwhile, then resumes go one at a time; status says so."""
    platform, agent, clock = FakePlatform(), Actor(), ManualClock()
    async with World(store_url, agent, [platform], clock, Settings(stuck_after=0)) as world:
        texts = [f"hold {number}" for number in range(4)]
        for text in texts:
            platform.say(text, text)
        crash_loops = []
        for _ in range(3):
            await agent.held(*texts)
            await die(world)
            clock.advance(50)
            crash_loops.append((await world.start()).crash_loop)
        assert (crash_loops, world.gateway.turns.lanes.delayed_resumes()) == ([False, False, True], 4)
        await ask(platform, "new", "hello")
        assert agent.holding == set()
        clock.advance(60)
        for place in range(4):
            await agent.until(lambda: len(agent.holding) == 1)
            await ask(platform, "new", f"still here {place}")
            (held,) = agent.holding
            agent.release(held)
            await told(platform, held, "answer")
        assert world.gateway.turns.lanes.delayed_resumes() == 0


async def test_slow_crashes_are_no_crash_loop(store_url: str) -> None:
    platform, agent, clock = FakePlatform(), Actor(), ManualClock()
    async with World(store_url, agent, [platform], clock, Settings(stuck_after=0)) as world:
        platform.say("one", "hold")
        for _ in range(4):
            await agent.held("hold")
            await die(world)
            clock.advance(200)
            assert not (await world.start()).crash_loop
        agent.release()
        await told(platform, "one", "answer")
