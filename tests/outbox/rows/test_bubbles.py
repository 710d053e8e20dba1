"""The bubble of a turn: one row from the first text to the answer, or to whatever ends the turn."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from msgspec import structs

from everturn.errors import FenceLost
from everturn.model import Bubble, Reply, ToolCall
from everturn.outbox.rows.outbox import (
    bubble_of,
    mark_unknown,
    record_bubble,
    record_sent,
    record_shown,
    recover_sending,
    unsettle,
)
from everturn.outbox.rows.streaming import Closed, Opened, Opening, open_bubble, still_ours
from everturn.outbox.rules import outbox_texts
from everturn.outbox.rules.delivery import Delivery, UnknownAction
from everturn.turns.rows.approvals import ApprovalTerms, May, begin_approved
from everturn.turns.rows.turn_values import StartedTurn
from everturn.turns.rows.turns import fail, finish
from tests.contracts.store import BY_EVENT, StoreProcess, broken, living

STREAMS = Delivery(by_event=False, edits=True, streams=True)
NOW = structs.replace(STREAMS, send_now=True)
BUBBLE = "SELECT id, kind, state, text, parts FROM outbox ORDER BY id"


@pytest.fixture
async def process(store_url: str) -> AsyncIterator[StoreProcess]:
    async with living(store_url, delivery=STREAMS) as process:
        yield process
        assert await process.store.read(broken) == {}


async def opened(
    process: StoreProcess, begun: StartedTurn, on_unknown: UnknownAction = UnknownAction.REPEAT
) -> Opened | Closed:
    opening = Opening(number=process.ids.next(), instance=process.instance, at=process.now, on_unknown=on_unknown)
    return await process.twice(open_bubble, begun, opening)


async def shown(process: StoreProcess, begun: StartedTurn, *parts: str) -> Bubble:
    """A bubble whose sent parts are these."""
    found = await opened(process, begun)
    assert isinstance(found, Opened)
    bubble = structs.replace(found.bubble, sending=None, said="first words")
    await process.twice(record_bubble, begun.turn, bubble.opening, parts, bubble)
    return bubble


async def delivered(process: StoreProcess) -> Reply:
    reply = await process.sending()
    assert reply.bubble is not None
    await process.twice(record_shown, reply, reply.kind, reply.sent_parts, reply.bubble, process.now)
    return reply


async def sent(process: StoreProcess) -> Reply:
    """What is no bubble is out."""
    reply = await process.sending()
    await process.store.run(record_sent, reply, ("p",), process.now)
    return reply


async def test_the_answer_is_queued_in_the_same_row(process: StoreProcess) -> None:
    begun = await process.called()
    bubble = await shown(process, begun, "p1")
    assert await process.claim() is None  # while it streams nobody else claims it
    assert await process.store.read(still_ours, begun, bubble.opening)
    await process.twice(finish, begun, process.answer(begun), STREAMS, process.instance, None)
    assert not await process.store.read(still_ours, begun, bubble.opening)
    reply = await delivered(process)
    assert (reply.id, reply.kind, reply.text, reply.sent_parts) == (begun.turn, "reply", "done", ("p1",))
    assert await process.look(BUBBLE) == [(begun.turn, "reply", "sent", "done", '["p1"]')]


async def test_where_a_repetition_is_harmless_it_is_taken_with_the_finish(process: StoreProcess) -> None:
    begun = await process.called()
    await shown(process, begun, "p1")
    finished = await process.twice(finish, begun, process.answer(begun), NOW, process.instance, None)
    assert finished.reply is not None
    assert (finished.reply.id, finished.reply.sent_parts) == (begun.turn, ("p1",))
    await process.store.run(recover_sending, process.instance, {"fake": UnknownAction.MARK}, process.now)
    assert await process.look("SELECT state, marked FROM outbox") == [("pending", 0)]  # a change may be repeated


@pytest.mark.parametrize("on_unknown", UnknownAction)
async def test_the_next_attempt_decides_about_a_first_part_with_unknown_delivery(
    process: StoreProcess, on_unknown: UnknownAction
) -> None:
    begun = await process.called()
    first = await opened(process, begun)
    assert isinstance(first, Opened)
    assert first.bubble.sending == 0
    await process.die()
    again = await process.began()
    second = await opened(process, again, on_unknown)
    if on_unknown in {UnknownAction.ASK, UnknownAction.DROP}:
        assert second == Closed(for_good=True)
        await process.finish(again)
        assert await process.states("outbox") == ["unknown" if on_unknown is UnknownAction.ASK else "dead"]
        assert '"replaces":[0]' in (await process.look("SELECT bubble FROM outbox"))[0][0]  # if it is sent after all
    else:
        assert isinstance(second, Opened)
        marked = on_unknown is UnknownAction.MARK
        assert (second.bubble.replaces, second.bubble.repeats) == ((0,) if marked else (), not marked)


@pytest.mark.parametrize("hold", [UnknownAction.ASK, UnknownAction.DROP])
async def test_an_answer_to_a_held_message_that_waits_is_decided_by_its_delivery(
    process: StoreProcess, hold: UnknownAction
) -> None:
    """What waits cannot become unknown at once: it is queued, held, and its delivery comes to the same."""
    begun = await process.called()
    bubble = structs.replace(await shown(process, begun, "p1"), hold=hold)
    await process.twice(record_bubble, begun.turn, bubble.opening, ("p1",), bubble)
    await process.die()
    await process.finish(await process.began())
    asks = hold is UnknownAction.ASK
    assert await process.look(BUBBLE) == [(begun.turn, "reply", "pending" if asks else "dead", "done", '["p1"]')]
    if asks:
        reply = await process.sending()
        assert reply.bubble is not None
        assert reply.bubble.hold == hold
        await process.store.run(mark_unknown, reply, hold, process.now, "held")
        assert await process.states("outbox") == ["unknown"]


@pytest.mark.parametrize("state", ["dead", "unknown"])
async def test_an_answer_in_a_message_whose_pause_failed_is_queued(process: StoreProcess, state: str) -> None:
    begun = await process.called()
    await shown(process, begun, "p1")
    await process.die()
    action = UnknownAction.ASK if state == "unknown" else UnknownAction.DROP
    await process.store.run(mark_unknown, await process.sending(), action, process.now, "lost")
    assert await process.states("outbox") == [state]
    again = await process.began()
    assert await opened(process, again) == Closed(for_good=True)
    finished = await process.twice(finish, again, process.answer(again), NOW, process.instance, None)
    assert finished.reply is None
    assert (await delivered(process)).text == "done"


async def test_an_interruption_pauses_it_and_the_next_attempt_goes_on(process: StoreProcess) -> None:
    begun = await process.called()
    await shown(process, begun, "p1")
    await process.die()
    with pytest.raises(FenceLost):
        await opened(process, begun)
    assert (await delivered(process)).text == outbox_texts.PAUSED
    again = await opened(process, await process.began())
    assert isinstance(again, Opened)
    assert again.parts == ("p1",)
    assert await process.look(BUBBLE) == [(begun.turn, "reply", "open", "", '["p1"]')]


async def test_an_answer_that_comes_while_the_pause_is_being_shown_follows_it(process: StoreProcess) -> None:
    begun = await process.called()
    await shown(process, begun, "p1")
    await process.die()
    pause = await process.claim()
    assert isinstance(pause, Reply)
    again = await process.began()
    assert await opened(process, again) == Closed(for_good=False)
    await process.finish(again)
    assert pause.bubble is not None
    assert await process.twice(record_shown, pause, pause.kind, ("p1",), pause.bubble, process.now)
    assert (await delivered(process)).text == "done"


@pytest.mark.parametrize(
    ("command", "why"), [("/stop", "/stop"), ("/new", "/new"), ("/retry", "/retry")], ids=["stop", "new", "retry"]
)
@pytest.mark.parametrize("paused", [False, True])
async def test_a_command_that_ends_the_turn_ends_its_bubble(
    process: StoreProcess,
    command: str,
    why: str,
    paused: bool,  # noqa: FBT001
) -> None:
    begun = await process.called()
    await shown(process, begun, "p1")
    if paused:
        await process.die()
        await delivered(process)
    await process.command(command)
    reply = await delivered(process)
    assert (reply.id, reply.kind, reply.text) == (begun.turn, "broken_off", outbox_texts.ended(why))


async def test_nothing_is_left_of_a_bubble_of_which_nothing_is_out(process: StoreProcess) -> None:
    begun = await process.called()
    await shown(process, begun)
    await process.twice(fail, begun, "why", "it failed", process.now, STREAMS)
    assert await process.look(BUBBLE) == [(begun.turn, "notice", "pending", "it failed", "[]")]


async def test_a_failure_is_said_in_the_bubble(process: StoreProcess) -> None:
    begun = await process.called()
    await shown(process, begun, "p1")
    await process.twice(fail, begun, "why", "it failed", process.now, STREAMS)
    assert await process.look(BUBBLE) == [(begun.turn, "broken_off", "pending", "it failed", '["p1"]')]


async def test_a_suspension_is_said_in_the_bubble(process: StoreProcess) -> None:
    begun = await process.called()
    await shown(process, begun, "p1")
    await replace(process, stuck_after=1).die()
    ((number, kind, state, text, _),) = await process.look(BUBBLE)
    assert (number, kind, state, "set aside" in text or "suspended" in text) == (
        begun.turn,
        "broken_off",
        "pending",
        True,
    )


async def test_an_approval_request_leaves_the_bubble_above_it_and_the_answer_gets_another(
    process: StoreProcess,
) -> None:
    begun = await process.called()
    await shown(process, begun, "p1")
    call = ToolCall("c1", "write", ask="May I?")
    number, question = process.ids.next(), process.ids.next()
    terms = ApprovalTerms(
        id=question, at=process.now, expires_s=60, delivery=STREAMS, bubble=number, said="all that was said"
    )
    assert (await process.twice(begin_approved, begun, call, terms)).may is May.REQUESTED
    left = await delivered(process)
    assert (left.id, left.text, left.bubble and left.bubble.said) == (number, "", "all that was said")
    asked = await sent(process)
    assert (asked.id, asked.kind) == (question, "approval_request")
    await process.command(f"/approve {question}")
    await sent(process)
    again = await opened(process, await process.began())
    assert isinstance(again, Opened)
    assert (again.parts, again.bubble.name) == ((), f"{begun.turn}.1")


@pytest.mark.parametrize("being_sent", [False, True])
async def test_an_approval_request_of_the_next_attempt_finds_what_was_said_above_it(
    process: StoreProcess,
    being_sent: bool,  # noqa: FBT001
) -> None:
    """The process died before the request. While the interruption is just being shown, nothing is requested."""
    begun = await process.called()
    await shown(process, begun, "p1")
    await process.die()
    pause = await process.claim() if being_sent else await delivered(process)
    assert isinstance(pause, Reply)
    again, number, question = await process.began(), process.ids.next(), process.ids.next()
    terms = ApprovalTerms(
        id=question, at=process.now, expires_s=60, delivery=STREAMS, bubble=number, said="all that was said"
    )
    call = ToolCall("c1", "write", ask="May I?")
    if being_sent:
        assert pause.bubble is not None
        assert (await process.twice(begin_approved, again, call, terms)).may is May.LATER
        assert [row[:3] for row in await process.look(BUBBLE)] == [(begun.turn, "paused", "sending")]
        await process.twice(record_shown, pause, pause.kind, pause.sent_parts, pause.bubble, process.now)
    assert (await process.twice(begin_approved, again, call, terms)).may is May.REQUESTED
    rows = [row[:3] for row in await process.look(BUBBLE)]
    assert rows == [(number, "broken_off", "pending"), (question, "approval_request", "pending")]


# -- what another process knows, and what may still be in flight -------------------------------------------------------


async def bubble_in(process: StoreProcess, row: int) -> Bubble | None:
    """The bubble as it is stored."""
    return bubble_of((await process.look("SELECT bubble FROM outbox WHERE id=$1", row))[0][0])


async def unsettled_of(process: StoreProcess, row: int) -> int:
    bubble = await bubble_in(process, row)
    assert bubble is not None
    return bubble.unsettled


async def test_the_messages_that_a_dead_instance_was_writing_are_unsettled(process: StoreProcess) -> None:
    """Those it streamed and those it was just sending; not what is pending, nor those of others."""
    turns = {chat: await process.called(chat=chat) for chat in ("open", "sending", "pending")}
    openings = {chat: (await shown(process, begun, "p1")).opening for chat, begun in turns.items()}
    await process.store.run(finish, turns["sending"], process.answer(turns["sending"]), NOW, process.instance, None)
    await process.store.run(finish, turns["pending"], process.answer(turns["pending"]), STREAMS, process.instance, None)
    await process.plant("UPDATE outbox SET bubble=$2 WHERE id=$1", turns["pending"].turn, '{"name":"b","opening":5}')
    other = replace(process, instance=2)
    turns["other"] = await other.called(chat="other")
    await shown(other, turns["other"], "p1")
    assert await process.states("outbox") == ["open", "sending", "pending", "open"]
    await process.twice(unsettle, process.instance)
    assert [await unsettled_of(process, begun.turn) for begun in turns.values()] == [
        openings["open"], openings["sending"], 0, 0,
    ]  # fmt: skip


async def test_a_reply_that_is_no_streaming_message_is_not_unsettled(process: StoreProcess) -> None:
    await process.talk()
    await process.sending()
    await process.unchanged(unsettle, process.instance)


async def test_a_damaged_row_is_left_alone_and_stops_nobody(process: StoreProcess) -> None:
    damaged, whole = await process.called(chat="a"), await process.called(chat="b")
    await shown(process, damaged, "p1")
    opening = (await shown(process, whole, "p1")).opening
    await process.plant("UPDATE outbox SET bubble='{' WHERE id=$1", damaged.turn)
    await process.twice(unsettle, process.instance)
    assert await process.look("SELECT bubble FROM outbox WHERE id=$1", damaged.turn) == [("{",)]
    assert await unsettled_of(process, whole.turn) == opening


async def test_what_the_parts_show_is_known_to_their_new_writer_alone(process: StoreProcess) -> None:
    """It edits them at once, and records nothing before: what was stored about them is no longer true."""
    begun = await process.called()
    await shown(process, begun, "p1")
    await process.die()
    pause = await process.sending()
    assert pause.bubble is not None
    known = structs.replace(pause.bubble, shown=("hash",))
    await process.store.run(record_shown, pause, pause.kind, pause.sent_parts, known, process.now)
    before = await bubble_in(process, begun.turn)
    assert before is not None
    assert before.shown == ("hash",)
    opening = Opening(
        number=process.ids.next(), instance=process.instance, at=process.now, on_unknown=UnknownAction.REPEAT
    )
    found = await process.twice(open_bubble, await process.began(), opening)
    after = await bubble_in(process, begun.turn)
    assert isinstance(found, Opened)
    assert after is not None
    assert (found.bubble.shown, after.shown, after.opening) == ((), (), opening.number)


# -- the notice of a turn's end has the turn's number ------------------------------------------------------------------


async def approved(process: StoreProcess) -> StartedTurn:
    """The next attempt of a turn whose streaming message stands above an approval request."""
    begun = await process.called()
    await shown(process, begun, "p1")
    terms = ApprovalTerms(
        id=process.ids.next(), at=process.now, expires_s=60, delivery=STREAMS, bubble=process.ids.next(), said="so far"
    )
    await process.store.run(begin_approved, begun, ToolCall("c1", "write", ask="May I?"), terms)
    await delivered(process)
    await sent(process)
    await process.command(f"/approve {terms.id}")
    await sent(process)
    return await process.began()


async def test_a_notice_beneath_an_approval_request_has_send_keys_of_its_own(process: StoreProcess) -> None:
    """What stands above the request was sent under the turn's number: a platform that knows keys would show nothing else."""
    begun = await approved(process)
    await process.twice(fail, begun, "why", "it failed", process.now, STREAMS)
    bubble = await bubble_in(process, begun.turn)
    assert (await process.look(BUBBLE))[0] == (begun.turn, "notice", "pending", "it failed", "[]")
    assert bubble == Bubble(name=f"{begun.turn}.1")


async def test_a_notice_without_an_approval_request_has_its_own_number_as_its_key(process: StoreProcess) -> None:
    begun = await process.called()
    await process.twice(fail, begun, "why", "it failed", process.now, STREAMS)
    assert await process.look("SELECT kind, bubble FROM outbox WHERE id=$1", begun.turn) == [("notice", None)]


async def test_a_notice_that_is_an_event_has_no_send_keys(process: StoreProcess) -> None:
    begun = await approved(process)
    await process.twice(fail, begun, "why", "it failed", process.now, BY_EVENT)
    assert await process.look("SELECT state, bubble FROM outbox WHERE id=$1", begun.turn) == [("sent", None)]
