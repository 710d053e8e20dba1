"""Turns as rows: started by one instance, fenced against all others, written once, ended once, answered with their reply."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from everturn.errors import FenceLost
from everturn.model import ACTIVE, TURN_MOVES, Message, Reply, ResumePending, TurnState
from everturn.sessions.rows.entries import transcript
from everturn.sessions.rules.notes import tail_key
from everturn.turns.rows.beginning import begin_next
from everturn.turns.rows.recovery import cut_off, cut_off_by_drain, suspend_session
from everturn.turns.rows.turn_values import StartedTurn
from everturn.turns.rows.turns import begin_effect, calling, effects_of, fail, finish, finish_effect, prove, step
from everturn.turns.rules.recovery import RecoveryVerdict
from tests.contracts.store import AT_ONCE, BY_EVENT, StoreProcess, broken, call_of, key_of, living, response, result

HOUR = 3600.0


@pytest.fixture
async def process(store_url: str) -> AsyncIterator[StoreProcess]:
    async with living(store_url) as process:
        yield process


# -- begin ------------------------------------------------------------------------------------------------------------


async def test_of_twenty_claims_of_a_key_one_wins(process: StoreProcess) -> None:
    """Promise 3: each is an instance of its own."""
    await process.accept("one")
    await process.accept("two")
    processes = [replace(process, instance=number) for number in range(1, 21)]
    claims = await asyncio.gather(*(each.begin() for each in processes))
    (begun,) = [claim for claim in claims if isinstance(claim, StartedTurn)]
    entry = await process.entry()
    assert (entry.turn, entry.fence) == (begun.turn, begun.fence)
    assert entry.holder == claims.index(begun) + 1
    assert await process.states("turn") == ["running"]
    assert await process.states("inbox") == ["claimed", "queued"]


async def test_a_key_that_is_asked_for_again_by_its_holder_is_the_same_turn(process: StoreProcess) -> None:
    """The operation's own commit, whose outcome its caller did not know."""
    await process.accept()
    claims = await asyncio.gather(*(process.begin() for _ in range(20)))
    assert {claim.turn for claim in claims if isinstance(claim, StartedTurn)} == {(await process.entry()).turn}
    assert len(await process.states("turn")) == 1


async def test_a_key_without_work_is_not_taken(process: StoreProcess) -> None:
    assert await process.unchanged(begin_next, key_of("nobody"), process.start()) is None
    await process.talk()
    assert await process.unchanged(begin_next, key_of(), process.start()) is None
    await process.accept("/new")
    assert await process.unchanged(begin_next, key_of(), process.start()) is None


async def test_many_keys_are_worked_on_at_once_and_each_in_order(process: StoreProcess) -> None:
    async def lane(chat: str) -> None:
        for number in range(4):
            await process.accept(str(number), chat)
        while isinstance(begun := await process.begin(chat), StartedTurn):
            await process.tool(begun)
            await process.finish(begun, 3, f"answer {begun.texts[0]}")

    await asyncio.gather(*(lane(f"chat {number}") for number in range(12)))
    for number in range(12):
        said = await process.store.read(transcript, (await process.entry(f"chat {number}")).session_id or "", 0, 100)
        assert [row.content for row in said if row.role == "user"] == ["0", "1", "2", "3"]
        assert [row.seq for row in said] == list(range(1, 17))
    assert await process.store.read(broken) == {}


# -- run twice --------------------------------------------------------------------------------------------------------


async def test_beginning_twice_says_the_same(process: StoreProcess) -> None:
    here = replace(process, delivery=BY_EVENT)
    await here.accept("one")
    begun = await here.twice(begin_next, key_of(), here.start())
    assert isinstance(begun, StartedTurn)
    assert (begun.texts, begun.attempt, len(begun.events)) == (("one",), 1, 1)


async def test_beginning_twice_keeps_the_note_of_a_tools_tail(process: StoreProcess) -> None:
    """The user's text is already the last row when the second run looks for the tail."""
    begun = await process.called()
    await process.tool(begun)
    await process.store.run(fail, begun, "why", "sorry", process.now, process.delivery)
    await process.accept("next")
    again = await process.twice(begin_next, key_of(), process.start())
    assert isinstance(again, StartedTurn)
    assert again.note is not None
    assert (again.note.kind, again.note.tail_key is None) == ("tool_tail", False)


async def test_resuming_twice_says_the_same(process: StoreProcess) -> None:
    begun = await process.called()
    await process.tool(begun)
    await process.die()
    after = replace(process, instance=2)
    again = await after.twice(begin_next, key_of(), after.start())
    assert isinstance(again, StartedTurn)
    assert again.note is not None
    assert (again.turn, again.attempt, again.note.kind) == (begun.turn, 2, "resume:restart_interrupted")
    assert again.note.tail_key == tail_key([result(begun, 2, "call")])


