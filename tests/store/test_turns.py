"""The life of a turn: begun by one, fenced against all others, written once, ended once, answered together with its reply."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from everturn.decide.notes import tail_key
from everturn.decide.recovery import Verdict
from everturn.errors import FenceLost
from everturn.model import ACTIVE, TURN_MOVES, Message, Reply, ResumePending, TurnState
from everturn.store.operations.beginning import begin_next
from everturn.store.operations.reading import transcript
from everturn.store.operations.recovery import cut_off, cut_off_by_drain, suspend_session
from everturn.store.operations.turn_values import Begun
from everturn.store.operations.turns import begin_effect, calling, effects_of, fail, finish, finish_effect, prove, step
from tests.contracts.store import AT_ONCE, BY_EVENT, Life, broken, call_of, key_of, living, response, result

HOUR = 3600.0


@pytest.fixture
async def life(store_url: str) -> AsyncIterator[Life]:
    async with living(store_url) as life:
        yield life


# -- begin ------------------------------------------------------------------------------------------------------------


async def test_of_twenty_who_take_a_key_one_wins(life: Life) -> None:
    """Promise 3: each is an instance of its own."""
    await life.accept("one")
    await life.accept("two")
    lives = [replace(life, instance=number) for number in range(1, 21)]
    claims = await asyncio.gather(*(each.begin() for each in lives))
    (begun,) = [claim for claim in claims if isinstance(claim, Begun)]
    entry = await life.entry()
    assert (entry.turn, entry.fence) == (begun.turn, begun.fence)
    assert entry.holder == claims.index(begun) + 1
    assert await life.states("turn") == ["running"]
    assert await life.states("inbox") == ["claimed", "waiting"]


async def test_a_key_that_is_asked_for_again_by_its_holder_is_the_same_turn(life: Life) -> None:
    """The operation's own commit, of which its caller had not heard."""
    await life.accept()
    claims = await asyncio.gather(*(life.begin() for _ in range(20)))
    assert {claim.turn for claim in claims if isinstance(claim, Begun)} == {(await life.entry()).turn}
    assert len(await life.states("turn")) == 1


async def test_a_key_without_work_is_not_taken(life: Life) -> None:
    assert await life.unchanged(begin_next, key_of("nobody"), life.start()) is None
    await life.talk()
    assert await life.unchanged(begin_next, key_of(), life.start()) is None
    await life.accept("/new")
    assert await life.unchanged(begin_next, key_of(), life.start()) is None


async def test_many_keys_are_worked_on_at_once_and_each_in_order(life: Life) -> None:
    async def lane(chat: str) -> None:
        for number in range(4):
            await life.accept(str(number), chat)
        while isinstance(begun := await life.begin(chat), Begun):
            await life.tool(begun)
            await life.finish(begun, 3, f"answer {begun.words[0]}")

    await asyncio.gather(*(lane(f"chat {number}") for number in range(12)))
    for number in range(12):
        said = await life.store.read(transcript, (await life.entry(f"chat {number}")).session_id or "", 0, 100)
        assert [row.content for row in said if row.role == "user"] == ["0", "1", "2", "3"]
        assert [row.seq for row in said] == list(range(1, 17))
    assert await life.store.read(broken) == {}


# -- run twice --------------------------------------------------------------------------------------------------------


async def test_beginning_twice_says_the_same(life: Life) -> None:
    here = replace(life, delivery=BY_EVENT)
    await here.accept("one")
    begun = await here.twice(begin_next, key_of(), here.start())
    assert isinstance(begun, Begun)
    assert (begun.words, begun.attempt, len(begun.events)) == (("one",), 1, 1)


async def test_beginning_twice_keeps_the_note_of_a_tools_tail(life: Life) -> None:
    """The user's text is already the last row when the second run looks for the tail."""
    begun = await life.called()
    await life.tool(begun)
    await life.store.run(fail, begun, "why", "sorry", life.now, life.delivery)
    await life.accept("next")
    again = await life.twice(begin_next, key_of(), life.start())
    assert isinstance(again, Begun)
    assert again.note is not None
    assert (again.note.kind, again.note.tail_key is None) == ("tool_tail", False)


async def test_resuming_twice_says_the_same(life: Life) -> None:
    begun = await life.called()
    await life.tool(begun)
    await life.die()
    after = replace(life, instance=2)
    again = await after.twice(begin_next, key_of(), after.start())
    assert isinstance(again, Begun)
    assert again.note is not None
    assert (again.turn, again.attempt, again.note.kind) == (begun.turn, 2, "resume:restart_interrupted")
    assert again.note.tail_key == tail_key([result(begun, 2, "call")])


