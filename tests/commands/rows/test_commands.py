"""Commands: their effect and their end commit together, once, whoever applies them and whatever happens beside."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from everturn.commands.rows.commands import apply_command
from everturn.commands.rows.sessions import earlier_sessions
from everturn.commands.rows.values import Applied
from everturn.commands.rules.registry import COMMANDS
from everturn.errors import FenceLost
from everturn.inbox.rows.inbox import accept
from everturn.model import ACTIVE, ResumePending, Suspended
from everturn.turns.rows.recovery import suspend_session
from everturn.turns.rows.turns import finish
from tests.contracts.store import BY_EVENT, QUEUE, StoreProcess, broken, key_of, living


@pytest.fixture
async def process(store_url: str) -> AsyncIterator[StoreProcess]:
    async with living(store_url) as process:
        yield process


async def stored(process: StoreProcess, text: str, chat: str = "c") -> int:
    """A command that waits to be applied."""
    arrival = process.arrival(text, chat)
    await process.store.run(accept, arrival, QUEUE, None)
    return arrival.id


async def said(process: StoreProcess, text: str, chat: str = "c") -> str:
    """The answer to a command."""
    number = await stored(process, text, chat)
    await process.store.run(apply_command, number, process.sessions.next(), process.now, process.delivery)
    ((answer,),) = await process.look("SELECT text FROM outbox WHERE id=$1", number)
    return str(answer)


# -- once -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["/new", "/reset", "/stop", "/status", "/help", "/resume", "/resume 1", "/nonsense"])
async def test_a_command_applied_twice_says_the_same(process: StoreProcess, text: str) -> None:
    here = replace(process, delivery=BY_EVENT)
    await here.talk("first")
    await here.command("/new")
    begun = await here.called("second")
    number = await stored(here, text)
    applied = await here.twice(apply_command, number, "fresh", here.now, here.delivery)
    assert applied is not None
    stops = text in {"/new", "/reset", "/stop"}
    assert (applied.key, applied.stopped) == (key_of(), begun.turn if stops else None)
    assert [event.kind for event in applied.events] == (["turn", "reply"] if stops else ["reply"])


async def test_a_command_that_another_process_applies_too_is_applied_once(process: StoreProcess) -> None:
    await process.talk()
    number = await stored(process, "/new")
    runs = [process.store.run(apply_command, number, f"by {n}", process.now, process.delivery) for n in range(10)]
    applied = await asyncio.gather(*runs)
    assert [isinstance(each, Applied) for each in applied].count(True) == 1
    assert len(await process.look("SELECT session_id FROM session")) == 2
    assert len(await process.look("SELECT id FROM outbox WHERE id=$1", number)) == 1


async def test_a_command_that_does_not_exist_changes_nothing(process: StoreProcess) -> None:
    assert await process.unchanged(apply_command, 12345, "fresh", process.now, process.delivery) is None


# -- /new and /stop ---------------------------------------------------------------------------------------------------


async def test_new_withdraws_what_came_before_it_and_says_how_much(process: StoreProcess) -> None:
    await process.called("running")
    await process.accept("waiting")
    number = await stored(process, "/new")
    await process.accept("after it")
    await process.store.run(apply_command, number, "fresh", process.now, process.delivery)
    rows = await process.look("SELECT body, state, why FROM inbox ORDER BY id")
    assert rows == [
        ("running", "withdrawn", "/new"), ("waiting", "withdrawn", "/new"), ("/new", "done", None),
        ("after it", "queued", None),
    ]  # fmt: skip
    ((answer,),) = await process.look("SELECT text FROM outbox WHERE id=$1", number)
    assert "1 queued message was withdrawn" in answer
    begun = await process.began()
    assert (begun.session_id, begun.texts, begun.first_seq) == ("fresh", ("after it",), 1)


async def test_new_before_anything_was_said_makes_no_session(process: StoreProcess) -> None:
    applied = await process.command("/new")
    assert (applied.stopped, (await process.entry()).session_id) == (None, None)


async def test_stop_keeps_the_conversation_and_what_waits(process: StoreProcess) -> None:
    """The seeds' early /stop suspended; ours takes the mark away and keeps the session."""
    await process.called("one")
    await process.die()
    begun = await process.began()
    await process.tool(begun)
    await process.accept("two")
    assert "1 queued message will" in await said(process, "/stop")
    entry = await process.entry()
    assert (entry.session_id, entry.state, entry.turn, entry.holder) == (begun.session_id, ACTIVE, None, None)
    assert await process.states("turn") == ["stopped"]
    after = await process.began()
    assert (after.session_id, after.texts, after.note, after.first_seq) == (begun.session_id, ("two",), None, 4)


