"""Commands people type: applied once, in order, at once; what they end is ended, what they leave is kept."""

import pytest

from everturn.commands.rules.registry import COMMANDS
from everturn.model import ACTIVE
from everturn.sessions.rows.entries import list_entries
from everturn.testing import FakePlatform, World
from tests.scenes import Actor, answer_to, ask, entry_of, said_in, session_of, told, trace_of, until_ended


async def test_stop_ends_the_turn_and_keeps_queued_messages(store_url: str) -> None:
    """The conversation is kept and nothing is suspended; the stopped turn's answer is never sent."""
    platform, agent = FakePlatform(), Actor()
    async with World(store_url, agent, [platform]) as world:
        await ask(platform, "one", "hello")
        stopped = platform.say("one", "hold")
        await agent.held("hold")
        platform.say("one", "queued")
        platform.say("one", "/stop")
        await platform.until(lambda: answer_to("queued") in platform.texts("one"))
        entry = await entry_of(world, platform, "one")
        trace = await trace_of(world, stopped)
    assert "1 queued message will be answered next" in platform.texts("one")[1]
    assert answer_to("hold") not in platform.texts("one")
    assert (trace["state"], trace["why"], trace["turn"]["state"]) == ("withdrawn", "/stop", "stopped")
    assert (entry.state, {each.session_id for each in agent.attempts}) == (ACTIVE, {entry.session_id})


async def test_stop_with_nothing_to_stop_says_so(store_url: str) -> None:
    platform = FakePlatform()
    async with World(store_url, Actor(), [platform]):
        platform.say("one", "/stop")
        await told(platform, "one", "Nothing is running here")


@pytest.mark.parametrize("command", ["/new", "/reset"])
async def test_new_withdraws_what_was_not_begun_and_says_how_much(store_url: str, command: str) -> None:
    platform, agent = FakePlatform(), Actor()
    async with World(store_url, agent, [platform]) as world:
        platform.say("one", "hold")
        await agent.held("hold")
        old = await session_of(world, platform, "one")
        queued = [platform.say("one", f"queued {number}") for number in range(2)]
        platform.say("one", command)
        await told(platform, "one", "2 queued messages were withdrawn")
        await ask(platform, "one", "after")
        entry = await entry_of(world, platform, "one")
        states = [(await trace_of(world, each))["state"] for each in queued]
    assert states == ["withdrawn", "withdrawn"]
    assert (entry.previous_session_id, entry.auto_reset_reason) == (old, None)
    assert [each.text for each in agent.attempts] == ["hold", "after"]
    assert (agent.attempts[1].earlier, agent.attempts[1].note) == (0, "")


async def test_a_message_after_new_belongs_to_the_fresh_session(store_url: str) -> None:
    platform, agent = FakePlatform(), Actor()
    async with World(store_url, agent, [platform]):
        for text in ("first", "/new", "second"):
            platform.say("one", text)
        await told(platform, "one", answer_to("second"))
    assert [each.text for each in agent.attempts if each.text == "second"] == ["second"]
    assert agent.given("second")[0].earlier == 0


async def test_resume_lists_and_brings_back_an_earlier_conversation(store_url: str) -> None:
    platform, agent = FakePlatform(), Actor()
    async with World(store_url, agent, [platform]) as world:
        await ask(platform, "one", "about cats")
        first = await session_of(world, platform, "one")
        platform.say("one", "/new")
        await told(platform, "one", "fresh conversation")
        await ask(platform, "one", "about dogs")
        platform.say("one", "/resume")
        listed = await told(platform, "one", "Earlier conversations")
        platform.say("one", "/resume 1")
        await told(platform, "one", f"the conversation {first} again")
        await ask(platform, "one", "more")
        rows = await said_in(world, first)
    assert "about cats" in listed
    assert "about dogs" not in listed
    assert (agent.attempts[-1].session_id, agent.attempts[-1].earlier) == (first, 2)
    assert [row.content for row in rows if row.role == "user"] == ["about cats", "more"]


async def test_another_conversation_is_not_resumed_over_a_running_task(store_url: str) -> None:
    platform, agent = FakePlatform(), Actor()
    async with World(store_url, agent, [platform]):
        await ask(platform, "one", "first")
        for text in ("/new", "hold"):
            platform.say("one", text)
        await agent.held("hold")
        platform.say("one", "/resume 1")
        await told(platform, "one", "Send /stop first")
        agent.release()
        await told(platform, "one", answer_to("hold"))


async def test_a_chat_cannot_resume_a_conversation_of_another(store_url: str) -> None:
    platform = FakePlatform()
    async with World(store_url, Actor(), [platform]) as world:
        await ask(platform, "one", "secret")
        session_id = await session_of(world, platform, "one")
        platform.say("two", f"/resume {session_id}")
        await told(platform, "two", "no such earlier conversation")


async def test_looking_creates_no_session(store_url: str) -> None:
    platform = FakePlatform()
    async with World(store_url, Actor(), [platform]) as world:
        for text in ("/help", "/status", "/resume", "/stop", "/new", "/nonsense"):
            platform.say("one", text)
        await platform.until(lambda: len(platform.texts("one")) == 6)
        assert await world.store.read(list_entries, "", 10) == []


async def test_help_lists_every_command_and_an_unknown_one_names_the_nearest(store_url: str) -> None:
    platform = FakePlatform()
    async with World(store_url, Actor(), [platform]):
        platform.say("one", "/help")
        platform.say("one", "/stpo")
        await platform.until(lambda: len(platform.texts("one")) == 2)
    assert all(f"/{name}" in platform.texts("one")[0] for name in COMMANDS if name != "restart")
    assert "Did you mean /stop?" in platform.texts("one")[1]


async def test_status_says_what_is_going_on(store_url: str) -> None:
    platform, agent = FakePlatform(), Actor()
    async with World(store_url, agent, [platform]):
        platform.say("one", "hold")
        await agent.held("hold")
        for text in ("queued", "/status"):
            platform.say("one", text)
        status = await told(platform, "one", "Conversation")
        agent.release()
    assert "a task is running. 1 message queued" in status


async def test_a_command_delivered_twice_is_applied_once(store_url: str) -> None:
    platform = FakePlatform(repeat=2)
    async with World(store_url, Actor(), [platform]):
        await ask(platform, "one", "first")
        platform.say("one", "/new")
        await ask(platform, "one", "second")
    assert sum("fresh conversation" in text for text in platform.texts("one")) == 1


async def test_a_stopped_turn_makes_room_for_others(store_url: str) -> None:
    """However often a command meets a turn that has just begun, its lane and its slot are free again."""
    platform, agent = FakePlatform(), Actor()
    async with World(store_url, agent, [platform]):
        for number in range(30):
            platform.say("one", f"hold {number}")
            platform.say("one", "/stop")
        await platform.until(lambda: len(platform.texts("one")) == 30)
        agent.release()
        await ask(platform, "one", "last")
    assert agent.overlaps == []


@pytest.mark.parametrize("command", ["/undo", "/resume", "/approve", "/deny", "/resend"])
async def test_a_number_of_any_length_is_answered_and_ends_no_gateway(store_url: str, command: str) -> None:
    """Python refuses to read numbers of more than 4300 digits: a command that raised came again in every process."""
    platform = FakePlatform()
    async with World(store_url, Actor(), [platform]) as world:
        await ask(platform, "one", "hello")
        told_how = platform.say("one", f"{command} {'1' * 5000}")
        await until_ended(world, told_how, "done")
        await ask(platform, "one", "still there?")
