"""/undo, /retry and /branch: what the agent sees changes, nothing is deleted, and each is applied once."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from msgspec import structs

from everturn.decide.busy import ALBUM_S
from everturn.errors import FenceLost
from everturn.model import ACTIVE, Attachment, ResumePending, Settled, Suspended
from everturn.store.operations.attachments import Arrived, settle_attachments
from everturn.store.operations.commands import apply_command
from everturn.store.operations.inbox import accept
from everturn.store.operations.reading import transcript
from everturn.store.operations.recovery import suspend_session
from everturn.store.operations.transcripts import last_messages
from everturn.store.operations.turns import fail
from everturn.store.operations.upkeep import DAY_S
from tests.contracts.store import BY_EVENT, QUEUE, Life, broken, key_of, living


@pytest.fixture
async def life(store_url: str) -> AsyncIterator[Life]:
    async with living(store_url) as life:
        yield life


async def stored(life: Life, text: str) -> int:
    arrival = life.arrival(text)
    await life.store.run(accept, arrival, QUEUE, None)
    return arrival.id


async def said(life: Life, text: str) -> str:
    """The answer to a command."""
    number = await stored(life, text)
    await life.store.run(apply_command, number, life.sessions.next(), life.now, life.delivery, life.terms())
    ((answer,),) = await life.look("SELECT text FROM outbox WHERE id=$1", number)
    assert await life.store.read(broken) == {}
    return str(answer)


async def seen(life: Life, session_id: str | None = None) -> list[str]:
    """What the agent sees."""
    session_id = session_id or (await life.entry()).session_id
    return [row.content for row in await life.store.read(last_messages, str(session_id), 100)]


@pytest.mark.parametrize("text", ["/undo", "/undo 2", "/undo x", "/retry", "/branch", "/branch other", "/title garden"])
@pytest.mark.parametrize("state", ["answered", "running", "interrupted"])
async def test_a_command_applied_twice_says_the_same(life: Life, text: str, state: str) -> None:
    here = replace(life, delivery=BY_EVENT)
    await here.talk("first")
    begun = await here.called("second")
    if state == "answered":
        await here.finish(begun)
    elif state == "interrupted":
        await here.die()
    number = await stored(here, text)
    life.clock.advance(1)
    applied = await here.twice(apply_command, number, "fresh", here.now, here.delivery, here.terms())
    assert applied is not None
    stops = text == "/retry" and state != "answered"
    assert (applied.key, applied.stopped, applied.restart) == (key_of(), begun.turn if stops else None, False)
    assert [event.kind for event in applied.events] == (["turn", "reply"] if stops else ["reply"])
    assert await here.store.read(broken) == {}


# -- /undo -------------------------------------------------------------------------------------------------------------


async def test_undo_hides_the_last_turn_and_says_so(life: Life) -> None:
    await life.talk("one")
    begun = await life.begun("two")
    await life.tool(begun)
    await life.finish(begun, place=3)
    assert await said(life, "/undo") == (
        'Hidden from the agent, with its answer:\n"two"\n1 tool call did happen and stays done.'
    )
    assert await seen(life) == ["one", "done"]
    assert len(await life.look("SELECT seq FROM message")) == 6
    after = await life.begun("three")
    assert after.note is not None
    assert (after.session_id, after.first_seq, after.note.kind) == (begun.session_id, 7, "rolled_back")
    await life.finish(after)
    assert await seen(life) == ["one", "done", "three", "done"]


async def test_undo_again_and_again_goes_further_back(life: Life) -> None:
    for text in ("one", "two", "three", "four"):
        await life.talk(text)
    assert '"four"' in await said(life, "/undo")
    assert (await said(life, "/undo 2")).endswith('"three"\n"two"')
    assert await seen(life) == ["one", "done"]
    assert '"one"' in await said(life, "/undo 100")
    assert await said(life, "/undo") == "There is nothing here to undo."


@pytest.mark.parametrize("argument", ["0", "-1", "all", "101", "1.5"])
async def test_undo_takes_a_number(life: Life, argument: str) -> None:
    await life.talk()
    assert "a number from 1 to 100" in await said(life, f"/undo {argument}")
    assert await seen(life) == ["hello", "done"]


async def test_undo_is_refused_while_a_turn_is_open(life: Life) -> None:
    await life.talk("one")
    await life.called("two")
    assert await said(life, "/undo") == "A task is still running here. Send /stop first, then /undo."
    await life.die()
    assert await said(life, "/undo") == "A task here is not finished yet. Send /stop first, then /undo."
    await life.command("/stop")
    assert '"two"' in await said(life, "/undo")
    assert await seen(life) == ["one", "done"]


async def test_undo_of_what_a_stop_left_leaves_no_tail(life: Life) -> None:
    await life.talk("one")
    begun = await life.called("two")
    await life.tool(begun)
    await life.command("/stop")
    await life.command("/undo")
    note = (await life.begun("three")).note
    assert note is not None
    assert note.kind == "rolled_back"


@pytest.mark.parametrize("text", ["/undo", "/retry", "/branch", "/compress"])
async def test_what_must_be_brought_back_first_is_said(life: Life, text: str) -> None:
    assert await said(life, text) == "No conversation has been started here yet."
    await life.talk()
    await life.store.run(suspend_session, key_of(), life.now)
    assert await said(life, text) == "This conversation is suspended. Send /resume to bring it back first."
    assert (await life.entry()).state == Suspended("stuck", life.now)
    await life.command("/resume")
    await life.plant("UPDATE entry SET expired='idle'")
    await life.plant("UPDATE session SET ended_at=$1, end_reason='idle', messages=2", life.now)
    assert await said(life, text) == "This conversation is over. Send /resume to bring it back first."
    assert "hello" in await said(life, "/resume")
    assert "with its whole history" in await said(life, "/resume 1")
    assert "No conversation" not in await said(life, text)


# -- /retry ------------------------------------------------------------------------------------------------------------


async def test_retry_runs_the_last_message_in_a_fresh_turn(life: Life) -> None:
    await life.talk("one")
    first = await life.talk("two")
    assert await said(life, "/retry") == 'Running your last message again: "two".'
    assert await seen(life) == ["one", "done"]
    again = await life.began()
    assert (again.words, again.session_id, again.note) == (("two",), first.session_id, None)
    assert again.turn != first.turn
    await life.finish(again, text="better")
    assert await seen(life) == ["one", "done", "two", "better"]
    assert await life.states("inbox") == ["done"] * 4


async def test_retry_ends_the_turn_that_runs(life: Life) -> None:
    begun = await life.called("one")
    await life.tool(begun)
    answer = await said(life, "/retry")
    assert "1 tool call of the first try did happen" in answer
    with pytest.raises(FenceLost):
        await life.finish(begun, place=3)
    assert await life.states("turn") == ["stopped"]
    assert (await life.began()).words == ("one",)


@pytest.mark.parametrize("stopped", [False, True])
async def test_retry_takes_the_files_along_that_were_not_fetched(life: Life, stopped: bool) -> None:  # noqa: FBT001
    """Those that were stand in the words."""
    photo, notes = (Attachment(kind="document", ref=ref, name=ref) for ref in ("photo", "notes"))
    arrival = structs.replace(life.arrival("look"), attachments=(photo,), album="a")
    await life.store.run(accept, arrival, QUEUE, None)
    await life.store.run(accept, structs.replace(life.arrival("here"), attachments=(notes,), album="a"), QUEUE, None)
    life.clock.advance(ALBUM_S)
    begun = await life.began()
    there = Arrived(arrival.id, begun.carried[0].seq, Settled(text="look [photo]"))
    await life.store.run(settle_attachments, begun, [there], [], None, life.now, life.delivery)
    if stopped:
        await life.command("/stop")
        life.clock.advance(DAY_S)
    await life.command("/retry")
    again = await life.began()
    assert again.words == ("look [photo]\nhere",)
    assert [(each.attachments, each.settled) for each in again.carried] == [((notes,), None)]


async def test_retry_goes_before_what_waits(life: Life) -> None:
    begun = await life.called("one")
    await life.accept("two")
    await life.command("/retry")
    again = await life.began()
    assert again.words == ("one",)
    await life.finish(again)
    assert (await life.began()).words == ("two",)
    assert begun.turn != again.turn


async def test_retry_of_a_failed_turn_runs_its_dead_letters(life: Life) -> None:
    begun = await life.called("one")
    await life.store.run(fail, begun, "why", "words", life.now, life.delivery)
    await life.command("/retry")
    assert (await life.began()).words == ("one",)
    assert await life.states("inbox") == ["dead", "done", "claimed"]


async def test_retry_after_resume_runs_what_was_suspended(life: Life) -> None:
    """The messages of a suspended turn are dead letters: /resume, then /retry runs them, without a note."""
    begun = await life.called("one")
    await life.store.run(suspend_session, key_of(), life.now)
    assert (await life.states("turn"), await life.states("inbox")) == (["suspended"], ["dead"])
    assert "interrupted" in await said(life, "/resume")
    assert (await life.entry()).state == ResumePending("restart_interrupted", life.now)
    assert '"one"' in await said(life, "/retry")
    assert (await life.entry()).state == ACTIVE
    again = await life.began()
    assert (again.words, again.session_id, again.note) == (("one",), begun.session_id, None)


async def test_retry_twice_before_it_begins_is_said(life: Life) -> None:
    await life.talk("one")
    await life.talk("two")
    await life.command("/retry")
    assert "already waiting" in await said(life, "/retry")
    assert (await life.began()).words == ("two",)
    await life.command("/retry")
    assert (await life.began()).words == ("two",)


async def test_retry_keeps_the_name_of_who_said_it(life: Life) -> None:
    await life.talk("one")
    await life.plant("UPDATE message SET author='Bob' WHERE role='user'")
    await life.command("/retry")
    source = (await life.began()).source
    assert (source.user_name, source.user_id) == ("Bob", "ann")


async def test_new_withdraws_what_retry_queued(life: Life) -> None:
    await life.talk("one")
    await life.command("/retry")
    assert "1 message not yet begun was withdrawn" in await said(life, "/new")
    assert await life.begin() is None


async def test_nothing_to_retry_is_said(life: Life) -> None:
    await life.talk("one")
    await life.command("/undo")
    assert await said(life, "/retry") == "There is no message here to run again."


# -- /branch -----------------------------------------------------------------------------------------------------------


async def test_branch_goes_on_in_a_copy_and_keeps_the_first(life: Life) -> None:
    first = await life.talk("one")
    await life.talk("two")
    await life.command("/undo")
    await life.plant("UPDATE session SET frozen='h', model='m'")
    assert "with its 2 messages" in await said(life, "/branch another way")
    entry = await life.entry()
    assert (entry.previous_session_id, entry.seq) == (first.session_id, 2)
    rows = await life.look(
        "SELECT parent, title, frozen, model, first_words FROM session WHERE session_id=$1", entry.session_id
    )
    assert rows == [(first.session_id, "another way", "h", "m", "one")]
    await life.talk("three")
    assert await seen(life) == ["one", "done", "three", "done"]
    assert await seen(life, first.session_id) == ["one", "done"]
    assert len(await life.look("SELECT seq FROM message WHERE session_id=$1", first.session_id)) == 4


async def test_a_branch_can_be_left_and_found_again(life: Life) -> None:
    first = await life.talk("one")
    await life.command("/branch The Other")
    branch = (await life.entry()).session_id
    await life.talk("two")
    assert first.session_id in await said(life, "/resume 1")
    assert str(branch) in await said(life, "/resume the other")
    assert await seen(life) == ["one", "done", "two", "done"]


async def test_a_branch_keeps_the_acknowledged_tail(life: Life) -> None:
    begun = await life.called("one")
    await life.tool(begun)
    await life.command("/stop")
    await life.command("/branch")
    assert (await life.begun("two")).note is None


async def test_undo_and_retry_work_in_a_branch(life: Life) -> None:
    first = await life.talk("one")
    await life.command("/branch")
    await life.command("/retry")
    again = await life.began()
    assert again.words == ("one",)
    await life.finish(again)
    assert await seen(life) == ["one", "done"]
    assert [row.content for row in await life.store.read(transcript, first.session_id, 0, 10)] == ["one", "done"]