async def test_stop_ends_an_interrupted_turn_that_waits_for_its_resume(process: StoreProcess) -> None:
    begun = await process.called()
    await process.die()
    applied = await process.command("/stop")
    assert (applied.stopped, await process.states("turn")) == (begun.turn, ["stopped"])
    assert (await process.entry()).state == ACTIVE
    assert await process.begin() is None


async def test_stop_without_a_turn_changes_nothing_but_is_answered(process: StoreProcess) -> None:
    await process.talk()
    await process.store.run(suspend_session, key_of(), process.now)
    assert await said(process, "/stop") == "Nothing is running here."
    assert (await process.entry()).state == Suspended("stuck", process.now)


# -- /resume ----------------------------------------------------------------------------------------------------------


async def test_resume_brings_a_suspended_session_back(process: StoreProcess) -> None:
    begun = await process.called("one")
    for _ in range(3):
        await process.die()
        if (await process.entry()).state == Suspended("stuck", process.now):
            break
        again = await process.began()
        await process.plant("UPDATE turn SET called=attempt WHERE id=$1", again.turn)
    assert await process.states("turn") == ["suspended"]
    assert begun.session_id in await said(process, "/resume")
    entry = await process.entry()
    assert (entry.session_id, entry.unclean_ends) == (begun.session_id, 0)
    assert entry.state == ResumePending("restart_interrupted", process.now)
    after = await process.begun("go on")
    assert after.note is not None
    assert (after.session_id, after.note.kind) == (begun.session_id, "resume:restart_interrupted")


async def test_resume_brings_a_suspended_session_back_after_a_fresh_one_was_used(process: StoreProcess) -> None:
    first = await process.talk("one")
    await process.store.run(suspend_session, key_of(), process.now)
    second = await process.talk("two")
    assert "suspended" in await said(process, "/resume")
    assert first.session_id in await said(process, "/resume 1")
    assert (await process.entry()).previous_session_id == second.session_id
    assert (await process.talk("three")).session_id == first.session_id


async def test_resume_lists_earlier_sessions_newest_first(process: StoreProcess) -> None:
    first = await process.talk("one")
    await process.command("/new")
    second = await process.talk("two")
    await process.command("/new")
    listed = (await said(process, "/resume")).splitlines()
    assert ["two" in listed[1], "one" in listed[2]] == [True, True]
    earlier = await process.store.read(earlier_sessions, key_of(), (await process.entry()).session_id)
    assert [each.session_id for each in earlier] == [second.session_id, first.session_id]
    assert second.session_id in await said(process, f"/resume {second.session_id}")


async def test_resume_of_another_chats_session_is_refused(process: StoreProcess) -> None:
    other = await process.talk(chat="other")
    mine = await process.talk()
    assert "no such earlier conversation" in await said(process, f"/resume {other.session_id}")
    assert (await process.entry()).session_id == mine.session_id


async def test_resume_of_another_session_waits_for_the_running_turn(process: StoreProcess) -> None:
    first = await process.talk("one")
    await process.command("/new")
    begun = await process.called("two")
    assert "/stop first" in await said(process, f"/resume {first.session_id}")
    await process.finish(begun)
    assert (await process.entry()).session_id == begun.session_id