async def test_a_message_that_wakes_a_turn_joins_it_once(process: StoreProcess) -> None:
    here = replace(process, resume="on_message")
    begun = await here.called("one")
    await here.tool(begun)
    await here.die()
    assert await here.begin() is None
    await here.accept("two")
    again = await here.twice(begin_next, key_of(), here.start())
    assert isinstance(again, StartedTurn)
    assert (again.turn, again.texts, again.seq, again.first_seq) == (begun.turn, ("one", "two"), 4, 1)
    await here.finish(again)
    assert await process.states("inbox") == ["done", "done"]


async def test_every_write_of_a_turn_run_twice_is_there_once(process: StoreProcess) -> None:
    begun = await process.called()
    await process.twice(calling, begun)
    await process.twice(prove, begun)
    asked = response(begun, 1, "a", "b", text="first", at=process.now)
    await process.twice(step, begun, asked, call_of("a"), "tail", prove_it=True)
    await process.twice(finish_effect, begun, result(begun, 2, "a", at=process.now), call_of("b"))
    await process.twice(finish_effect, begun, result(begun, 3, "b", at=process.now), None)
    await process.twice(begin_effect, begun, call_of("c"), process.now)
    assert await process.store.read(effects_of, begun.turn) == {"a": "done", "b": "done", "c": "begun"}


async def test_a_committed_result_is_not_replaced(process: StoreProcess) -> None:
    """Promise 4"""
    begun = await process.called()
    await process.tool(begun)
    await process.unchanged(begin_effect, begun, call_of("call"), process.now + 5)
    await process.unchanged(finish_effect, begun, result(begun, 2, "call", "another", at=process.now + 5), None)


@pytest.mark.parametrize("delivery", [AT_ONCE, BY_EVENT], ids=["at once", "by event"])
async def test_finishing_twice_still_gives_what_there_is_to_send(process: StoreProcess, delivery: object) -> None:
    here = replace(process, delivery=delivery)  # type: ignore[arg-type]
    begun = await here.begun()
    await here.accept("next")
    finished = await here.twice(finish, begun, here.answer(begun), here.delivery, here.instance, "tail")
    assert (finished.more, finished.reply is None, len(finished.events)) == (
        (True, True, 2) if delivery == BY_EVENT else (True, False, 0)
    )


async def test_a_reply_that_somebody_else_sends_is_not_given_again(process: StoreProcess) -> None:
    here = replace(process, delivery=AT_ONCE)
    begun = await here.begun()
    finished = await here.finish(begun)
    assert isinstance(finished.reply, Reply)
    await process.plant("UPDATE outbox SET state='pending', instance=NULL")
    assert (await here.finish(begun)).reply is None
    assert isinstance(await replace(process, instance=2).claim(), Reply)
    assert (await here.finish(begun)).reply is None


async def test_failing_twice_says_the_same(process: StoreProcess) -> None:
    here = replace(process, delivery=BY_EVENT)
    begun = await here.begun()
    events = await here.twice(fail, begun, "why", "sorry", here.now, here.delivery)
    assert [event.kind for event in events] == ["notice", "turn"]
    assert await process.look("SELECT state, why FROM inbox") == [("dead", "why")]


# -- ends -------------------------------------------------------------------------------------------------------------


async def test_an_answer_commits_with_everything_that_follows_from_it(process: StoreProcess) -> None:
    """Promise 6"""
    here = replace(process, delivery=BY_EVENT)
    begun = await here.called()
    await here.die()
    again = await here.began()
    finished = await here.finish(again, text="the answer")
    entry = await process.entry()
    assert (entry.state, entry.unclean_ends, entry.holder, entry.turn, entry.turns) == (ACTIVE, 0, None, None, 1)
    assert await process.look("SELECT id, state, text FROM outbox") == [(begun.turn, "sent", "the answer")]
    assert [(event.seq, event.kind) for event in finished.events] == [
        (entry.event_seq - 1, "reply"),
        (entry.event_seq, "turn"),
    ]
    assert (await process.states("turn"), await process.states("inbox")) == (["answered"], ["done"])


async def test_a_failed_turn_keeps_the_mark_and_the_count(process: StoreProcess) -> None:
    """Behaviour 2.2: only a successful turn clears them."""
    await process.called()
    await process.die()
    again = await process.began()
    await process.store.run(fail, again, "why", "sorry", process.now, process.delivery)
    entry = await process.entry()
    assert (entry.state, entry.unclean_ends) == (ResumePending("restart_interrupted", process.now), 1)
    assert (await process.states("turn"), await process.states("inbox")) == (["failed"], ["dead"])
    assert await process.look("SELECT kind, text FROM outbox") == [("notice", "sorry")]