async def test_a_message_that_wakes_a_turn_joins_it_once(life: Life) -> None:
    here = replace(life, resume="on_message")
    begun = await here.called("one")
    await here.tool(begun)
    await here.die()
    assert await here.begin() is None
    await here.accept("two")
    again = await here.twice(begin_next, key_of(), here.start())
    assert isinstance(again, Begun)
    assert (again.turn, again.words, again.seq, again.first_seq) == (begun.turn, ("one", "two"), 4, 1)
    await here.finish(again)
    assert await life.states("inbox") == ["done", "done"]


async def test_every_write_of_a_turn_run_twice_is_there_once(life: Life) -> None:
    begun = await life.called()
    await life.twice(calling, begun)
    await life.twice(prove, begun)
    asked = response(begun, 1, "a", "b", text="first", at=life.now)
    await life.twice(step, begun, asked, call_of("a"), "tail", prove_it=True)
    await life.twice(finish_effect, begun, result(begun, 2, "a", at=life.now), call_of("b"))
    await life.twice(finish_effect, begun, result(begun, 3, "b", at=life.now), None)
    await life.twice(begin_effect, begun, call_of("c"), life.now)
    assert await life.store.read(effects_of, begun.turn) == {"a": "done", "b": "done", "c": "begun"}


async def test_a_committed_result_is_not_replaced(life: Life) -> None:
    """Promise 4"""
    begun = await life.called()
    await life.tool(begun)
    await life.unchanged(begin_effect, begun, call_of("call"), life.now + 5)
    await life.unchanged(finish_effect, begun, result(begun, 2, "call", "another", at=life.now + 5), None)


@pytest.mark.parametrize("delivery", [AT_ONCE, BY_EVENT], ids=["at once", "by event"])
async def test_finishing_twice_still_gives_what_there_is_to_send(life: Life, delivery: object) -> None:
    here = replace(life, delivery=delivery)  # type: ignore[arg-type]
    begun = await here.begun()
    await here.accept("next")
    finished = await here.twice(finish, begun, here.answer(begun), here.delivery, here.instance, "tail")
    assert (finished.more, finished.reply is None, len(finished.events)) == (
        (True, True, 2) if delivery == BY_EVENT else (True, False, 0)
    )


async def test_a_reply_that_somebody_else_sends_is_not_given_again(life: Life) -> None:
    here = replace(life, delivery=AT_ONCE)
    begun = await here.begun()
    finished = await here.finish(begun)
    assert isinstance(finished.reply, Reply)
    await life.plant("UPDATE outbox SET state='owed', instance=NULL")
    assert (await here.finish(begun)).reply is None
    assert isinstance(await replace(life, instance=2).claim(), Reply)
    assert (await here.finish(begun)).reply is None


async def test_failing_twice_says_the_same(life: Life) -> None:
    here = replace(life, delivery=BY_EVENT)
    begun = await here.begun()
    events = await here.twice(fail, begun, "why", "sorry", here.now, here.delivery)
    assert [event.kind for event in events] == ["notice", "turn"]
    assert await life.look("SELECT state, why FROM inbox") == [("dead", "why")]


# -- ends -------------------------------------------------------------------------------------------------------------


async def test_an_answer_commits_with_everything_that_follows_from_it(life: Life) -> None:
    """Promise 6"""
    here = replace(life, delivery=BY_EVENT)
    begun = await here.called()
    await here.die()
    again = await here.began()
    finished = await here.finish(again, text="the answer")
    entry = await life.entry()
    assert (entry.state, entry.unclean_ends, entry.holder, entry.turn, entry.turns) == (ACTIVE, 0, None, None, 1)
    assert await life.look("SELECT id, state, text FROM outbox") == [(begun.turn, "sent", "the answer")]
    assert [(event.seq, event.kind) for event in finished.events] == [
        (entry.event_seq - 1, "reply"),
        (entry.event_seq, "turn"),
    ]
    assert (await life.states("turn"), await life.states("inbox")) == (["answered"], ["done"])


