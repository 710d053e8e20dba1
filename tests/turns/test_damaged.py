"""Damaged rows: the gateway starts, every other session goes on, the log names the row, and recovery does not find it again."""

import pytest
from structlog.testing import capture_logs

from everturn.lifecycle.rows import find_others
from everturn.lifecycle.settings import Settings
from everturn.operator.rows.overview import messages
from everturn.sessions.rules import notices
from everturn.testing import FakePlatform, ManualClock, World, key_of
from tests.contracts.store import select
from tests.scenes import EAGER, IDLE_HOUR, Actor, answer_to, ask, die, entry_of, told, while_time_passes

# What a streaming message of the turn would be, with parts that no parser takes.
BROKEN_JSON = (
    "INSERT INTO outbox (id, key, turn, kind, platform, source, text, state, due_at, created_at, parts)"
    " SELECT id, key, id, 'reply', 'fake', '{}', '', 'open', 1, 1, '{' FROM turn WHERE id=(SELECT min(id) FROM turn)"
)
ENDED_STATE = "UPDATE turn SET state='answered' WHERE id=(SELECT min(id) FROM turn)"  # and no end
UNKNOWN_STATE = "UPDATE turn SET state='odd' WHERE id=(SELECT min(id) FROM turn)"
FORGOTTEN = "UPDATE entry SET turn=NULL, holder=NULL WHERE turn=(SELECT min(id) FROM turn)"
UNKNOWN_VERDICT = "UPDATE turn SET verdict='odd' WHERE id=(SELECT min(id) FROM turn)"


async def hold_two(platform: FakePlatform, agent: Actor) -> None:
    """The turns of two chats run, that of the first is the older one."""
    for chat in ("one", "two"):
        platform.say(chat, f"tool hold {chat}")
        await agent.held(f"tool hold {chat}")


async def two_cut_off(world: World, platform: FakePlatform, agent: Actor, damage: str) -> None:
    """The turns of two chats are cut off, and a row of the first is damaged."""
    await hold_two(platform, agent)
    await world.store.run(select, damage)
    await die(world)
    agent.release()


@pytest.mark.parametrize("damage", [UNKNOWN_STATE, ENDED_STATE, BROKEN_JSON], ids=["state", "ended", "json"])
async def test_a_turn_that_cannot_be_read_is_suspended_alone(store_url: str, damage: str) -> None:
    """Promise 9: its people get a notice and can reset the session; nobody else notices."""
    platform, agent = FakePlatform(), Actor()
    with capture_logs() as logs:
        async with World(store_url, agent, [platform], ManualClock()) as world:
            await two_cut_off(world, platform, agent, damage)
            await world.start()
            await while_time_passes(world, told(platform, "one", notices.DAMAGED))
            await told(platform, "two", answer_to("tool hold two"))
            entry = await entry_of(world, platform, "one")
            unended = await world.store.run(select, "SELECT id FROM turn WHERE ended_at IS NULL")
            await ask(platform, "one", "again")
    assert (getattr(entry.state, "reason", ""), unended) == ("damaged", [])
    errors = [each for each in logs if each["log_level"] == "error"]
    assert {each["session_key"] for each in errors} == {key_of(platform, "one")}
    assert any("remedy" in each for each in errors)


async def test_a_turn_at_which_its_key_does_not_point_is_ended_once(store_url: str) -> None:
    """Nothing can resume the turn; recovery found it again with each heartbeat, for ever."""
    platform, agent = FakePlatform(), Actor()
    async with World(store_url, agent, [platform], ManualClock()) as world:
        await two_cut_off(world, platform, agent, FORGOTTEN)
        with capture_logs() as logs:
            await world.start()
            await told(platform, "two", answer_to("tool hold two"))
        with capture_logs() as later:
            await world.gateway.recovery.sweep()
        others = await world.store.read(find_others, 0)
        dead = await world.store.read(messages, "dead", 0, 9)
        await ask(platform, "one", "again")
    assert [(each["event"], each["session_key"]) for each in logs if each["log_level"] == "error"] == [
        ("turn damaged", key_of(platform, "one"))
    ]
    assert (others.left, [each for each in later if each["event"].startswith("turn")]) == ([], [])
    assert [each["text"] for each in dead] == ["tool hold one"]


@pytest.mark.parametrize("damage", [UNKNOWN_STATE, ENDED_STATE, BROKEN_JSON], ids=["state", "ended", "json"])
async def test_a_drain_cuts_the_other_turns_off_and_suspends_the_damaged_one(store_url: str, damage: str) -> None:
    """The session is suspended before the planned end of the process: the next one starts and logs nothing of it."""
    platform, agent = FakePlatform(), Actor()
    async with World(store_url, agent, [platform], ManualClock(), EAGER) as world:
        await hold_two(platform, agent)
        await world.store.run(select, damage)
        with capture_logs() as logs:
            await world.stop("restart")
        (turn,) = {each["turn_id"] for each in logs if each["log_level"] == "error"}
        agent.release()
        with capture_logs() as later:
            report = await world.start()
        assert (report.previous_exit, report.resumable) == ("restart", 1)
        assert await world.store.run(select, f"SELECT key FROM turn WHERE id={turn}") == [(key_of(platform, "one"),)]
        await told(platform, "one", notices.DAMAGED)
        await told(platform, "two", answer_to("tool hold two"))
        await ask(platform, "one", "again")
    assert [each for each in later if each["log_level"] == "error"] == []


async def test_a_turn_that_is_cancelled_and_cannot_be_read_is_suspended(store_url: str) -> None:
    """Without a drain, too: no key is left that points at a turn which no rule takes."""
    platform, agent = FakePlatform(), Actor()
    async with World(store_url, agent, [platform], ManualClock()) as world:
        await hold_two(platform, agent)
        await world.store.run(select, UNKNOWN_STATE)
        with capture_logs() as logs:
            world.gateway.turns.stop()
            await world.gateway.turns.quiet()
        entry = await entry_of(world, platform, "one")
    assert getattr(entry.state, "reason", "") == "damaged"
    assert [each["session_key"] for each in logs if each["log_level"] == "error"] == [key_of(platform, "one")]


async def test_a_verdict_that_nobody_knows_is_found_anew(store_url: str) -> None:
    platform, agent = FakePlatform(), Actor()
    with capture_logs() as logs:
        async with World(store_url, agent, [platform]) as world:
            await two_cut_off(world, platform, agent, UNKNOWN_VERDICT)
            await world.start()
            for chat in ("one", "two"):
                await told(platform, chat, answer_to(f"tool hold {chat}"))
    assert [(each["event"], each["session_key"]) for each in logs if each["log_level"] == "error"] == [
        ("turn damaged", key_of(platform, "one"))
    ]


async def test_a_key_whose_rows_cannot_be_read_is_suspended_after_some_tries(store_url: str) -> None:
    """A message meets the damaged row of an earlier task: it was forgotten until a restart, and met it there again."""
    platform, agent, clock = FakePlatform(), Actor(), ManualClock()
    async with World(store_url, agent, [platform], clock, Settings(resume="on_message", policies=IDLE_HOUR)) as world:
        platform.say("one", "hold")
        await agent.held("hold")
        await die(world)
        agent.release()
        await world.start()
        await world.store.run(select, BROKEN_JSON)
        clock.advance(7200)
        with capture_logs() as logs:
            platform.say("one", "meets it")
            await while_time_passes(world, told(platform, "one", notices.DAMAGED))
        await ask(platform, "one", "again")
    assert [each["failures"] for each in logs if each["event"] == "turn not started"] == [1, 2, 3]
