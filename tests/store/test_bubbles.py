"""The bubble of a turn: one row from the first words to the answer, or to whatever ends the turn."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from msgspec import structs

from everturn.decide import bubble_words
from everturn.decide.delivery import Doubtful
from everturn.errors import FenceLost
from everturn.model import Bubble, Reply, ToolCall
from everturn.store.operations.approvals import Asking, May, ask_first
from everturn.store.operations.outbox import record_bubble, record_sent, record_shown, recover_sending
from everturn.store.operations.previews import Closed, Opened, Opening, open_bubble, still_ours
from everturn.store.operations.telling import Delivery
from everturn.store.operations.turn_values import Begun
from everturn.store.operations.turns import fail, finish
from tests.contracts.store import Life, broken, living

STREAMS = Delivery(by_event=False, edits=True, streams=True)
NOW = structs.replace(STREAMS, send_now=True)
BUBBLE = "SELECT id, kind, state, text, parts FROM outbox ORDER BY id"


@pytest.fixture
async def life(store_url: str) -> AsyncIterator[Life]:
    async with living(store_url, delivery=STREAMS) as life:
        yield life
        assert await life.store.read(broken) == {}


async def opened(life: Life, begun: Begun, doubtful: Doubtful = Doubtful.REPEAT) -> Opened | Closed:
    opening = Opening(number=life.ids.next(), instance=life.instance, at=life.now, doubtful=doubtful)
    return await life.twice(open_bubble, begun, opening)


async def shown(life: Life, begun: Begun, *parts: str) -> Bubble:
    """A bubble with these parts on the screen."""
    found = await opened(life, begun)
    assert isinstance(found, Opened)
    bubble = structs.replace(found.bubble, sending=None, said="first words")
    await life.twice(record_bubble, begun.turn, bubble.opening, parts, bubble)
    return bubble


async def delivered(life: Life) -> Reply:
    reply = await life.sending()
    assert reply.bubble is not None
    await life.twice(record_shown, reply, reply.kind, reply.sent_parts, reply.bubble, life.now)
    return reply


async def sent(life: Life) -> Reply:
    """What is no bubble is out."""
    reply = await life.sending()
    await life.store.run(record_sent, reply, ("p",), life.now)
    return reply


async def test_the_answer_is_owed_in_the_same_row(life: Life) -> None:
    begun = await life.called()
    bubble = await shown(life, begun, "p1")
    assert await life.claim() is None  # while it grows it is nobody else's
    assert await life.store.read(still_ours, begun, bubble.opening)
    await life.twice(finish, begun, life.answer(begun), STREAMS, life.instance, None)
    assert not await life.store.read(still_ours, begun, bubble.opening)
    reply = await delivered(life)
    assert (reply.id, reply.kind, reply.text, reply.sent_parts) == (begun.turn, "reply", "done", ("p1",))
    assert await life.look(BUBBLE) == [(begun.turn, "reply", "sent", "done", '["p1"]')]


async def test_where_a_repetition_is_harmless_it_is_taken_with_the_finish(life: Life) -> None:
    begun = await life.called()
    await shown(life, begun, "p1")
    finished = await life.twice(finish, begun, life.answer(begun), NOW, life.instance, None)
    assert finished.reply is not None
    assert (finished.reply.id, finished.reply.sent_parts) == (begun.turn, ("p1",))
    await life.store.run(recover_sending, life.instance, {"fake": Doubtful.MARK}, life.now)
    assert await life.look("SELECT state, marked FROM outbox") == [("owed", 0)]  # a change may be repeated


@pytest.mark.parametrize("doubtful", Doubtful)
async def test_first_words_in_doubt_are_decided_by_who_goes_on(life: Life, doubtful: Doubtful) -> None:
    begun = await life.called()
    first = await opened(life, begun)
    assert isinstance(first, Opened)
    assert first.bubble.sending == 0
    await life.die()
    again = await life.began()
    second = await opened(life, again, doubtful)
    if doubtful in {Doubtful.ASK, Doubtful.DROP}:
        assert second == Closed(for_good=True)
        await life.finish(again)
        assert await life.states("outbox") == ["doubtful" if doubtful is Doubtful.ASK else "dead"]
        assert '"replaces":[0]' in (await life.look("SELECT bubble FROM outbox"))[0][0]  # if it is sent after all
    else:
        assert isinstance(second, Opened)
        marked = doubtful is Doubtful.MARK
        assert (second.bubble.replaces, second.bubble.repeats) == ((0,) if marked else (), not marked)


async def test_an_interruption_pauses_it_and_the_next_attempt_goes_on(life: Life) -> None:
    begun = await life.called()
    await shown(life, begun, "p1")
    await life.die()
    with pytest.raises(FenceLost):
        await opened(life, begun)
    assert (await delivered(life)).text == bubble_words.PAUSED
    again = await opened(life, await life.began())
    assert isinstance(again, Opened)
    assert again.parts == ("p1",)
    assert await life.look(BUBBLE) == [(begun.turn, "reply", "open", "", '["p1"]')]


async def test_an_answer_that_comes_while_the_pause_is_being_shown_follows_it(life: Life) -> None:
    begun = await life.called()
    await shown(life, begun, "p1")
    await life.die()
    pause = await life.claim()
    assert isinstance(pause, Reply)
    again = await life.began()
    assert await opened(life, again) == Closed(for_good=False)
    await life.finish(again)
    assert pause.bubble is not None
    assert await life.twice(record_shown, pause, pause.kind, ("p1",), pause.bubble, life.now)
    assert (await delivered(life)).text == "done"


@pytest.mark.parametrize(
    ("command", "why"), [("/stop", "/stop"), ("/new", "/new"), ("/retry", "/retry")], ids=["stop", "new", "retry"]
)
@pytest.mark.parametrize("paused", [False, True])
async def test_a_command_that_ends_the_turn_ends_its_bubble(life: Life, command: str, why: str, paused: bool) -> None:  # noqa: FBT001
    begun = await life.called()
    await shown(life, begun, "p1")
    if paused:
        await life.die()
        await delivered(life)
    await life.command(command)
    reply = await delivered(life)
    assert (reply.id, reply.kind, reply.text) == (begun.turn, "broken_off", bubble_words.ended(why))


async def test_nothing_is_left_of_a_bubble_of_which_nothing_is_out(life: Life) -> None:
    begun = await life.called()
    await shown(life, begun)
    await life.twice(fail, begun, "why", "it failed", life.now, STREAMS)
    assert await life.look(BUBBLE) == [(begun.turn, "notice", "owed", "it failed", "[]")]


async def test_a_failure_is_said_in_the_bubble(life: Life) -> None:
    begun = await life.called()
    await shown(life, begun, "p1")
    await life.twice(fail, begun, "why", "it failed", life.now, STREAMS)
    assert await life.look(BUBBLE) == [(begun.turn, "broken_off", "owed", "it failed", '["p1"]')]


async def test_a_suspension_is_said_in_the_bubble(life: Life) -> None:
    begun = await life.called()
    await shown(life, begun, "p1")
    await replace(life, stuck_after=1).die()
    ((number, kind, state, text, _),) = await life.look(BUBBLE)
    assert (number, kind, state, "set aside" in text or "suspended" in text) == (begun.turn, "broken_off", "owed", True)


async def test_a_question_leaves_the_bubble_above_it_and_the_answer_gets_another(life: Life) -> None:
    begun = await life.called()
    await shown(life, begun, "p1")
    call = ToolCall("c1", "write", ask="May I?")
    number, question = life.ids.next(), life.ids.next()
    asking = Asking(id=question, at=life.now, expires_s=60, delivery=STREAMS, bubble=number, said="all that was said")
    assert (await life.twice(ask_first, begun, call, asking)).may is May.ASKED
    left = await delivered(life)
    assert (left.id, left.text, left.bubble and left.bubble.said) == (number, "", "all that was said")
    asked = await sent(life)
    assert (asked.id, asked.kind) == (question, "question")
    await life.command(f"/approve {question}")
    await sent(life)
    again = await opened(life, await life.began())
    assert isinstance(again, Opened)
    assert (again.parts, again.bubble.name) == ((), f"{begun.turn}.1")


@pytest.mark.parametrize("in_hand", [False, True])
async def test_a_question_of_the_next_attempt_finds_what_was_said_above_it(life: Life, in_hand: bool) -> None:  # noqa: FBT001
    """It died before it asked. While somebody is just showing that it was interrupted, nothing is asked."""
    begun = await life.called()
    await shown(life, begun, "p1")
    await life.die()
    pause = await life.claim() if in_hand else await delivered(life)
    assert isinstance(pause, Reply)
    again, number, question = await life.began(), life.ids.next(), life.ids.next()
    asking = Asking(id=question, at=life.now, expires_s=60, delivery=STREAMS, bubble=number, said="all that was said")
    call = ToolCall("c1", "write", ask="May I?")
    if in_hand:
        assert pause.bubble is not None
        assert (await life.twice(ask_first, again, call, asking)).may is May.LATER
        assert [row[:3] for row in await life.look(BUBBLE)] == [(begun.turn, "paused", "sending")]
        await life.twice(record_shown, pause, pause.kind, pause.sent_parts, pause.bubble, life.now)
    assert (await life.twice(ask_first, again, call, asking)).may is May.ASKED
    rows = [row[:3] for row in await life.look(BUBBLE)]
    assert rows == [(number, "broken_off", "owed"), (question, "question", "owed")]