async def test_a_failed_turn_keeps_the_mark_and_the_count(life: Life) -> None:
    """Behaviour 2.2: only a successful turn clears them."""
    await life.called()
    await life.die()
    again = await life.began()
    await life.store.run(fail, again, "why", "sorry", life.now, life.delivery)
    entry = await life.entry()
    assert (entry.state, entry.unclean_ends) == (ResumePending("restart_interrupted", life.now), 1)
    assert (await life.states("turn"), await life.states("inbox")) == (["failed"], ["dead"])
    assert await life.look("SELECT kind, text FROM outbox") == [("notice", "sorry")]


async def test_a_tool_tail_is_offered_until_the_model_has_answered_for_it(life: Life) -> None:
    begun = await life.called()
    await life.tool(begun)
    await life.store.run(fail, begun, "why", "sorry", life.now, life.delivery)
    second = await life.begun("next")
    assert second.note is not None
    await life.store.run(step, second, response(second, 1), None, second.note.tail_key, prove_it=False)
    await life.store.run(fail, second, "why", "sorry", life.now, life.delivery)
    await life.plant("DELETE FROM message WHERE seq>3")  # the tail is last again, as after an undo
    await life.plant("UPDATE entry SET seq=3, tail=1")
    assert (await life.begun("third")).note is None


# -- fences -----------------------------------------------------------------------------------------------------------

Loss = Callable[[Life, Begun], Awaitable[object]]


async def lose_by_new(life: Life, begun: Begun) -> None:
    await life.command("/new")


async def lose_by_stop(life: Life, begun: Begun) -> None:
    await life.command("/stop")


async def lose_by_takeover(life: Life, begun: Begun) -> None:
    await life.die()


async def lose_by_resume_elsewhere(life: Life, begun: Begun) -> None:
    await life.die()
    await replace(life, instance=2).began()


async def lose_by_drain(life: Life, begun: Begun) -> None:
    await life.store.run(cut_off_by_drain, begun.turn, begun.key, 3, life.cause("restart_timeout"), life.delivery)


async def lose_by_suspension(life: Life, begun: Begun) -> None:
    await life.store.run(suspend_session, begun.key, life.now)


async def lose_by_answering(life: Life, begun: Begun) -> None:
    await life.finish(begun)


async def lose_by_failing(life: Life, begun: Begun) -> None:
    await life.store.run(fail, begun, "why", "sorry", life.now - 1, life.delivery)


async def lose_by_next_turn(life: Life, begun: Begun) -> None:
    await life.finish(begun)
    await life.begun("next")


LOSSES: list[Loss] = [
    lose_by_new, lose_by_stop, lose_by_takeover, lose_by_resume_elsewhere, lose_by_drain, lose_by_suspension,
    lose_by_answering, lose_by_failing, lose_by_next_turn,
]  # fmt: skip


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.__name__.removeprefix("lose_by_"))
async def test_every_late_write_of_a_turn_is_refused(life: Life, loss: Loss) -> None:
    """Promise 8: in the database, whoever wrote last."""
    begun = await life.called()
    await life.store.run(step, begun, response(begun, 1, "call"), call_of("call"), None, prove_it=False)
    await loss(life, begun)
    stored = await life.dump()
    late: list[asyncio.Future[Any]] = [
        life.store.run(step, begun, response(begun, 2, "late"), call_of("late"), "tail", prove_it=True),
        life.store.run(begin_effect, begun, call_of("late"), life.now),
        life.store.run(finish_effect, begun, result(begun, 2, "call"), call_of("late")),
        life.store.run(calling, begun),
        life.store.run(prove, begun),
    ]
    assert [type(said) for said in await asyncio.gather(*late, return_exceptions=True)] == [FenceLost] * len(late)
    if loss not in {lose_by_answering, lose_by_next_turn}:  # there a second finish says what the first said
        with pytest.raises(FenceLost):
            await life.store.run(finish, begun, life.answer(begun, 2, "late"), life.delivery, life.instance, None)
    assert await life.store.run(fail, begun, "late", "late", life.now, life.delivery) == ()
    assert await life.dump() == stored


async def test_nothing_is_written_into_an_ended_session(life: Life) -> None:
    """Promise 8, under a race: each of the writes came before `/new`, or is not there."""
    for number in range(10):
        chat = str(number)
        begun = await life.called(chat=chat)
        writes = [
            life.store.run(step, begun, response(begun, 1, at=life.now), None, None, prove_it=False),
            life.command("/new", chat),
            life.finish(begun, 2),
        ]
        await asyncio.gather(*writes, return_exceptions=True)
        ((messages, ended_at),) = await life.look(
            "SELECT messages, ended_at FROM session WHERE session_id=$1", begun.session_id
        )
        rows = await life.look("SELECT max(seq) FROM message WHERE session_id=$1", begun.session_id)
        assert ended_at is not None
        assert rows == [(messages,)]