async def test_a_tool_tail_is_offered_until_the_model_has_answered_for_it(process: StoreProcess) -> None:
    begun = await process.called()
    await process.tool(begun)
    await process.store.run(fail, begun, "why", "sorry", process.now, process.delivery)
    second = await process.begun("next")
    assert second.note is not None
    await process.store.run(step, second, response(second, 1), None, second.note.tail_key, prove_it=False)
    await process.store.run(fail, second, "why", "sorry", process.now, process.delivery)
    await process.plant("DELETE FROM message WHERE seq>3")  # the tail is last again, as after an undo
    await process.plant("UPDATE entry SET seq=3, tail=1")
    assert (await process.begun("third")).note is None


# -- fences -----------------------------------------------------------------------------------------------------------

Loss = Callable[[StoreProcess, StartedTurn], Awaitable[object]]


async def lose_by_new(process: StoreProcess, begun: StartedTurn) -> None:
    await process.command("/new")


async def lose_by_stop(process: StoreProcess, begun: StartedTurn) -> None:
    await process.command("/stop")


async def lose_by_takeover(process: StoreProcess, begun: StartedTurn) -> None:
    await process.die()


async def lose_by_resume_elsewhere(process: StoreProcess, begun: StartedTurn) -> None:
    await process.die()
    await replace(process, instance=2).began()


async def lose_by_drain(process: StoreProcess, begun: StartedTurn) -> None:
    await process.store.run(
        cut_off_by_drain, begun.turn, begun.key, 3, process.cause("restart_timeout"), process.delivery
    )


async def lose_by_suspension(process: StoreProcess, begun: StartedTurn) -> None:
    await process.store.run(suspend_session, begun.key, process.now)


async def lose_by_answering(process: StoreProcess, begun: StartedTurn) -> None:
    await process.finish(begun)


async def lose_by_failing(process: StoreProcess, begun: StartedTurn) -> None:
    await process.store.run(fail, begun, "why", "sorry", process.now - 1, process.delivery)


async def lose_by_next_turn(process: StoreProcess, begun: StartedTurn) -> None:
    await process.finish(begun)
    await process.begun("next")


LOSSES: list[Loss] = [
    lose_by_new, lose_by_stop, lose_by_takeover, lose_by_resume_elsewhere, lose_by_drain, lose_by_suspension,
    lose_by_answering, lose_by_failing, lose_by_next_turn,
]  # fmt: skip


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.__name__.removeprefix("lose_by_"))
async def test_every_late_write_of_a_turn_is_refused(process: StoreProcess, loss: Loss) -> None:
    """Promise 8: in the database, whoever wrote last."""
    begun = await process.called()
    await process.store.run(step, begun, response(begun, 1, "call"), call_of("call"), None, prove_it=False)
    await loss(process, begun)
    stored = await process.dump()
    late: list[asyncio.Future[Any]] = [
        process.store.run(step, begun, response(begun, 2, "late"), call_of("late"), "tail", prove_it=True),
        process.store.run(begin_effect, begun, call_of("late"), process.now),
        process.store.run(finish_effect, begun, result(begun, 2, "call"), call_of("late")),
        process.store.run(calling, begun),
        process.store.run(prove, begun),
    ]
    assert [type(said) for said in await asyncio.gather(*late, return_exceptions=True)] == [FenceLost] * len(late)
    if loss not in {lose_by_answering, lose_by_next_turn}:  # there a second finish says what the first said
        with pytest.raises(FenceLost):
            await process.store.run(
                finish, begun, process.answer(begun, 2, "late"), process.delivery, process.instance, None
            )
    assert await process.store.run(fail, begun, "late", "late", process.now, process.delivery) == ()
    assert await process.dump() == stored


async def test_nothing_is_written_into_an_ended_session(process: StoreProcess) -> None:
    """Promise 8, under a race: each of the writes came before `/new`, or is not there."""
    for number in range(10):
        chat = str(number)
        begun = await process.called(chat=chat)
        writes = [
            process.store.run(step, begun, response(begun, 1, at=process.now), None, None, prove_it=False),
            process.command("/new", chat),
            process.finish(begun, 2),
        ]
        await asyncio.gather(*writes, return_exceptions=True)
        ((messages, ended_at),) = await process.look(
            "SELECT messages, ended_at FROM session WHERE session_id=$1", begun.session_id
        )
        rows = await process.look("SELECT max(seq) FROM message WHERE session_id=$1", begun.session_id)
        assert ended_at is not None
        assert rows == [(messages,)]


