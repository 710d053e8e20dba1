"""After a crash: running turns resume from their last step, queued ones start, too old ones get a notice, nothing else changes."""

import pytest
from msgspec import structs
from structlog.testing import capture_logs

from everturn.ids import Ids
from everturn.inbox.rows.inbox import Arrival, accept
from everturn.inbox.rules import Arriving
from everturn.lifecycle.settings import Policies, Settings
from everturn.model import ACTIVE, ResumePending, SessionSource
from everturn.sessions.rows.entries import write_source
from everturn.sessions.rules.reset_policy import ResetPolicy
from everturn.store.open import open_store
from everturn.testing import FakePlatform, ManualClock, World, key_of
from tests.scenes import (
    Actor,
    answer_to,
    ask,
    die,
    entry_of,
    restarted,
    said_in,
    swept,
    told,
    trace_of,
    until_ended,
    until_read,
    while_time_passes,
)

ON_MESSAGE = Settings(resume="on_message")
DAYS = Settings(policies=Policies(default=ResetPolicy("idle", idle_minutes=2880)))


async def cut_off(world: World, platform: FakePlatform, agent: Actor, text: str, chat: str = "one") -> str:
    """A turn that was running when its process died; returns the message's id."""
    message = platform.say(chat, text)
    await agent.held(text)
    await die(world)
    return message


async def test_a_turn_of_a_dead_process_resumes_from_its_last_step(store_url: str) -> None:
    """Promise 4: the same turn, its next attempt, with a note; what was committed is not done again."""
    platform, agent = FakePlatform(), Actor()
    async with World(store_url, agent, [platform]) as world:
        message = await cut_off(world, platform, agent, "tool hold tool")
        agent.release()
        report = await world.start()
        await told(platform, "one", "answer")
        trace = await trace_of(world, message)
        rows = await said_in(world, trace["turn"]["session_id"])
    assert (report.previous_exit, report.continued, report.resumable, report.suspended) == ("unclean", 1, 1, 0)
    assert [each.number for each in agent.attempts] == [1, 2]
    assert "gateway interruption" in agent.attempts[1].note
    assert len({each.turn for each in agent.attempts}) == len({each.session_id for each in agent.attempts}) == 1
    assert len(agent.effects) == len(set(agent.effects)) == 2
    assert [row.role for row in rows] == ["user", "assistant", "tool", "assistant", "tool", "assistant"]


async def test_an_interrupted_turn_is_marked_and_counted_until_it_succeeds(store_url: str) -> None:
    platform, agent = FakePlatform(), Actor()
    async with World(store_url, agent, [platform], ManualClock()) as world:
        await cut_off(world, platform, agent, "hold")
        await world.start()
        await agent.held("hold")
        marked = await entry_of(world, platform, "one")
        agent.release()
        await told(platform, "one", "answer")
        cleared = await entry_of(world, platform, "one")
    assert (marked.state, marked.unclean_ends) == (ResumePending("restart_interrupted", world.clock.now()), 1)
    assert (cleared.state, cleared.unclean_ends) == (ACTIVE, 0)
    assert cleared.session_id == marked.session_id


@pytest.mark.parametrize("end", ["raise", "empty"])
async def test_only_a_successful_turn_clears_mark_and_count(store_url: str, end: str) -> None:
    """A failed or empty turn keeps both, and the next message still carries the note."""
    platform, agent = FakePlatform(), Actor()
    async with World(store_url, agent, [platform]) as world:
        message = await cut_off(world, platform, agent, f"hold {end}")
        agent.release()
        await world.start()
        await until_ended(world, message, "dead")
        entry = await entry_of(world, platform, "one")
        await ask(platform, "one", "next")
        cleared = await entry_of(world, platform, "one")
    assert (isinstance(entry.state, ResumePending), entry.unclean_ends) == (True, 1)
    assert "gateway interruption" in agent.notes("next")[0]
    assert (cleared.state, cleared.unclean_ends) == (ACTIVE, 0)


async def test_a_turn_without_a_model_call_simply_begins_again(store_url: str) -> None:
    """No mark, no count, no note."""
    platform, agent = FakePlatform(), Actor()
    async with World(store_url, agent, [platform]) as world:
        await cut_off(world, platform, agent, "nocall hold")
        await world.start()
        await agent.held("nocall hold")
        entry = await entry_of(world, platform, "one")
        agent.release()
        await told(platform, "one", "answer")
    assert (entry.state, entry.unclean_ends) == (ACTIVE, 0)
    assert [each.note for each in agent.attempts] == ["", ""]
    assert len(platform.texts("one")) == 1


