"""Commands: their effect and their end commit together, once, whoever applies them and whatever happens beside."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from everturn.decide.commands import COMMANDS
from everturn.errors import FenceLost
from everturn.model import ACTIVE, ResumePending, Suspended
from everturn.store.operations.command_sessions import earlier_sessions
from everturn.store.operations.command_values import Applied
from everturn.store.operations.commands import apply_command
from everturn.store.operations.inbox import accept
from everturn.store.operations.recovery import suspend_session
from everturn.store.operations.turns import finish
from tests.contracts.store import BY_EVENT, QUEUE, Life, broken, key_of, living


@pytest.fixture
async def life(store_url: str) -> AsyncIterator[Life]:
    async with living(store_url) as life:
        yield life


async def stored(life: Life, text: str, chat: str = "c") -> int:
    """A command that waits to be applied."""
    arrival = life.arrival(text, chat)
    await life.store.run(accept, arrival, QUEUE, None)
    return arrival.id


async def said(life: Life, text: str, chat: str = "c") -> str:
    """The answer to a command."""
    number = await stored(life, text, chat)
    await life.store.run(apply_command, number, life.sessions.next(), life.now, life.delivery)
    ((answer,),) = await life.look("SELECT text FROM outbox WHERE id=$1", number)
    return str(answer)


# -- once -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["/new", "/reset", "/stop", "/status", "/help", "/resume", "/resume 1", "/nonsense"])
async def test_a_command_applied_twice_says_the_same(life: Life, text: str) -> None:
    here = replace(life, delivery=BY_EVENT)
    await here.talk("first")
    await here.command("/new")
    begun = await here.called("second")
    number = await stored(here, text)
    applied = await here.twice(apply_command, number, "fresh", here.now, here.delivery)
    assert applied is not None
    stops = text in {"/new", "/reset", "/stop"}
    assert (applied.key, applied.stopped) == (key_of(), begun.turn if stops else None)
    assert [event.kind for event in applied.events] == (["turn", "reply"] if stops else ["reply"])


async def test_a_command_that_another_life_applies_too_is_applied_once(life: Life) -> None:
    await life.talk()
    number = await stored(life, "/new")
    runs = [life.store.run(apply_command, number, f"by {n}", life.now, life.delivery) for n in range(10)]
    applied = await asyncio.gather(*runs)
    assert [isinstance(each, Applied) for each in applied].count(True) == 1
    assert len(await life.look("SELECT session_id FROM session")) == 2
    assert len(await life.look("SELECT id FROM outbox WHERE id=$1", number)) == 1


async def test_a_command_that_does_not_exist_changes_nothing(life: Life) -> None:
    assert await life.unchanged(apply_command, 12345, "fresh", life.now, life.delivery) is None


# -- /new and /stop ---------------------------------------------------------------------------------------------------


async def test_new_withdraws_what_came_before_it_and_says_how_much(life: Life) -> None:
    await life.called("running")
    await life.accept("waiting")
    number = await stored(life, "/new")
    await life.accept("after it")
    await life.store.run(apply_command, number, "fresh", life.now, life.delivery)
    rows = await life.look("SELECT body, state, why FROM inbox ORDER BY id")
    assert rows == [
        ("running", "withdrawn", "/new"), ("waiting", "withdrawn", "/new"), ("/new", "done", None),
        ("after it", "waiting", None),
    ]  # fmt: skip
    ((answer,),) = await life.look("SELECT text FROM outbox WHERE id=$1", number)
    assert "1 message not yet begun was withdrawn" in answer
    begun = await life.began()
    assert (begun.session_id, begun.words, begun.first_seq) == ("fresh", ("after it",), 1)


async def test_new_before_anything_was_said_makes_no_session(life: Life) -> None:
    applied = await life.command("/new")
    assert (applied.stopped, (await life.entry()).session_id) == (None, None)


async def test_stop_keeps_the_conversation_and_what_waits(life: Life) -> None:
    """The seeds' early /stop suspended; ours takes the mark away and keeps the session."""
    await life.called("one")
    await life.die()
    begun = await life.began()
    await life.tool(begun)
    await life.accept("two")
    assert "1 message still waiting" in await said(life, "/stop")
    entry = await life.entry()
    assert (entry.session_id, entry.state, entry.turn, entry.holder) == (begun.session_id, ACTIVE, None, None)
    assert await life.states("turn") == ["stopped"]
    after = await life.began()
    assert (after.session_id, after.words, after.note, after.first_seq) == (begun.session_id, ("two",), None, 4)


async def test_stop_ends_an_interrupted_turn_that_waits_for_its_resume(life: Life) -> None:
    begun = await life.called()
    await life.die()
    applied = await life.command("/stop")
    assert (applied.stopped, await life.states("turn")) == (begun.turn, ["stopped"])
    assert (await life.entry()).state == ACTIVE
    assert await life.begin() is None


async def test_stop_without_a_turn_changes_nothing_but_is_answered(life: Life) -> None:
    await life.talk()
    await life.store.run(suspend_session, key_of(), life.now)
    assert await said(life, "/stop") == "Nothing is running here."
    assert (await life.entry()).state == Suspended("stuck", life.now)


# -- /resume ----------------------------------------------------------------------------------------------------------


async def test_resume_brings_a_suspended_session_back(life: Life) -> None:
    begun = await life.called("one")
    for _ in range(3):
        await life.die()
        if (await life.entry()).state == Suspended("stuck", life.now):
            break
        again = await life.began()
        await life.plant("UPDATE turn SET called=attempt WHERE id=$1", again.turn)
    assert await life.states("turn") == ["suspended"]
    assert begun.session_id in await said(life, "/resume")
    entry = await life.entry()
    assert (entry.session_id, entry.unclean_ends) == (begun.session_id, 0)
    assert entry.state == ResumePending("restart_interrupted", life.now)
    after = await life.begun("go on")
    assert after.note is not None
    assert (after.session_id, after.note.kind) == (begun.session_id, "resume:restart_interrupted")