# -- moves ------------------------------------------------------------------------------------------------------------

Move = Callable[[StoreProcess, StartedTurn], Awaitable[object]]


async def move_begin(process: StoreProcess, begun: StartedTurn) -> None:
    await process.store.run(begin_next, begun.key, process.start())


async def move_finish(process: StoreProcess, begun: StartedTurn) -> None:
    await process.store.run(finish, begun, process.answer(begun), process.delivery, process.instance, None)


async def move_fail(process: StoreProcess, begun: StartedTurn) -> None:
    await process.store.run(fail, begun, "why", "sorry", process.now, process.delivery)


async def move_new(process: StoreProcess, begun: StartedTurn) -> None:
    await process.command("/new", begun.source.chat_id or "")


async def move_stop(process: StoreProcess, begun: StartedTurn) -> None:
    await process.command("/stop", begun.source.chat_id or "")


async def move_drain(process: StoreProcess, begun: StartedTurn) -> None:
    await process.store.run(cut_off_by_drain, begun.turn, begun.key, 1, process.cause(), process.delivery)


async def move_suspend(process: StoreProcess, begun: StartedTurn) -> None:
    await process.store.run(cut_off, begun.turn, begun.key, RecoveryVerdict.SUSPEND, process.cause(), process.delivery)


async def move_interrupt(process: StoreProcess, begun: StartedTurn) -> None:
    await process.store.run(cut_off, begun.turn, begun.key, RecoveryVerdict.COUNT, process.cause(), process.delivery)


MOVES: list[Move] = [
    move_begin, move_finish, move_fail, move_new, move_stop, move_drain, move_suspend, move_interrupt
]  # fmt: skip
# Nothing makes a turn wait for an approval yet.
STATES = [state for state in TurnState if state is not TurnState.AWAITING_APPROVAL]
OPEN = {TurnState.RUNNING, TurnState.INTERRUPTED}


async def in_state(process: StoreProcess, chat: str, state: TurnState) -> StartedTurn:
    """A turn in this state, with its key as it is then: held, free with the turn open, or free."""
    begun = await process.called(chat=chat)
    if state is TurnState.RUNNING:
        return begun
    turn = begun.turn if state in OPEN else None
    ended = None if state in OPEN else 1.0
    await process.plant("UPDATE entry SET holder=NULL, turn=$2 WHERE key=$1", begun.key, turn)
    await process.plant("UPDATE turn SET state=$2, ended_at=$3 WHERE id=$1", begun.turn, state, ended)
    return begun


async def test_no_operation_makes_a_move_that_is_not_in_the_table(process: StoreProcess) -> None:
    """Every state against every operation that moves turns; an ended turn keeps every column."""
    wrong = []
    for state, move in product(STATES, MOVES):
        begun = await in_state(process, f"{state} {move.__name__}", state)
        before = await process.look("SELECT * FROM turn WHERE id=$1", begun.turn)
        await asyncio.gather(move(process, begun), return_exceptions=True)
        after = await process.look("SELECT * FROM turn WHERE id=$1", begun.turn)
        ((now, ended_at),) = await process.look("SELECT state, ended_at FROM turn WHERE id=$1", begun.turn)
        if now != state and TurnState(now) not in TURN_MOVES[state]:
            wrong.append(f"{state} -> {now} by {move.__name__}")
        if (ended_at is None) != (now in OPEN) or (state not in OPEN and after != before):
            wrong.append(f"{state} was changed by {move.__name__}")
    assert wrong == []


async def test_a_message_keeps_its_calls_and_its_marks(process: StoreProcess) -> None:
    begun = await process.called("wörds\n'\"😀")
    asked = response(begun, 1, "a", "b", text="I'll look", at=5.5)
    hidden = Message(role="tool", content="?", seq=begun.seq + 2, call_id="a", unknown=True, at=6.5)
    await process.store.run(step, begun, asked, call_of("a"), None, prove_it=False)
    await process.store.run(finish_effect, begun, hidden, None)
    said = await process.store.read(transcript, begun.session_id, 0, 10)
    assert [(row.role, row.content, row.seq, row.unknown) for row in said] == [
        ("user", "wörds\n'\"😀", 1, False), ("assistant", "I'll look", 2, False), ("tool", "?", 3, True),
    ]  # fmt: skip
    assert (said[1].calls, said[2].call_id, {row.turn for row in said}) == (asked.calls, "a", {begun.turn})