async def test_a_step_is_as_good_as_a_model_call(store_url: str) -> None:
    """An agent that never marks its model calls is blamed and gets the note all the same."""
    platform, agent = FakePlatform(), Actor()
    async with World(store_url, agent, [platform]) as world:
        await cut_off(world, platform, agent, "nocall tool hold")
        await world.start()
        await agent.held("nocall tool hold")
        assert (await entry_of(world, platform, "one")).unclean_ends == 1
        agent.release()
        await told(platform, "one", "answer")
    assert "gateway interruption" in agent.attempts[1].note


async def test_an_idle_session_continues_without_mark_or_note(store_url: str) -> None:
    """After a kill it keeps its id and whole history, is active, gets no note and is never suspended."""
    platform, agent = FakePlatform(), Actor()
    async with World(store_url, agent, [platform]) as world:
        await ask(platform, "one", "hello")
        before = await entry_of(world, platform, "one")
        for _ in range(4):
            await restarted(world)
        after = await entry_of(world, platform, "one")
        await ask(platform, "one", "again")
    assert (after.state, after.unclean_ends, after.session_id) == (ACTIVE, 0, before.session_id)
    assert (agent.attempts[1].note, agent.attempts[1].earlier) == ("", 2)
    assert agent.attempts[1].session_id == before.session_id


async def test_per_key_the_resume_precedes_the_waiting_messages(store_url: str) -> None:
    """Promise 3."""
    platform, agent = FakePlatform(), Actor()
    async with World(store_url, agent, [platform]) as world:
        platform.say("one", "hold")
        for text in ("second", "third", "fourth"):
            platform.say("one", text)
        await agent.held("hold")
        await platform.until(lambda: platform.acknowledged == 4)
        await die(world)
        agent.release()
        await world.start()
        await platform.until(lambda: len(platform.texts("one")) == 4)
    assert platform.texts("one") == [answer_to(text) for text in ("hold", "second", "third", "fourth")]


async def test_a_turn_that_is_too_old_to_resume_gets_one_notice(store_url: str) -> None:
    """Age stops only the automatic resume."""
    platform, agent = FakePlatform(), Actor()
    async with World(store_url, agent, [platform], ManualClock()) as world:
        await cut_off(world, platform, agent, "hold")
        world.clock.advance(3700)  # type: ignore[attr-defined]
        assert (await world.start()).resumable == 0
        await told(platform, "one", "write to continue it")
        await restarted(world)
        await ask(platform, "two", "hello")
    assert len(platform.texts("one")) == 1
    assert len(agent.given("hold")) == 1


async def test_a_message_that_waits_behind_an_old_turn_continues_it_without_a_notice(store_url: str) -> None:
    """Promise 13: nobody gets a notice that a task was not continued when it is."""
    platform, agent = FakePlatform(), Actor()
    async with World(store_url, agent, [platform], ManualClock()) as world:
        for text in ("hold", "queued"):
            platform.say("one", text)
        await agent.held("hold")
        await platform.until(lambda: platform.acknowledged == 2)
        await die(world)
        world.clock.advance(3700)  # type: ignore[attr-defined]
        agent.release()
        await world.start()
        await told(platform, "one", "answer")
    assert platform.texts("one") == [answer_to("hold\nqueued")]


async def test_without_a_reset_policy_the_next_message_continues_an_old_turn(store_url: str) -> None:
    """It keeps its id and its history, and carries the note whatever the age; reading has cleared nothing."""
    platform, agent = FakePlatform(), Actor()
    async with World(store_url, agent, [platform], ManualClock()) as world:
        message = await cut_off(world, platform, agent, "tool hold")
        world.clock.advance(100_000)  # type: ignore[attr-defined]
        await world.start()
        pending = await entry_of(world, platform, "one")
        agent.release()
        platform.say("one", "and now?")
        await told(platform, "one", "and now?")
        trace = await trace_of(world, message)
        rows = await said_in(world, pending.session_id or "")
    last = agent.attempts[-1]
    assert isinstance(pending.state, ResumePending)
    assert (pending.auto_reset_reason, last.session_id) == (None, pending.session_id)
    assert (last.text, last.number) == ("tool hold\nand now?", 2)
    assert "gateway interruption" in last.note
    assert (trace["state"], trace["turn"]["state"]) == ("done", "answered")
    assert [row.content for row in rows if row.role == "user"] == ["tool hold", "and now?"]