async def test_what_a_stopped_tasks_tools_left_open_is_not_taken_up_again(process: StoreProcess) -> None:
    begun = await process.called("one")
    await process.tool(begun)
    await process.command("/stop")
    after = await process.begun("something else")
    assert (after.session_id, after.note) == (begun.session_id, None)


async def test_a_resumed_session_offers_its_tools_tail(process: StoreProcess) -> None:
    begun = await process.called("one")
    await process.tool(begun)
    await process.command("/new")
    await process.command(f"/resume {begun.session_id}")
    after = await process.begun("go on")
    assert after.note is not None
    assert (after.session_id, after.note.kind) == (begun.session_id, "tool_tail")


async def test_a_resume_that_is_refused_stops_nothing(process: StoreProcess) -> None:
    here = replace(process, delivery=BY_EVENT)
    await here.called()
    await here.die()
    applied = await here.command("/resume 7")
    assert (applied.stopped, [event.kind for event in applied.events]) == (None, ["reply"])
    assert await process.states("turn") == ["interrupted"]


# -- looking ----------------------------------------------------------------------------------------------------------


async def test_status_and_help_only_look(process: StoreProcess) -> None:
    await process.called()
    await process.accept("waiting")
    before = await process.entry()
    assert "a task is running. 1 message queued" in await said(process, "/status")
    assert (await said(process, "/help")).count("\n") == len(COMMANDS) - 1  # without the owner's, with a last line
    assert "no command named 'nwe'" in await said(process, "/nwe")
    assert await process.entry() == before


# -- races ------------------------------------------------------------------------------------------------------------


async def test_new_message_and_answer_at_once_leave_one_session_and_one_end(process: StoreProcess) -> None:
    """Issue 2: create, reset, resume and switch never race."""
    for number in range(12):
        chat = f"race {number}"
        begun = await process.called("one", chat)
        new, late = await stored(process, "/new", chat), process.arrival("two", chat)
        results = await asyncio.gather(
            process.store.run(apply_command, new, f"fresh {number}", process.now, process.delivery),
            process.store.run(accept, late, QUEUE, process.start()),
            process.store.run(finish, begun, process.answer(begun), process.delivery, process.instance, None),
            return_exceptions=True,
        )
        entry = await process.entry(chat)
        ((turn,),) = await process.look("SELECT state FROM turn WHERE id=$1", begun.turn)
        assert turn == ("stopped" if isinstance(results[2], FenceLost) else "answered")
        assert (entry.session_id, entry.previous_session_id) == (f"fresh {number}", begun.session_id)
        assert await process.look("SELECT count(*) FROM session WHERE key=$1 AND ended_at IS NULL", entry.key) == [(1,)]
        answers = await process.look("SELECT count(*) FROM outbox WHERE id=$1", begun.turn)
        assert answers == [(int(turn == "answered"),)]
        ((state, text),) = await process.look("SELECT state, body FROM inbox WHERE id=$1", late.id)
        assert (state in {"queued", "claimed"}, text) == (True, "two")
    assert await process.store.read(broken) == {}


async def test_commands_of_one_chat_at_once_leave_one_session_open(process: StoreProcess) -> None:
    first = await process.talk("one")
    await process.command("/new")
    await process.called("two")
    texts = ["/new", f"/resume {first.session_id}", "/stop", "/new", "/status", f"/resume {first.session_id}"]
    numbers = [await stored(process, text) for text in texts]
    await asyncio.gather(
        *(process.store.run(apply_command, n, f"fresh {n}", process.now, process.delivery) for n in numbers),
        process.accept("three"),
    )
    entry = await process.entry()
    assert await process.look("SELECT session_id FROM session WHERE ended_at IS NULL") == [(entry.session_id,)]
    assert (entry.turn, entry.holder) == (None, None)
    assert await process.states("turn") == ["answered", "stopped"]
    assert await process.store.read(broken) == {}
