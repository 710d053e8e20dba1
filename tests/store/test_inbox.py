"""Accepting messages: once, in order, bounded, with the platform's cursor; and the moves of an inbox row."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from itertools import product

import pytest
from msgspec.structs import replace as changed

from everturn.decide.recovery import Verdict
from everturn.model import INBOX_MOVES, InboxState
from everturn.store.interface import Op, sql
from everturn.store.operations.beginning import begin_next
from everturn.store.operations.commands import apply_command
from everturn.store.operations.inbox import (
    Outcome,
    accept,
    keys_with_work,
    move_cursor,
    read_cursor,
    turn_away,
    waiting_commands,
)
from everturn.store.operations.recovery import cut_off, suspend_session
from everturn.store.operations.telling import tell_key
from everturn.store.operations.turns import fail, finish
from everturn.store.operations.upkeep import forget
from tests.contracts.store import BY_EVENT, QUEUE, Life, broken, key_of, living


@pytest.fixture
async def life(store_url: str) -> AsyncIterator[Life]:
    async with living(store_url) as life:
        yield life


# -- once in ----------------------------------------------------------------------------------------------------------


async def test_the_same_id_with_the_same_words_is_a_duplicate(life: Life) -> None:
    """Promise 2"""
    assert (await life.accept("hello", ext="1")).outcome is Outcome.ACCEPTED
    assert (await life.unchanged(accept, life.arrival("hello", ext="1"), QUEUE, None)).outcome is Outcome.DUPLICATE
    assert (await life.unchanged(accept, life.arrival("hello", ext="1"), QUEUE, life.start())).begun is None


async def test_the_same_id_with_other_words_is_a_conflict(life: Life) -> None:
    await life.accept("hello", ext="1")
    assert (await life.unchanged(accept, life.arrival("bye", ext="1"), QUEUE, None)).outcome is Outcome.CONFLICT


async def test_an_id_is_one_messages_within_its_platform_and_account(life: Life) -> None:
    arrivals = [
        life.arrival(ext="1"),
        life.arrival(ext="1", account="second"),
        life.arrival(ext="1", platform="other"),
        life.arrival(ext="1", platform="other", account="second"),
        life.arrival(ext="1@d", chat="d"),  # an adapter whose ids repeat between chats adds the chat
    ]
    accepted = [await life.store.run(accept, each, QUEUE, None) for each in arrivals]
    assert {each.outcome for each in accepted} == {Outcome.ACCEPTED}
    assert len({each.key for each in accepted}) == 5


async def test_the_same_id_in_another_chat_of_the_account_is_a_conflict(life: Life) -> None:
    await life.accept("hello", "c", ext="1")
    said = await life.store.run(accept, life.arrival("hello", "d", ext="1"), QUEUE, None)
    assert (said.outcome, said.key) == (Outcome.CONFLICT, key_of("c"))
    assert len(await life.states("inbox")) == 1


@pytest.mark.parametrize("end", ["answered", "failed", "withdrawn", "suspended"])
async def test_a_message_that_ended_is_still_known(life: Life, end: str) -> None:
    begun = await life.called("hello")
    if end == "answered":
        await life.finish(begun)
    elif end == "failed":
        await life.store.run(fail, begun, "why", "sorry", life.now, life.delivery)
    elif end == "withdrawn":
        await life.command("/new")
    else:
        await life.store.run(suspend_session, key_of(), life.now)
    ((ext,),) = await life.look("SELECT ext_id FROM inbox WHERE kind='message'")
    said = await life.unchanged(accept, life.arrival("hello", ext=ext), QUEUE, life.start())
    assert (said.outcome, said.begun) == (Outcome.DUPLICATE, None)


async def test_one_message_delivered_twenty_times_at_once_is_stored_once(life: Life) -> None:
    arrivals = [life.arrival("hello", ext="1") for _ in range(20)]
    said = await asyncio.gather(*(life.store.run(accept, each, QUEUE, life.start()) for each in arrivals))
    outcomes = [each.outcome for each in said]
    assert (outcomes.count(Outcome.ACCEPTED), outcomes.count(Outcome.DUPLICATE)) == (1, 19)
    assert len([each for each in said if each.begun]) == 1
    assert await life.states("inbox") == ["claimed"]


# -- run twice --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by_event", [False, True])
async def test_accepting_twice_says_the_same(life: Life, by_event: bool) -> None:  # noqa: FBT001
    here = replace(life, delivery=BY_EVENT) if by_event else life
    begun = (await here.twice(accept, here.arrival("one"), QUEUE, here.start())).begun
    assert begun is not None
    life.clock.advance(1)
    waiting = await here.twice(accept, here.arrival("two"), QUEUE, here.start())
    assert (waiting.outcome, waiting.begun, len(waiting.events)) == (Outcome.ACCEPTED, None, int(by_event))
    await here.finish(begun)
    life.clock.advance(1)
    assert (await here.twice(accept, here.arrival("/stop"), QUEUE, None)).outcome is Outcome.ACCEPTED


async def test_accepting_twice_at_the_queues_limit_says_the_same(life: Life) -> None:
    await life.begun()
    await life.twice(accept, life.arrival("two"), 1, None)
    assert (await life.twice(accept, life.arrival("three"), 1, None)).outcome is Outcome.FULL


async def test_accepting_twice_a_message_that_resets_says_the_same(life: Life) -> None:
    await life.talk()
    await life.store.run(suspend_session, key_of(), life.now)
    begun = (await life.twice(accept, life.arrival("next"), QUEUE, life.start())).begun
    assert begun is not None
    assert begun.note is not None
    assert (begun.note.kind, begun.spoke) == ("reset:suspended", True)


# -- bounded ----------------------------------------------------------------------------------------------------------


async def test_a_full_queue_takes_no_message_but_every_command(life: Life) -> None:
    """Promise 12. What is claimed does not count; a command that waits to be applied does."""
    await life.begun("running")
    for number in range(3):
        assert (await life.store.run(accept, life.arrival(ext=str(number)), 3, None)).outcome is Outcome.ACCEPTED
    assert (await life.unchanged(accept, life.arrival(), 3, None)).outcome is Outcome.FULL
    assert (await life.store.run(accept, life.arrival("/status"), 3, None)).outcome is Outcome.ACCEPTED
    assert (await life.unchanged(accept, life.arrival(ext="1"), 3, None)).outcome is Outcome.DUPLICATE
    assert (await life.unchanged(accept, life.arrival("other", ext="1"), 3, None)).outcome is Outcome.CONFLICT
    assert (await life.store.run(accept, life.arrival(chat="d"), 3, None)).outcome is Outcome.ACCEPTED


async def test_a_waiting_command_counts_and_holds_back_the_next_message(life: Life) -> None:
    await life.accept("/status")
    said = await life.store.run(accept, life.arrival("after it"), QUEUE, life.start())
    assert (said.outcome, said.begun) == (Outcome.ACCEPTED, None)
    assert (await life.store.run(accept, life.arrival("too many"), 2, None)).outcome is Outcome.FULL


async def test_a_message_that_cannot_be_taken_is_a_dead_letter_and_its_sender_is_told(life: Life) -> None:
    arrival = life.arrival("x" * 50)
    await life.twice(turn_away, arrival, "too_long", "That is too long.")
    assert await life.look("SELECT state, why, ended_at FROM inbox") == [("dead", "too_long", life.now)]
    assert await life.look("SELECT id, kind, text, state FROM outbox") == [
        (arrival.id, "notice", "That is too long.", "owed")
    ]
    assert await life.store.read(keys_with_work) == []


async def test_what_is_told_twice_is_one_event(life: Life) -> None:
    here = replace(life, delivery=BY_EVENT)
    begun = await here.begun()
    life.clock.advance(1)
    assert len(await here.twice(turn_away, here.arrival("x" * 50), "too_long", "That is too long.")) == 1
    life.clock.advance(1)
    args = (here.ids.next(), begun.source, "The gateway is restarting.", "restarting", here.now, here.delivery)
    assert len(await here.twice(tell_key, begun.key, *args)) == 1
    assert await life.store.read(broken) == {}


async def test_turning_away_a_message_that_was_accepted_changes_nothing(life: Life) -> None:
    await life.accept("hello", ext="1")
    assert await life.unchanged(turn_away, life.arrival("hello", ext="1"), "queue_full", "Full.") == ()


# -- order ------------------------------------------------------------------------------------------------------------


def as_they_arrived() -> Op[list[str]]:
    """What waited, in the order in which it was stored, whoever made its id first."""
    rows = yield sql("SELECT body FROM inbox WHERE place>0 ORDER BY place")
    return [row[0] for row in rows]


async def test_twenty_messages_at_once_begin_one_turn_and_keep_their_order(life: Life) -> None:
    """Promise 3"""
    arrivals = [life.arrival(f"{number:02}") for number in range(20)]
    said = await asyncio.gather(*(life.store.run(accept, each, QUEUE, life.start()) for each in arrivals))
    begun = [each.begun for each in said if each.begun]
    assert len(begun) == 1
    order = []
    current = begun[0]
    while True:
        order.append(current.words[0])
        if not (await life.finish(current)).more:
            break
        current = await life.began()
    assert sorted(order) == [f"{number:02}" for number in range(20)]
    assert order[1:] == await life.store.read(as_they_arrived)
    assert set(await life.states("inbox")) == {"done"}
    assert await life.store.read(broken) == {}


async def test_keys_with_work_come_oldest_first_and_commands_apart(life: Life) -> None:
    for chat, text in (("b", "1"), ("a", "2"), ("b", "3"), ("c", "/new"), ("d", "4")):
        await life.accept(text, chat)
    await life.began("d")
    assert await life.store.read(keys_with_work) == [key_of("b"), key_of("a")]
    assert [key for _, key in await life.store.read(waiting_commands)] == [key_of("c")]


async def test_looking_creates_no_session(life: Life) -> None:
    for number, text in enumerate(("/help", "/status", "/stop", "/resume", "/unknown")):
        await life.command(text, str(number))
    assert await life.look("SELECT count(*) FROM session") == [(0,)]
    assert (await life.entry("0")).session_id is None


# -- cursor -----------------------------------------------------------------------------------------------------------


async def test_a_cursor_does_not_pass_a_message_that_finds_no_room(life: Life) -> None:
    """Promise 1: a death before it is a dead letter brings it again."""
    for number in range(QUEUE + 1):
        await life.store.run(accept, life.arrival(ext=f"{number}"), QUEUE, None)
    full = changed(life.arrival(ext="full"), cursor="10")
    assert (await life.twice(accept, full, QUEUE, None)).outcome is Outcome.FULL
    assert await life.store.read(read_cursor, "fake", "") is None
    await life.twice(turn_away, full, "queue_full", "no room")
    assert await life.store.read(read_cursor, "fake", "") == "10"


async def test_a_cursor_moves_with_the_message_it_belongs_to(life: Life) -> None:
    assert await life.store.read(read_cursor, "fake", "") is None
    arrival = changed(life.arrival(ext="1"), cursor="10")
    await life.twice(accept, arrival, QUEUE, life.start())
    assert await life.store.read(read_cursor, "fake", "") == "10"
    assert await life.store.read(read_cursor, "fake", "other") is None
    again = changed(life.arrival(ext="1"), cursor="11")
    assert (await life.store.run(accept, again, QUEUE, None)).outcome is Outcome.DUPLICATE
    await life.store.run(turn_away, changed(life.arrival(), cursor="12"), "too_long", "Too long.")
    assert await life.store.read(read_cursor, "fake", "") == "12"
    await life.twice(move_cursor, "fake", "", "13", life.now)
    assert await life.store.read(read_cursor, "fake", "") == "13"


# -- events -----------------------------------------------------------------------------------------------------------


async def test_events_have_no_gaps_however_many_speak_at_once(life: Life) -> None:
    here = replace(life, delivery=BY_EVENT)
    arrivals = [here.arrival(str(number)) for number in range(20)]
    said = await asyncio.gather(*(here.store.run(accept, each, QUEUE, here.start()) for each in arrivals))
    begun = next(each.begun for each in said if each.begun)
    await asyncio.gather(here.finish(begun), *(here.accept(str(number)) for number in range(20, 30)))
    numbers = [row[0] for row in await life.look("SELECT seq FROM event ORDER BY id")]
    assert sorted(numbers) == list(range(1, 34))
    assert (await life.entry()).event_seq == 33
    assert await life.store.read(broken) == {}


# -- moves ------------------------------------------------------------------------------------------------------------

Move = Callable[[Life, str], Awaitable[object]]


async def try_finish(life: Life, chat: str) -> None:
    begun = await life.called("first", chat)
    await plant_state(life, chat)
    await life.store.run(finish, begun, life.answer(begun), life.delivery, life.instance, None)


async def try_fail(life: Life, chat: str) -> None:
    begun = await life.called("first", chat)
    await plant_state(life, chat)
    await life.store.run(fail, begun, "why", "sorry", life.now, life.delivery)


async def try_suspend(life: Life, chat: str) -> None:
    begun = await life.called("first", chat)
    await plant_state(life, chat)
    await life.store.run(cut_off, begun.turn, begun.key, Verdict.SUSPEND, life.cause(), life.delivery)


async def try_requeue(life: Life, chat: str) -> None:
    begun = await life.called("first", chat)
    await plant_state(life, chat)
    await life.store.run(cut_off, begun.turn, begun.key, Verdict.REQUEUE, life.cause(), life.delivery)


async def try_begin(life: Life, chat: str) -> None:
    await life.accept("first", chat)
    await plant_state(life, chat)
    await life.store.run(begin_next, key_of(chat), life.start())


async def try_new(life: Life, chat: str) -> None:
    await life.called("first", chat)
    await plant_state(life, chat)
    await life.command("/new", chat)


async def try_stop(life: Life, chat: str) -> None:
    await life.called("first", chat)
    await plant_state(life, chat)
    await life.command("/stop", chat)


async def try_apply(life: Life, chat: str) -> None:
    await life.accept("/status", chat)
    await plant_state(life, chat)
    ((number,),) = await life.look("SELECT id FROM inbox WHERE key=$1", key_of(chat))
    await life.store.run(apply_command, number, "unused", life.now, life.delivery)


async def try_forget(life: Life, chat: str) -> None:
    await life.accept("first", chat)
    await plant_state(life, chat)
    await life.store.run(forget, life.now + 8 * 86_400)


MOVES: list[Move] = [
    try_finish, try_fail, try_suspend, try_requeue, try_begin, try_new, try_stop, try_apply, try_forget,
]  # fmt: skip


async def plant_state(life: Life, chat: str) -> None:
    """Chats are named after the state that their first message is put into."""
    state = InboxState(chat.partition(" ")[0])
    ended = None if state in {InboxState.WAITING, InboxState.CLAIMED} else 1.0
    await life.plant("UPDATE inbox SET state=$2, ended_at=$3 WHERE key=$1", key_of(chat), state, ended)


async def test_no_operation_makes_a_move_that_is_not_in_the_table(life: Life) -> None:
    """Every state against every operation that moves messages."""
    wrong = []
    for before, move in product(InboxState, MOVES):
        chat = f"{before} {move.__name__}"
        await move(life, chat)
        ((after, ended_at),) = await life.look(
            "SELECT state, ended_at FROM inbox WHERE key=$1 ORDER BY id LIMIT 1", key_of(chat)
        )
        if after != before and InboxState(after) not in INBOX_MOVES[before]:
            wrong.append(f"{chat} -> {after}")
        if (ended_at is None) != (after in {"waiting", "claimed"}):
            wrong.append(f"{chat} -> {after}, ended at {ended_at}")
    assert wrong == []