async def test_with_a_timed_policy_an_old_mark_resets_the_session(store_url: str) -> None:
    """The reason is resume_pending_expired, and both the user and the agent get it."""
    platform, agent = FakePlatform(), Actor()
    async with World(store_url, agent, [platform], ManualClock(), DAYS) as world:
        message = await cut_off(world, platform, agent, "hold")
        world.clock.advance(3700)  # type: ignore[attr-defined]
        await world.start()
        old = await entry_of(world, platform, "one")
        await ask(platform, "one", "and now?")
        new = await entry_of(world, platform, "one")
        trace = await trace_of(world, message)
    assert (new.auto_reset_reason, new.previous_session_id) == ("resume_pending_expired", old.session_id)
    assert any("interrupted too long ago to be resumed" in text for text in platform.texts("one"))
    assert "too long ago to be resumed" in agent.notes("and now?")[0]
    assert (trace["state"], trace["why"]) == ("expired", "resume_pending_expired")


async def test_a_timed_policy_keeps_a_fresh_mark(store_url: str) -> None:
    platform, agent = FakePlatform(), Actor()
    async with World(store_url, agent, [platform], ManualClock(), DAYS) as world:
        await cut_off(world, platform, agent, "hold")
        world.clock.advance(3500)  # type: ignore[attr-defined]
        agent.release()
        assert (await world.start()).resumable == 1
        await told(platform, "one", "answer")
        assert (await entry_of(world, platform, "one")).auto_reset_reason is None


async def test_on_message_the_next_message_joins_the_interrupted_turn(store_url: str) -> None:
    platform, agent = FakePlatform(), Actor()
    async with World(store_url, agent, [platform], settings=ON_MESSAGE) as world:
        first = await cut_off(world, platform, agent, "hold")
        agent.release()
        assert (await world.start()).resumable == 0
        second = platform.say("one", "please")
        await told(platform, "one", "answer")
        traces = [await trace_of(world, each) for each in (first, second)]
    assert [each.text for each in agent.attempts] == ["hold", "hold\nplease"]
    assert "gateway interruption" in agent.attempts[1].note
    assert [trace["state"] for trace in traces] == ["done", "done"]
    assert len({trace["turn"]["id"] for trace in traces}) == 1
    assert platform.texts("one") == [answer_to("hold\nplease")]


async def test_a_message_that_woke_an_old_turn_is_not_lost_with_the_next_death(store_url: str) -> None:
    """It had joined, the model was not called yet: the turn begins again without waiting for a third message."""
    platform, agent = FakePlatform(), Actor()
    async with World(store_url, agent, [platform], settings=ON_MESSAGE) as world:
        await cut_off(world, platform, agent, "hold")
        platform.say("one", "nocall hold")
        await world.start()
        await agent.held("hold\nnocall hold")
        await die(world)
        agent.release()
        await world.start()
        await told(platform, "one", "answer")
    assert platform.texts("one") == [answer_to("hold\nnocall hold")]


async def test_two_recoveries_at_once_do_nothing_twice(store_url: str) -> None:
    platform, agent = FakePlatform(), Actor()
    async with World(store_url, agent, [platform]) as world:
        await cut_off(world, platform, agent, "hold")
        await world.start()
        await world.gateway.recovery.sweep()
        await agent.held("hold")
        await world.gateway.recovery.sweep()
        entry = await entry_of(world, platform, "one")
        agent.release()
        await told(platform, "one", "answer")
    assert (entry.unclean_ends, len(agent.attempts)) == (1, 2)


async def test_a_replica_takes_over_from_a_dead_one(database_url: str) -> None:
    platform, agent = FakePlatform(), Actor()
    clock = ManualClock()
    dying = World(database_url, agent, [platform], clock)
    only_swept_by_us = Settings(burst_s=0.0, heartbeat_s=1e6)
    other = World(database_url, agent, [FakePlatform()], clock, only_swept_by_us)
    async with dying, other:
        platform.say("one", "tool hold")
        await agent.held("tool hold")
        other.platforms = {"fake": platform}
        await swept(other)
        assert len(agent.attempts) == 1
        await dying.abandon()
        await until_read(other.store.alive, lambda alive: len(alive) == 1)
        await swept(other)
        await agent.until(lambda: len(agent.attempts) == 2)
        agent.release()
        entry = await until_read(lambda: entry_of(other, platform, "one"), lambda entry: entry.turn is None)
    assert (entry.state, len(agent.effects)) == (ACTIVE, 1)


async def test_a_failing_resume_does_not_block_other_conversations(store_url: str) -> None:
    platform, agent = FakePlatform(), Actor()
    async with World(store_url, agent, [platform]) as world:
        for chat in ("bad", "good"):
            platform.say(chat, "hold raise" if chat == "bad" else "hold")
        await agent.held("hold raise", "hold")
        await die(world)
        agent.release()
        await world.start()
        await told(platform, "bad", "could not answer")
        await told(platform, "good", "answer")
        await ask(platform, "new", "hello")


