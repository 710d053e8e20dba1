"""/undo, /retry and /branch: what the agent sees changes, nothing is deleted, and each is applied once."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from msgspec import structs

from everturn.commands.rows.commands import apply_command
from everturn.errors import FenceLost
from everturn.inbox.rows.attachments import Arrived, settle_attachments
from everturn.inbox.rows.inbox import accept
from everturn.inbox.rules import ALBUM_S
from everturn.lifecycle.rows import DAY_S
from everturn.model import ACTIVE, Attachment, ResumePending, SettledFiles, Suspended
from everturn.sessions.rows.entries import last_messages, transcript
from everturn.turns.rows.recovery import suspend_session
from everturn.turns.rows.turns import fail
from tests.contracts.store import BY_EVENT, QUEUE, StoreProcess, broken, key_of, living


@pytest.fixture
async def process(store_url: str) -> AsyncIterator[StoreProcess]:
    async with living(store_url) as process:
        yield process


async def stored(process: StoreProcess, text: str) -> int:
    arrival = process.arrival(text)
    await process.store.run(accept, arrival, QUEUE, None)
    return arrival.id


async def said(process: StoreProcess, text: str) -> str:
    """The answer to a command."""
    number = await stored(process, text)
    await process.store.run(
        apply_command, number, process.sessions.next(), process.now, process.delivery, process.terms()
    )
    ((answer,),) = await process.look("SELECT text FROM outbox WHERE id=$1", number)
    assert await process.store.read(broken) == {}
    return str(answer)


async def seen(process: StoreProcess, session_id: str | None = None) -> list[str]:
    """What the agent sees."""
    session_id = session_id or (await process.entry()).session_id
    return [row.content for row in await process.store.read(last_messages, str(session_id), 100)]


@pytest.mark.parametrize("text", ["/undo", "/undo 2", "/undo x", "/retry", "/branch", "/branch other", "/title garden"])
@pytest.mark.parametrize("state", ["answered", "running", "interrupted"])
async def test_a_command_applied_twice_says_the_same(process: StoreProcess, text: str, state: str) -> None:
    here = replace(process, delivery=BY_EVENT)
    await here.talk("first")
    begun = await here.called("second")
    if state == "answered":
        await here.finish(begun)
    elif state == "interrupted":
        await here.die()
    number = await stored(here, text)
    process.clock.advance(1)
    applied = await here.twice(apply_command, number, "fresh", here.now, here.delivery, here.terms())
    assert applied is not None
    stops = text == "/retry" and state != "answered"
    assert (applied.key, applied.stopped, applied.restart) == (key_of(), begun.turn if stops else None, False)
    assert [event.kind for event in applied.events] == (["turn", "reply"] if stops else ["reply"])
    assert await here.store.read(broken) == {}


# -- /undo -------------------------------------------------------------------------------------------------------------


async def test_undo_hides_the_last_turn_and_says_so(process: StoreProcess) -> None:
    await process.talk("one")
    begun = await process.begun("two")
    await process.tool(begun)
    await process.finish(begun, place=3)
    assert await said(process, "/undo") == (
        'Hidden from the agent, with its answer:\n"two"\n1 tool call did happen and stays done.'
    )
    assert await seen(process) == ["one", "done"]
    assert len(await process.look("SELECT seq FROM message")) == 6
    after = await process.begun("three")
    assert after.note is not None
    assert (after.session_id, after.first_seq, after.note.kind) == (begun.session_id, 7, "rolled_back")
    await process.finish(after)
    assert await seen(process) == ["one", "done", "three", "done"]


async def test_undo_again_and_again_goes_further_back(process: StoreProcess) -> None:
    for text in ("one", "two", "three", "four"):
        await process.talk(text)
    assert '"four"' in await said(process, "/undo")
    assert (await said(process, "/undo 2")).endswith('"three"\n"two"')
    assert await seen(process) == ["one", "done"]
    assert '"one"' in await said(process, "/undo 100")
    assert await said(process, "/undo") == "There is nothing here to undo."


@pytest.mark.parametrize("argument", ["0", "-1", "all", "101", "1.5"])
async def test_undo_takes_a_number(process: StoreProcess, argument: str) -> None:
    await process.talk()
    assert "a number from 1 to 100" in await said(process, f"/undo {argument}")
    assert await seen(process) == ["hello", "done"]


async def test_undo_is_refused_while_a_turn_is_open(process: StoreProcess) -> None:
    await process.talk("one")
    await process.called("two")
    assert await said(process, "/undo") == "A task is still running here. Send /stop first, then /undo."
    await process.die()
    assert await said(process, "/undo") == "A task here is not finished yet. Send /stop first, then /undo."
    await process.command("/stop")
    assert '"two"' in await said(process, "/undo")
    assert await seen(process) == ["one", "done"]


async def test_undo_of_what_a_stop_left_leaves_no_tail(process: StoreProcess) -> None:
    await process.talk("one")
    begun = await process.called("two")
    await process.tool(begun)
    await process.command("/stop")
    await process.command("/undo")
    note = (await process.begun("three")).note
    assert note is not None
    assert note.kind == "rolled_back"


@pytest.mark.parametrize("text", ["/undo", "/retry", "/branch", "/compress"])
async def test_what_must_be_resumed_first_is_said(process: StoreProcess, text: str) -> None:
    assert await said(process, text) == "No conversation has been started here yet."
    await process.talk()
    await process.store.run(suspend_session, key_of(), process.now)
    assert await said(process, text) == "This conversation is suspended. Send /resume first."
    assert (await process.entry()).state == Suspended("stuck", process.now)
    await process.command("/resume")
    await process.plant("UPDATE entry SET expired='idle'")
    await process.plant("UPDATE session SET ended_at=$1, end_reason='idle', messages=2", process.now)
    assert await said(process, text) == "This conversation is over. Send /resume first."
    assert "hello" in await said(process, "/resume")
    assert "with its whole history" in await said(process, "/resume 1")
    assert "No conversation" not in await said(process, text)


# -- /retry ------------------------------------------------------------------------------------------------------------


async def test_retry_runs_the_last_message_in_a_fresh_turn(process: StoreProcess) -> None:
    await process.talk("one")
    first = await process.talk("two")
    assert await said(process, "/retry") == 'Running your last message again: "two".'
    assert await seen(process) == ["one", "done"]
    again = await process.began()
    assert (again.texts, again.session_id, again.note) == (("two",), first.session_id, None)
    assert again.turn != first.turn
    await process.finish(again, text="better")
    assert await seen(process) == ["one", "done", "two", "better"]
    assert await process.states("inbox") == ["done"] * 4


async def test_retry_ends_the_turn_that_runs(process: StoreProcess) -> None:
    begun = await process.called("one")
    await process.tool(begun)
    answer = await said(process, "/retry")
    assert "1 tool call of the first try did happen" in answer
    with pytest.raises(FenceLost):
        await process.finish(begun, place=3)
    assert await process.states("turn") == ["stopped"]
    assert (await process.began()).texts == ("one",)


@pytest.mark.parametrize("stopped", [False, True])
async def test_retry_takes_the_files_along_that_were_not_fetched(process: StoreProcess, stopped: bool) -> None:  # noqa: FBT001
    """Those that were stand in the text."""
    photo, notes = (Attachment(kind="document", ref=ref, name=ref) for ref in ("photo", "notes"))
    arrival = structs.replace(process.arrival("look"), attachments=(photo,), album="a")
    await process.store.run(accept, arrival, QUEUE, None)
    await process.store.run(
        accept, structs.replace(process.arrival("here"), attachments=(notes,), album="a"), QUEUE, None
    )
    process.clock.advance(ALBUM_S)
    begun = await process.began()
    there = Arrived(arrival.id, begun.carried[0].seq, SettledFiles(text="look [photo]"))
    await process.store.run(settle_attachments, begun, [there], [], None, process.now, process.delivery)
    if stopped:
        await process.command("/stop")
        process.clock.advance(DAY_S)
    await process.command("/retry")
    again = await process.began()
    assert again.texts == ("look [photo]\nhere",)
    assert [(each.attachments, each.settled) for each in again.carried] == [((notes,), None)]


async def test_retry_goes_before_what_waits(process: StoreProcess) -> None:
    begun = await process.called("one")
    await process.accept("two")
    await process.command("/retry")
    again = await process.began()
    assert again.texts == ("one",)
    await process.finish(again)
    assert (await process.began()).texts == ("two",)
    assert begun.turn != again.turn


async def test_retry_of_a_failed_turn_runs_its_dead_letters(process: StoreProcess) -> None:
    begun = await process.called("one")
    await process.store.run(fail, begun, "why", "words", process.now, process.delivery)
    await process.command("/retry")
    assert (await process.began()).texts == ("one",)
    assert await process.states("inbox") == ["dead", "done", "claimed"]


async def test_retry_after_resume_runs_what_was_suspended(process: StoreProcess) -> None:
    """The messages of a suspended turn are dead letters: /resume, then /retry runs them, without a note."""
    begun = await process.called("one")
    await process.store.run(suspend_session, key_of(), process.now)
    assert (await process.states("turn"), await process.states("inbox")) == (["suspended"], ["dead"])
    assert "interrupted" in await said(process, "/resume")
    assert (await process.entry()).state == ResumePending("restart_interrupted", process.now)
    assert '"one"' in await said(process, "/retry")
    assert (await process.entry()).state == ACTIVE
    again = await process.began()
    assert (again.texts, again.session_id, again.note) == (("one",), begun.session_id, None)


async def test_retry_twice_before_it_begins_is_said(process: StoreProcess) -> None:
    await process.talk("one")
    await process.talk("two")
    await process.command("/retry")
    assert "already queued" in await said(process, "/retry")
    assert (await process.began()).texts == ("two",)
    await process.command("/retry")
    assert (await process.began()).texts == ("two",)


async def test_retry_keeps_the_name_of_who_said_it(process: StoreProcess) -> None:
    await process.talk("one")
    await process.plant("UPDATE message SET author='Bob' WHERE role='user'")
    await process.command("/retry")
    source = (await process.began()).source
    assert (source.user_name, source.user_id) == ("Bob", "ann")


async def test_new_withdraws_what_retry_queued(process: StoreProcess) -> None:
    await process.talk("one")
    await process.command("/retry")
    assert "1 queued message was withdrawn" in await said(process, "/new")
    assert await process.begin() is None


async def test_nothing_to_retry_is_said(process: StoreProcess) -> None:
    await process.talk("one")
    await process.command("/undo")
    assert await said(process, "/retry") == "There is no message here to run again."


# -- /branch -----------------------------------------------------------------------------------------------------------


async def test_branch_goes_on_in_a_copy_and_keeps_the_first(process: StoreProcess) -> None:
    first = await process.talk("one")
    await process.talk("two")
    await process.command("/undo")
    await process.plant("UPDATE session SET frozen='h', model='m'")
    assert "with its 2 messages" in await said(process, "/branch another way")
    entry = await process.entry()
    assert (entry.previous_session_id, entry.seq) == (first.session_id, 2)
    rows = await process.look(
        "SELECT parent, title, frozen, model, first_text FROM session WHERE session_id=$1", entry.session_id
    )
    assert rows == [(first.session_id, "another way", "h", "m", "one")]
    await process.talk("three")
    assert await seen(process) == ["one", "done", "three", "done"]
    assert await seen(process, first.session_id) == ["one", "done"]
    assert len(await process.look("SELECT seq FROM message WHERE session_id=$1", first.session_id)) == 4


async def test_a_branch_can_be_left_and_found_again(process: StoreProcess) -> None:
    first = await process.talk("one")
    await process.command("/branch The Other")
    branch = (await process.entry()).session_id
    await process.talk("two")
    assert first.session_id in await said(process, "/resume 1")
    assert str(branch) in await said(process, "/resume the other")
    assert await seen(process) == ["one", "done", "two", "done"]


async def test_a_branch_keeps_the_acknowledged_tail(process: StoreProcess) -> None:
    begun = await process.called("one")
    await process.tool(begun)
    await process.command("/stop")
    await process.command("/branch")
    assert (await process.begun("two")).note is None


async def test_undo_and_retry_work_in_a_branch(process: StoreProcess) -> None:
    first = await process.talk("one")
    await process.command("/branch")
    await process.command("/retry")
    again = await process.began()
    assert again.texts == ("one",)
    await process.finish(again)
    assert await seen(process) == ["one", "done"]
    assert [row.content for row in await process.store.read(transcript, first.session_id, 0, 10)] == ["one", "done"]