# -- moves ------------------------------------------------------------------------------------------------------------

Move = Callable[[Life, Begun], Awaitable[object]]


async def move_begin(life: Life, begun: Begun) -> None:
    await life.store.run(begin_next, begun.key, life.start())


async def move_finish(life: Life, begun: Begun) -> None:
    await life.store.run(finish, begun, life.answer(begun), life.delivery, life.instance, None)


async def move_fail(life: Life, begun: Begun) -> None:
    await life.store.run(fail, begun, "why", "sorry", life.now, life.delivery)


async def move_new(life: Life, begun: Begun) -> None:
    await life.command("/new", begun.source.chat_id or "")


async def move_stop(life: Life, begun: Begun) -> None:
    await life.command("/stop", begun.source.chat_id or "")


async def move_drain(life: Life, begun: Begun) -> None:
    await life.store.run(cut_off_by_drain, begun.turn, begun.key, 1, life.cause(), life.delivery)


async def move_suspend(life: Life, begun: Begun) -> None:
    await life.store.run(cut_off, begun.turn, begun.key, Verdict.SUSPEND, life.cause(), life.delivery)


async def move_interrupt(life: Life, begun: Begun) -> None:
    await life.store.run(cut_off, begun.turn, begun.key, Verdict.COUNT, life.cause(), life.delivery)


MOVES: list[Move] = [
    move_begin, move_finish, move_fail, move_new, move_stop, move_drain, move_suspend, move_interrupt
]  # fmt: skip
# Nothing makes a turn wait for an approval yet.
STATES = [state for state in TurnState if state is not TurnState.WAITING]
OPEN = {TurnState.RUNNING, TurnState.INTERRUPTED}


async def in_state(life: Life, chat: str, state: TurnState) -> Begun:
    """A turn in this state, with its key as it is then: held, free with the turn open, or free."""
    begun = await life.called(chat=chat)
    if state is TurnState.RUNNING:
        return begun
    turn = begun.turn if state in OPEN else None
    ended = None if state in OPEN else 1.0
    await life.plant("UPDATE entry SET holder=NULL, turn=$2 WHERE key=$1", begun.key, turn)
    await life.plant("UPDATE turn SET state=$2, ended_at=$3 WHERE id=$1", begun.turn, state, ended)
    return begun


async def test_no_operation_makes_a_move_that_is_not_in_the_table(life: Life) -> None:
    """Every state against every operation that moves turns; an ended turn keeps every column."""
    wrong = []
    for state, move in product(STATES, MOVES):
        begun = await in_state(life, f"{state} {move.__name__}", state)
        before = await life.look("SELECT * FROM turn WHERE id=$1", begun.turn)
        await asyncio.gather(move(life, begun), return_exceptions=True)
        after = await life.look("SELECT * FROM turn WHERE id=$1", begun.turn)
        ((now, ended_at),) = await life.look("SELECT state, ended_at FROM turn WHERE id=$1", begun.turn)
        if now != state and TurnState(now) not in TURN_MOVES[state]:
            wrong.append(f"{state} -> {now} by {move.__name__}")
        if (ended_at is None) != (now in OPEN) or (state not in OPEN and after != before):
            wrong.append(f"{state} was changed by {move.__name__}")
    assert wrong == []


async def test_a_message_keeps_its_calls_and_its_marks(life: Life) -> None:
    begun = await life.called("wörds\n'\"😀")
    asked = response(begun, 1, "a", "b", text="I'll look", at=5.5)
    hidden = Message(role="tool", content="?", seq=begun.seq + 2, call_id="a", unknown=True, at=6.5)
    await life.store.run(step, begun, asked, call_of("a"), None, prove_it=False)
    await life.store.run(finish_effect, begun, hidden, None)
    said = await life.store.read(transcript, begun.session_id, 0, 10)
    assert [(row.role, row.content, row.seq, row.unknown) for row in said] == [
        ("user", "wörds\n'\"😀", 1, False), ("assistant", "I'll look", 2, False), ("tool", "?", 3, True),
    ]  # fmt: skip
    assert (said[1].calls, said[2].call_id, {row.turn for row in said}) == (asked.calls, "a", {begun.turn})