async def test_a_resume_never_adds_a_blank_message(store_url: str) -> None:
    platform, agent = FakePlatform(), Actor()
    async with World(store_url, agent, [platform]) as world:
        await cut_off(world, platform, agent, "hold")
        agent.release()
        await world.start()
        await told(platform, "one", "answer")
        rows = await said_in(world, agent.attempts[0].session_id)
    assert [(row.role, row.content) for row in rows] == [("user", "hold"), ("assistant", answer_to("hold"))]


async def test_queued_messages_are_found_by_the_next_process(store_url: str) -> None:
    """Promise 1: an accepted message is saved, also when no turn had begun."""
    platform, agent = FakePlatform(), Actor()
    store = await open_store(store_url)
    for number in range(3):
        await store.run(accept, arrival(f"m{number}", f"message {number}"), 10, None)
    await store.close()
    async with World(store_url, agent, [platform]):
        await platform.until(lambda: len(platform.texts("one")) == 3)
    assert platform.texts("one") == [answer_to(f"message {number}") for number in range(3)]


IDS = Ids(ManualClock(), 1)


def arrival(number: str, text: str, chat: str = "one") -> Arrival:
    """A message or a command as it is handed to the store."""
    source = SessionSource(platform="fake", chat_id=chat, user_id="ann", message_id=number)
    return Arrival(
        id=IDS.next(),
        ext_id=f"{number}@{chat}",
        source=source,
        raw_source=write_source(source).decode(),
        key=key_of(FakePlatform(), chat),
        kind="command" if text.startswith("/") else "message",
        text=text,
        at=ManualClock().now(),
        by_event=False,
    )


def held(number: str, text: str, chat: str) -> Arrival:
    """A message of the backlog, from while nobody read the platform."""
    return structs.replace(arrival(number, text, chat), arriving=Arriving.HOLD)


async def test_a_replica_applies_the_commands_and_answers_the_backlog_of_a_dead_one(database_url: str) -> None:
    """Otherwise nobody would: each would block its conversation until the next start."""
    platform, agent, clock = FakePlatform(), Actor(), ManualClock()
    dying = World(database_url, agent, [FakePlatform()], clock)
    other = World(database_url, agent, [platform], clock)
    async with dying, other:
        for each in (arrival("c1", "/status"), arrival("m1", "behind it"), held("m2", "while away", "two")):
            await dying.store.run(accept, each, 10, None)
        await dying.abandon()
        await until_read(other.store.alive, lambda alive: len(alive) == 1)
        await swept(other)
        await while_time_passes(other, told(platform, "one", answer_to("behind it")))
        await while_time_passes(other, told(platform, "two", answer_to("while away")))
    assert len(platform.texts("one")) == 2


@pytest.mark.parametrize("command", ["/stop", "/new"])
async def test_a_command_accepted_before_a_crash_is_applied_once_before_any_resume(
    store_url: str, command: str
) -> None:
    """The turn it ends is not resumed, and the command is answered once."""
    platform, agent = FakePlatform(), Actor()
    async with World(store_url, agent, [platform]) as world:
        message = await cut_off(world, platform, agent, "hold")
        store = await open_store(store_url)
        await store.run(accept, arrival("command", command), 10, None)
        await store.close()
        await world.start()
        await platform.until(lambda: len(platform.texts("one")) == 1)
        await restarted(world)
        await ask(platform, "one", "next")
        trace = await trace_of(world, message)
    assert (trace["state"], trace["why"], trace["turn"]["state"]) == ("withdrawn", command, "stopped")
    assert [each.text for each in agent.attempts] == ["hold", "next"]
    assert len(platform.texts("one")) == 2


async def test_a_command_that_ends_nothing_lets_the_turn_be_resumed_once(store_url: str) -> None:
    platform, agent = FakePlatform(), Actor()
    async with World(store_url, agent, [platform]) as world:
        await cut_off(world, platform, agent, "tool hold tool")
        store = await open_store(store_url)
        await store.run(accept, arrival("command", "/status"), 10, None)
        await store.close()
        agent.release()
        await world.start()
        await platform.until(lambda: len(platform.texts("one")) == 2)
    assert agent.overlaps == []
    assert len(agent.attempts) == len(agent.effects) == 2


async def test_each_start_logs_one_line_about_the_previous_exit(store_url: str) -> None:
    platform, agent = FakePlatform(), Actor()
    async with World(store_url, agent, [platform]) as world:
        await cut_off(world, platform, agent, "hold")
        agent.release()
        with capture_logs() as logs:
            await world.start()
        await told(platform, "one", "answer")
    (line,) = [each for each in logs if each["event"] == "recovered"]
    assert {name: line[name] for name in ("previous_exit", "resumable", "suspended", "continued", "crash_loop")} == {
        "previous_exit": "unclean",
        "resumable": 1,
        "suspended": 0,
        "continued": 1,
        "crash_loop": False,
    }
