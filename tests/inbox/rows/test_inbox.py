"""Accepting messages: once, in order, bounded, with the platform's cursor; and the moves of an inbox row."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from itertools import product

import pytest
from msgspec.structs import replace as changed

from everturn.commands.rows.commands import apply_command
from everturn.inbox.rows.inbox import (
    AcceptOutcome,
    accept,
    keys_with_work,
    move_cursor,
    read_cursor,
    store_dead_letter,
    waiting_commands,
)
from everturn.lifecycle.rows import forget
from everturn.model import INBOX_MOVES, InboxState
from everturn.outbox.rows.replies import notify_key
from everturn.store.interface import Op, sql
from everturn.turns.rows.beginning import begin_next
from everturn.turns.rows.recovery import cut_off, suspend_session
from everturn.turns.rows.turns import fail, finish
from everturn.turns.rules.recovery import RecoveryVerdict
from tests.contracts.store import BY_EVENT, QUEUE, StoreProcess, broken, key_of, living


@pytest.fixture
async def process(store_url: str) -> AsyncIterator[StoreProcess]:
    async with living(store_url) as process:
        yield process


# -- once in ----------------------------------------------------------------------------------------------------------


async def test_the_same_id_with_the_same_text_is_a_duplicate(process: StoreProcess) -> None:
    """Promise 2"""
    assert (await process.accept("hello", ext="1")).outcome is AcceptOutcome.ACCEPTED
    assert (
        await process.unchanged(accept, process.arrival("hello", ext="1"), QUEUE, None)
    ).outcome is AcceptOutcome.DUPLICATE
    assert (await process.unchanged(accept, process.arrival("hello", ext="1"), QUEUE, process.start())).begun is None


async def test_the_same_id_with_another_text_is_a_conflict(process: StoreProcess) -> None:
    await process.accept("hello", ext="1")
    assert (
        await process.unchanged(accept, process.arrival("bye", ext="1"), QUEUE, None)
    ).outcome is AcceptOutcome.CONFLICT


async def test_an_id_is_one_messages_within_its_platform_and_account(process: StoreProcess) -> None:
    arrivals = [
        process.arrival(ext="1"),
        process.arrival(ext="1", account="second"),
        process.arrival(ext="1", platform="other"),
        process.arrival(ext="1", platform="other", account="second"),
        process.arrival(ext="1@d", chat="d"),  # an adapter whose ids repeat between chats adds the chat
    ]
    accepted = [await process.store.run(accept, each, QUEUE, None) for each in arrivals]
    assert {each.outcome for each in accepted} == {AcceptOutcome.ACCEPTED}
    assert len({each.key for each in accepted}) == 5


async def test_the_same_id_in_another_chat_of_the_account_is_a_conflict(process: StoreProcess) -> None:
    await process.accept("hello", "c", ext="1")
    said = await process.store.run(accept, process.arrival("hello", "d", ext="1"), QUEUE, None)
    assert (said.outcome, said.key) == (AcceptOutcome.CONFLICT, key_of("c"))
    assert len(await process.states("inbox")) == 1


@pytest.mark.parametrize("end", ["answered", "failed", "withdrawn", "suspended"])
async def test_a_message_that_ended_is_still_known(process: StoreProcess, end: str) -> None:
    begun = await process.called("hello")
    if end == "answered":
        await process.finish(begun)
    elif end == "failed":
        await process.store.run(fail, begun, "why", "sorry", process.now, process.delivery)
    elif end == "withdrawn":
        await process.command("/new")
    else:
        await process.store.run(suspend_session, key_of(), process.now)
    ((ext,),) = await process.look("SELECT ext_id FROM inbox WHERE kind='message'")
    said = await process.unchanged(accept, process.arrival("hello", ext=ext), QUEUE, process.start())
    assert (said.outcome, said.begun) == (AcceptOutcome.DUPLICATE, None)


async def test_one_message_delivered_twenty_times_at_once_is_stored_once(process: StoreProcess) -> None:
    arrivals = [process.arrival("hello", ext="1") for _ in range(20)]
    said = await asyncio.gather(*(process.store.run(accept, each, QUEUE, process.start()) for each in arrivals))
    outcomes = [each.outcome for each in said]
    assert (outcomes.count(AcceptOutcome.ACCEPTED), outcomes.count(AcceptOutcome.DUPLICATE)) == (1, 19)
    assert len([each for each in said if each.begun]) == 1
    assert await process.states("inbox") == ["claimed"]


# -- run twice --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by_event", [False, True])
async def test_accepting_twice_says_the_same(process: StoreProcess, by_event: bool) -> None:  # noqa: FBT001
    here = replace(process, delivery=BY_EVENT) if by_event else process
    begun = (await here.twice(accept, here.arrival("one"), QUEUE, here.start())).begun
    assert begun is not None
    process.clock.advance(1)
    waiting = await here.twice(accept, here.arrival("two"), QUEUE, here.start())
    assert (waiting.outcome, waiting.begun, len(waiting.events)) == (AcceptOutcome.ACCEPTED, None, int(by_event))
    await here.finish(begun)
    process.clock.advance(1)
    assert (await here.twice(accept, here.arrival("/stop"), QUEUE, None)).outcome is AcceptOutcome.ACCEPTED


async def test_accepting_twice_at_the_queues_limit_says_the_same(process: StoreProcess) -> None:
    await process.begun()
    await process.twice(accept, process.arrival("two"), 1, None)
    assert (await process.twice(accept, process.arrival("three"), 1, None)).outcome is AcceptOutcome.FULL


async def test_accepting_twice_a_message_that_resets_says_the_same(process: StoreProcess) -> None:
    await process.talk()
    await process.store.run(suspend_session, key_of(), process.now)
    begun = (await process.twice(accept, process.arrival("next"), QUEUE, process.start())).begun
    assert begun is not None
    assert begun.note is not None
    assert (begun.note.kind, begun.spoke) == ("reset:suspended", True)


# -- bounded ----------------------------------------------------------------------------------------------------------


async def test_a_full_queue_takes_no_message_but_every_command(process: StoreProcess) -> None:
    """Promise 12. What is claimed does not count; a command that waits to be applied does."""
    await process.begun("running")
    for number in range(3):
        assert (
            await process.store.run(accept, process.arrival(ext=str(number)), 3, None)
        ).outcome is AcceptOutcome.ACCEPTED
    assert (await process.unchanged(accept, process.arrival(), 3, None)).outcome is AcceptOutcome.FULL
    assert (await process.store.run(accept, process.arrival("/status"), 3, None)).outcome is AcceptOutcome.ACCEPTED
    assert (await process.unchanged(accept, process.arrival(ext="1"), 3, None)).outcome is AcceptOutcome.DUPLICATE
    assert (
        await process.unchanged(accept, process.arrival("other", ext="1"), 3, None)
    ).outcome is AcceptOutcome.CONFLICT
    assert (await process.store.run(accept, process.arrival(chat="d"), 3, None)).outcome is AcceptOutcome.ACCEPTED


async def test_a_waiting_command_counts_and_holds_back_the_next_message(process: StoreProcess) -> None:
    await process.accept("/status")
    said = await process.store.run(accept, process.arrival("after it"), QUEUE, process.start())
    assert (said.outcome, said.begun) == (AcceptOutcome.ACCEPTED, None)
    assert (await process.store.run(accept, process.arrival("too many"), 2, None)).outcome is AcceptOutcome.FULL


async def test_a_rejected_message_is_a_dead_letter_and_its_sender_gets_a_notice(process: StoreProcess) -> None:
    arrival = process.arrival("x" * 50)
    await process.twice(store_dead_letter, arrival, "too_long", "That is too long.")
    assert await process.look("SELECT state, why, ended_at FROM inbox") == [("dead", "too_long", process.now)]
    assert await process.look("SELECT id, kind, text, state FROM outbox") == [
        (arrival.id, "notice", "That is too long.", "pending")
    ]
    assert await process.store.read(keys_with_work) == []


async def test_a_notice_that_is_queued_twice_is_one_event(process: StoreProcess) -> None:
    here = replace(process, delivery=BY_EVENT)
    begun = await here.begun()
    process.clock.advance(1)
    assert len(await here.twice(store_dead_letter, here.arrival("x" * 50), "too_long", "That is too long.")) == 1
    process.clock.advance(1)
    args = (here.ids.next(), begun.source, "The gateway is restarting.", "restarting", here.now, here.delivery)
    assert len(await here.twice(notify_key, begun.key, *args)) == 1
    assert await process.store.read(broken) == {}


async def test_rejecting_a_message_that_was_accepted_changes_nothing(process: StoreProcess) -> None:
    await process.accept("hello", ext="1")
    assert await process.unchanged(store_dead_letter, process.arrival("hello", ext="1"), "queue_full", "Full.") == ()


# -- order ------------------------------------------------------------------------------------------------------------


def as_they_arrived() -> Op[list[str]]:
    """The queued messages, in the order in which they were stored, not of their ids."""
    rows = yield sql("SELECT body FROM inbox WHERE place>0 ORDER BY place")
    return [row[0] for row in rows]


async def test_twenty_messages_at_once_begin_one_turn_and_keep_their_order(process: StoreProcess) -> None:
    """Promise 3"""
    arrivals = [process.arrival(f"{number:02}") for number in range(20)]
    said = await asyncio.gather(*(process.store.run(accept, each, QUEUE, process.start()) for each in arrivals))
    begun = [each.begun for each in said if each.begun]
    assert len(begun) == 1
    order = []
    current = begun[0]
    while True:
        order.append(current.texts[0])
        if not (await process.finish(current)).more:
            break
        current = await process.began()
    assert sorted(order) == [f"{number:02}" for number in range(20)]
    assert order[1:] == await process.store.read(as_they_arrived)
    assert set(await process.states("inbox")) == {"done"}
    assert await process.store.read(broken) == {}


async def test_keys_with_work_come_oldest_first_and_commands_apart(process: StoreProcess) -> None:
    for chat, text in (("b", "1"), ("a", "2"), ("b", "3"), ("c", "/new"), ("d", "4")):
        await process.accept(text, chat)
    await process.began("d")
    assert await process.store.read(keys_with_work) == [key_of("b"), key_of("a")]
    assert [key for _, key in await process.store.read(waiting_commands)] == [key_of("c")]


async def test_looking_creates_no_session(process: StoreProcess) -> None:
    for number, text in enumerate(("/help", "/status", "/stop", "/resume", "/unknown")):
        await process.command(text, str(number))
    assert await process.look("SELECT count(*) FROM session") == [(0,)]
    assert (await process.entry("0")).session_id is None


# -- cursor -----------------------------------------------------------------------------------------------------------


async def test_a_cursor_does_not_pass_a_message_that_finds_no_room(process: StoreProcess) -> None:
    """Promise 1: after a crash before it is a dead letter it is delivered again."""
    for number in range(QUEUE + 1):
        await process.store.run(accept, process.arrival(ext=f"{number}"), QUEUE, None)
    full = changed(process.arrival(ext="full"), cursor="10")
    assert (await process.twice(accept, full, QUEUE, None)).outcome is AcceptOutcome.FULL
    assert await process.store.read(read_cursor, "fake", "") is None
    await process.twice(store_dead_letter, full, "queue_full", "no room")
    assert await process.store.read(read_cursor, "fake", "") == "10"


async def test_a_cursor_moves_with_the_message_it_belongs_to(process: StoreProcess) -> None:
    assert await process.store.read(read_cursor, "fake", "") is None
    arrival = changed(process.arrival(ext="1"), cursor="10")
    await process.twice(accept, arrival, QUEUE, process.start())
    assert await process.store.read(read_cursor, "fake", "") == "10"
    assert await process.store.read(read_cursor, "fake", "other") is None
    again = changed(process.arrival(ext="1"), cursor="11")
    assert (await process.store.run(accept, again, QUEUE, None)).outcome is AcceptOutcome.DUPLICATE
    await process.store.run(store_dead_letter, changed(process.arrival(), cursor="12"), "too_long", "Too long.")
    assert await process.store.read(read_cursor, "fake", "") == "12"
    await process.twice(move_cursor, "fake", "", "13", process.now)
    assert await process.store.read(read_cursor, "fake", "") == "13"


# -- events -----------------------------------------------------------------------------------------------------------


async def test_events_have_no_gaps_however_many_speak_at_once(process: StoreProcess) -> None:
    here = replace(process, delivery=BY_EVENT)
    arrivals = [here.arrival(str(number)) for number in range(20)]
    said = await asyncio.gather(*(here.store.run(accept, each, QUEUE, here.start()) for each in arrivals))
    begun = next(each.begun for each in said if each.begun)
    await asyncio.gather(here.finish(begun), *(here.accept(str(number)) for number in range(20, 30)))
    numbers = [row[0] for row in await process.look("SELECT seq FROM event ORDER BY id")]
    assert sorted(numbers) == list(range(1, 34))
    assert (await process.entry()).event_seq == 33
    assert await process.store.read(broken) == {}


# -- moves ------------------------------------------------------------------------------------------------------------

Move = Callable[[StoreProcess, str], Awaitable[object]]


async def try_finish(process: StoreProcess, chat: str) -> None:
    begun = await process.called("first", chat)
    await plant_state(process, chat)
    await process.store.run(finish, begun, process.answer(begun), process.delivery, process.instance, None)


async def try_fail(process: StoreProcess, chat: str) -> None:
    begun = await process.called("first", chat)
    await plant_state(process, chat)
    await process.store.run(fail, begun, "why", "sorry", process.now, process.delivery)


async def try_suspend(process: StoreProcess, chat: str) -> None:
    begun = await process.called("first", chat)
    await plant_state(process, chat)
    await process.store.run(cut_off, begun.turn, begun.key, RecoveryVerdict.SUSPEND, process.cause(), process.delivery)


async def try_requeue(process: StoreProcess, chat: str) -> None:
    begun = await process.called("first", chat)
    await plant_state(process, chat)
    await process.store.run(cut_off, begun.turn, begun.key, RecoveryVerdict.REQUEUE, process.cause(), process.delivery)


async def try_begin(process: StoreProcess, chat: str) -> None:
    await process.accept("first", chat)
    await plant_state(process, chat)
    await process.store.run(begin_next, key_of(chat), process.start())


async def try_new(process: StoreProcess, chat: str) -> None:
    await process.called("first", chat)
    await plant_state(process, chat)
    await process.command("/new", chat)


async def try_stop(process: StoreProcess, chat: str) -> None:
    await process.called("first", chat)
    await plant_state(process, chat)
    await process.command("/stop", chat)


async def try_apply(process: StoreProcess, chat: str) -> None:
    await process.accept("/status", chat)
    await plant_state(process, chat)
    ((number,),) = await process.look("SELECT id FROM inbox WHERE key=$1", key_of(chat))
    await process.store.run(apply_command, number, "unused", process.now, process.delivery)


async def try_forget(process: StoreProcess, chat: str) -> None:
    await process.accept("first", chat)
    await plant_state(process, chat)
    await process.store.run(forget, process.now + 8 * 86_400)


MOVES: list[Move] = [
    try_finish, try_fail, try_suspend, try_requeue, try_begin, try_new, try_stop, try_apply, try_forget,
]  # fmt: skip


async def plant_state(process: StoreProcess, chat: str) -> None:
    """Chats are named after the state that their first message is put into."""
    state = InboxState(chat.partition(" ")[0])
    ended = None if state in {InboxState.QUEUED, InboxState.CLAIMED} else 1.0
    await process.plant("UPDATE inbox SET state=$2, ended_at=$3 WHERE key=$1", key_of(chat), state, ended)


async def test_no_operation_makes_a_move_that_is_not_in_the_table(process: StoreProcess) -> None:
    """Every state against every operation that moves messages."""
    wrong = []
    for before, move in product(InboxState, MOVES):
        chat = f"{before} {move.__name__}"
        await move(process, chat)
        ((after, ended_at),) = await process.look(
            "SELECT state, ended_at FROM inbox WHERE key=$1 ORDER BY id LIMIT 1", key_of(chat)
        )
        if after != before and InboxState(after) not in INBOX_MOVES[before]:
            wrong.append(f"{chat} -> {after}")
        if (ended_at is None) != (after in {"queued", "claimed"}):
            wrong.append(f"{chat} -> {after}, ended at {ended_at}")
    assert wrong == []