async def test_resume_brings_a_suspended_session_back_after_a_fresh_one_was_used(life: Life) -> None:
    first = await life.talk("one")
    await life.store.run(suspend_session, key_of(), life.now)
    second = await life.talk("two")
    assert "suspended" in await said(life, "/resume")
    assert first.session_id in await said(life, "/resume 1")
    assert (await life.entry()).previous_session_id == second.session_id
    assert (await life.talk("three")).session_id == first.session_id


async def test_resume_lists_earlier_sessions_newest_first(life: Life) -> None:
    first = await life.talk("one")
    await life.command("/new")
    second = await life.talk("two")
    await life.command("/new")
    listed = (await said(life, "/resume")).splitlines()
    assert ["two" in listed[1], "one" in listed[2]] == [True, True]
    earlier = await life.store.read(earlier_sessions, key_of(), (await life.entry()).session_id)
    assert [each.session_id for each in earlier] == [second.session_id, first.session_id]
    assert second.session_id in await said(life, f"/resume {second.session_id}")


async def test_resume_of_another_chats_session_is_refused(life: Life) -> None:
    other = await life.talk(chat="other")
    mine = await life.talk()
    assert "no such earlier conversation" in await said(life, f"/resume {other.session_id}")
    assert (await life.entry()).session_id == mine.session_id


async def test_resume_of_another_session_waits_for_the_running_turn(life: Life) -> None:
    first = await life.talk("one")
    await life.command("/new")
    begun = await life.called("two")
    assert "/stop first" in await said(life, f"/resume {first.session_id}")
    await life.finish(begun)
    assert (await life.entry()).session_id == begun.session_id


async def test_what_a_stopped_tasks_tools_left_open_is_not_taken_up_again(life: Life) -> None:
    begun = await life.called("one")
    await life.tool(begun)
    await life.command("/stop")
    after = await life.begun("something else")
    assert (after.session_id, after.note) == (begun.session_id, None)


async def test_a_session_that_is_brought_back_offers_its_tools_tail(life: Life) -> None:
    begun = await life.called("one")
    await life.tool(begun)
    await life.command("/new")
    await life.command(f"/resume {begun.session_id}")
    after = await life.begun("go on")
    assert after.note is not None
    assert (after.session_id, after.note.kind) == (begun.session_id, "tool_tail")


async def test_a_resume_that_is_refused_stops_nothing(life: Life) -> None:
    here = replace(life, delivery=BY_EVENT)
    await here.called()
    await here.die()
    applied = await here.command("/resume 7")
    assert (applied.stopped, [event.kind for event in applied.events]) == (None, ["reply"])
    assert await life.states("turn") == ["interrupted"]


# -- looking ----------------------------------------------------------------------------------------------------------


async def test_status_and_help_only_look(life: Life) -> None:
    await life.called()
    await life.accept("waiting")
    before = await life.entry()
    assert "a task is running. 1 message waiting" in await said(life, "/status")
    assert (await said(life, "/help")).count("\n") == len(COMMANDS) - 1  # without the owner's, with a last line
    assert "no command named 'nwe'" in await said(life, "/nwe")
    assert await life.entry() == before


# -- races ------------------------------------------------------------------------------------------------------------


async def test_new_message_and_answer_at_once_leave_one_session_and_one_end(life: Life) -> None:
    """Issue 2: create, reset, resume and switch never race."""
    for number in range(12):
        chat = f"race {number}"
        begun = await life.called("one", chat)
        new, late = await stored(life, "/new", chat), life.arrival("two", chat)
        results = await asyncio.gather(
            life.store.run(apply_command, new, f"fresh {number}", life.now, life.delivery),
            life.store.run(accept, late, QUEUE, life.start()),
            life.store.run(finish, begun, life.answer(begun), life.delivery, life.instance, None),
            return_exceptions=True,
        )
        entry = await life.entry(chat)
        ((turn,),) = await life.look("SELECT state FROM turn WHERE id=$1", begun.turn)
        assert turn == ("stopped" if isinstance(results[2], FenceLost) else "answered")
        assert (entry.session_id, entry.previous_session_id) == (f"fresh {number}", begun.session_id)
        assert await life.look("SELECT count(*) FROM session WHERE key=$1 AND ended_at IS NULL", entry.key) == [(1,)]
        answers = await life.look("SELECT count(*) FROM outbox WHERE id=$1", begun.turn)
        assert answers == [(int(turn == "answered"),)]
        ((state, words),) = await life.look("SELECT state, body FROM inbox WHERE id=$1", late.id)
        assert (state in {"waiting", "claimed"}, words) == (True, "two")
    assert await life.store.read(broken) == {}


async def test_commands_of_one_chat_at_once_leave_one_session_open(life: Life) -> None:
    first = await life.talk("one")
    await life.command("/new")
    await life.called("two")
    texts = ["/new", f"/resume {first.session_id}", "/stop", "/new", "/status", f"/resume {first.session_id}"]
    numbers = [await stored(life, text) for text in texts]
    await asyncio.gather(
        *(life.store.run(apply_command, n, f"fresh {n}", life.now, life.delivery) for n in numbers),
        life.accept("three"),
    )
    entry = await life.entry()
    assert await life.look("SELECT session_id FROM session WHERE ended_at IS NULL") == [(entry.session_id,)]
    assert (entry.turn, entry.holder) == (None, None)
    assert await life.states("turn") == ["answered", "stopped"]
    assert await life.store.read(broken) == {}
