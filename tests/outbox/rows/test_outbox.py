"""Outbox rows: claimed by one, in order, recorded once; unknown delivery; and the moves of an outbox row."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import product

import pytest

from everturn.errors import FenceLost
from everturn.model import OUTBOX_MOVES, Bubble, OutboxState, Reply, StoredFile
from everturn.outbox.rows.outbox import (
    SEND_AGAIN,
    claim_next,
    keys_with_replies,
    make_dead_letter,
    make_file_dead_letter,
    mark_unknown,
    record_bubble,
    record_part,
    record_progress,
    record_sent,
    record_shown,
    record_silence,
    recover_sending,
    try_later,
)
from everturn.outbox.rows.replies import notify_key, queue_reply
from everturn.outbox.rules.delivery import Delivery, UnknownAction
from everturn.people.rows.access import revoke
from everturn.store.interface import Op
from everturn.turns.rows.turns import finish
from tests.contracts.store import AT_ONCE, StoreProcess, key_of, living, origin

BUBBLE = Bubble(name="b")
DIRECT = '{"platform":"fake","chat_type":"dm","user_id":"ann"}'


@pytest.fixture
async def process(store_url: str) -> AsyncIterator[StoreProcess]:
    async with living(store_url) as process:
        yield process


async def file_being_sent(process: StoreProcess) -> Reply:
    file, at_once = (
        StoredFile(id="i" * 22, name="a.pdf", type="application/pdf", size=3),
        Delivery(by_event=False, send_now=True),
    )
    reply = await process.store.run(
        queue_reply,
        process.ids.next(),
        key_of(),
        None,
        "file",
        origin(),
        "see",
        process.now,
        at_once,
        process.instance,
        file,
    )
    assert reply is not None
    return reply


# -- claim ------------------------------------------------------------------------------------------------------------


async def test_replies_leave_one_at_a_time_in_order(process: StoreProcess) -> None:
    """Promise 3"""
    for text in ("one", "two", "three"):
        await process.finish(await process.begun(text), text=f"re {text}")
    sent = []
    while True:
        reply = await process.sending()
        assert await replace(process, instance=2).claim() is None
        sent.append(reply.text)
        if not await process.store.run(record_sent, reply, ("p",), process.now):
            break
    assert sent == ["re one", "re two", "re three"]
    assert set(await process.states("outbox")) == {"sent"}


async def test_of_twenty_who_claim_one_sends_each_reply(process: StoreProcess) -> None:
    for chat in "abcde":
        for _ in range(2):
            await process.talk(chat=chat)
    processes = [replace(process, instance=number) for number in range(1, 21)]
    claims = await asyncio.gather(*(each.claim(chat) for each in processes for chat in "abcde"))
    replies = [claim for claim in claims if isinstance(claim, Reply)]
    assert len(replies) == len({reply.id for reply in replies}) == 5
    assert {claim for claim in claims if not isinstance(claim, Reply)} == {None}


async def test_one_process_does_not_claim_what_it_is_sending(process: StoreProcess) -> None:
    await process.talk()
    await process.sending()
    process.clock.advance(0.001)
    assert await process.claim() is None


async def test_a_reply_that_is_being_sent_is_not_overtaken(process: StoreProcess) -> None:
    """A command is answered while a turn with a lower number runs; the turn's reply waits until the answer is out."""
    begun = await process.begun()
    await process.command("/status")
    answer = await process.sending()
    await process.finish(begun)
    assert await replace(process, instance=2).claim() is None
    await process.store.run(record_sent, answer, ("p",), process.now)
    assert (await process.sending()).id == begun.turn


@pytest.mark.parametrize("later", [1.0, 0.0, -3600.0])
async def test_what_was_queued_first_leaves_first_whatever_its_number(process: StoreProcess, later: float) -> None:
    """Promise 3. An answer has the number of its turn, which is lower than that of what was said while the turn ran. A clock
    that stands or is set back changes nothing.
    """
    begun = await process.begun()
    process.clock.advance(1.0)
    await process.command("/status")
    process.clock.set_back(-later)
    await process.finish(begun)
    process.clock.advance(3600.0)
    answer = await process.sending()
    assert answer.id != begun.turn
    await process.store.run(record_sent, answer, ("p",), process.now)
    assert (await process.sending()).id == begun.turn


async def test_a_reply_that_is_not_due_says_when(process: StoreProcess) -> None:
    await process.talk()
    reply = await process.sending()
    await process.store.run(try_later, reply, process.now + 60, "busy")
    assert await process.unchanged(claim_next, key_of(), 1, process.ids.next(), process.now) == process.now + 60
    process.clock.advance(60)
    assert (await process.sending()).attempts == 1


async def test_waits_that_were_ordered_and_deaths_are_tries_but_no_failures(process: StoreProcess) -> None:
    """A platform that orders many waits, or a gateway that restarts often, makes no dead letter."""
    await process.talk()
    for failed, sent in ((False, (1, 0)), (True, (2, 1)), (False, (3, 1)), (True, (4, 2))):
        await process.twice(try_later, await process.sending(), process.now, "busy", failed=failed)
        assert await process.look("SELECT attempts, failures FROM outbox") == [sent]
    assert (await process.sending()).failures == 2
    await process.store.run(recover_sending, 1, {"fake": UnknownAction.MARK}, process.now)
    reply = await process.sending()
    assert (reply.attempts, reply.failures) == (5, 2)
    await process.twice(mark_unknown, reply, UnknownAction.MARK, process.now, "lost")
    assert (await process.sending()).failures == 3


async def test_a_reply_that_is_sent_anew_has_not_failed_yet(process: StoreProcess) -> None:
    begun = await process.talk()
    await process.store.run(try_later, await process.sending(), process.now, "busy")
    await process.plant(SEND_AGAIN, begun.turn, process.now)
    reply = await process.sending()
    assert reply.failures == 0
    await process.store.run(try_later, reply, process.now, "busy")
    assert await process.look("SELECT attempts, failures FROM outbox") == [(1, 1)]


async def test_a_reply_is_sent_at_once_only_when_nothing_is_before_it(process: StoreProcess) -> None:
    here = replace(process, delivery=AT_ONCE)
    first = await here.finish(await here.begun())
    assert isinstance(first.reply, Reply)
    second = await here.finish(await here.begun("next"))
    assert second.reply is None
    assert await process.states("outbox") == ["sending", "pending"]
    assert await here.store.run(record_sent, first.reply, ("p",), process.now) is True
    assert (await here.sending()).text == "done"


async def test_a_preview_that_is_out_is_not_claimed(process: StoreProcess) -> None:
    await process.talk()
    await process.plant("UPDATE outbox SET state='open'")
    assert await process.unchanged(claim_next, key_of(), 1, process.ids.next(), process.now) is None


async def test_keys_with_replies_are_those_with_a_pending_one(process: StoreProcess) -> None:
    for chat in "abc":
        await process.talk(chat=chat)
    reply = await process.sending("a")
    assert await process.store.read(keys_with_replies) == [key_of("b"), key_of("c")]
    await process.store.run(try_later, reply, process.now, "busy")
    assert await process.store.read(keys_with_replies) == [key_of("a"), key_of("b"), key_of("c")]


# -- run twice --------------------------------------------------------------------------------------------------------


async def test_claiming_twice_returns_the_reply_twice_to_its_claimer(process: StoreProcess) -> None:
    """Otherwise nobody would send it after a commit whose outcome was unknown."""
    await process.talk()
    reply = await process.twice(claim_next, key_of(), process.instance, process.ids.next(), process.now)
    assert isinstance(reply, Reply)
    assert reply.attempts == 0
    await process.store.run(try_later, reply, process.now + 1, "busy")
    process.clock.advance(2)
    again = await process.twice(claim_next, key_of(), process.instance, process.ids.next(), process.now)
    assert isinstance(again, Reply)
    assert (again.id, again.attempts) == (reply.id, 1)


async def test_a_reply_that_leaves_with_its_finish_is_not_claimed_beside_it(process: StoreProcess) -> None:
    """Even when the clock stands still between the two."""
    here = replace(process, delivery=AT_ONCE)
    begun = await here.begun()
    finished = await here.twice(finish, begun, here.answer(begun), here.delivery, here.instance, None)
    assert isinstance(finished.reply, Reply)
    assert await here.claim() is None


async def test_every_record_run_twice_is_there_once(process: StoreProcess) -> None:
    for chat in ("sent", "later", "dead", *UnknownAction):
        await process.talk(chat=chat)
    reply = await process.sending("sent")
    await process.twice(record_part, reply, ("1",))
    assert await process.twice(record_sent, reply, ("1", "2"), process.now) is False
    await process.twice(try_later, await process.sending("later"), process.now + 5, "busy")
    await process.twice(make_dead_letter, await process.sending("dead"), process.now, "refused")
    for action in UnknownAction:
        await process.twice(mark_unknown, await process.sending(action), action, process.now, "lost")
    await process.twice(
        notify_key, key_of("sent"), process.ids.next(), origin(), "hello", "why", process.now, process.delivery
    )


# -- what becomes of it -----------------------------------------------------------------------------------------------


async def test_parts_that_are_out_stay_out(process: StoreProcess) -> None:
    await process.talk()
    reply = await process.sending()
    await process.store.run(record_part, reply, ("ä", 'b"'))
    await process.store.run(try_later, reply, process.now, "busy")
    assert (await process.sending()).sent_parts == ("ä", 'b"')


async def test_a_reply_nobody_takes_is_a_dead_letter_and_blocks_nobody(process: StoreProcess) -> None:
    await process.talk("one")
    await process.talk("two")
    await process.store.run(make_dead_letter, await process.sending(), process.now, "refused")
    assert await process.look("SELECT state, error, ended_at FROM outbox ORDER BY id LIMIT 1") == [
        ("dead", "refused", process.now)
    ]
    assert isinstance(await process.claim(), Reply)


async def test_a_reply_with_unknown_delivery_follows_its_action(process: StoreProcess) -> None:
    """Promise 6: (state, marked, look) by action."""
    seen = {}
    for action in UnknownAction:
        await process.talk(chat=action)
        reply = await process.sending(action)
        await process.store.run(mark_unknown, reply, action, process.now, "lost")
        rows = await process.look("SELECT state, marked, look, error FROM outbox WHERE id=$1", reply.id)
        seen[action] = rows[0]
    assert seen == {
        UnknownAction.REPEAT: ("pending", 0, 0, "lost"),
        UnknownAction.LOOK: ("pending", 0, 1, "lost"),
        UnknownAction.MARK: ("pending", 1, 0, "lost"),
        UnknownAction.ASK: ("unknown", 0, 0, "lost"),
        UnknownAction.DROP: ("dead", 1, 0, "lost"),
    }
    assert await process.claim(UnknownAction.ASK) is None
    assert (await process.sending(UnknownAction.MARK)).marked
    assert (await process.sending(UnknownAction.LOOK)).look


async def test_a_mark_stays_through_later_doubts(process: StoreProcess) -> None:
    await process.talk()
    await process.store.run(mark_unknown, await process.sending(), UnknownAction.MARK, process.now, "lost")
    await process.store.run(mark_unknown, await process.sending(), UnknownAction.REPEAT, process.now, "lost again")
    assert (await process.sending()).marked


async def test_a_file_that_is_a_dead_letter_queues_one_notice(process: StoreProcess) -> None:
    reply = await file_being_sent(process)
    await process.twice(
        make_file_dead_letter, reply, process.now, "refused", process.ids.next(), "I could not send it."
    )
    assert await process.look("SELECT state, text FROM outbox ORDER BY id") == [
        ("dead", "see"), ("pending", "I could not send it."),
    ]  # fmt: skip


@pytest.mark.parametrize("meanwhile", ["revoked", "taken over"])
async def test_a_file_with_a_lost_claim_queues_no_notice(process: StoreProcess, meanwhile: str) -> None:
    reply = await file_being_sent(process)
    if meanwhile == "revoked":
        await process.store.run(revoke, "fake", "ann", process.now)
    else:
        await process.store.run(recover_sending, process.instance, {"fake": UnknownAction.REPEAT}, process.now)
        await replace(process, instance=2).sending()
    with pytest.raises(FenceLost):
        await process.store.run(
            make_file_dead_letter, reply, process.now, "refused", process.ids.next(), "I could not send it."
        )
    assert await process.states("outbox") == ["dead" if meanwhile == "revoked" else "sending"]


async def test_what_a_dead_process_was_sending_follows_its_platforms_class(process: StoreProcess) -> None:
    other = replace(process, instance=2)
    for chat in ("a", "b", "c"):
        await process.talk(chat=chat)
    await process.sending("a")
    await other.sending("b")
    assert await process.store.run(recover_sending, 1, {"fake": UnknownAction.LOOK}, process.now) == 1
    assert await process.states("outbox") == ["pending", "sending", "pending"]
    assert (await process.sending("a")).look
    assert (
        await process.store.run(recover_sending, 2, {}, process.now) == 1
    )  # a platform that is gone: say so if repeated
    assert (await process.sending("b")).marked


async def test_two_recoveries_of_one_instance_act_once(process: StoreProcess) -> None:
    await process.talk()
    await process.sending()
    actions = {"fake": UnknownAction.MARK}
    await asyncio.gather(*(process.store.run(recover_sending, 1, actions, process.now) for _ in range(2)))
    assert await process.look("SELECT state, marked, attempts FROM outbox") == [("pending", 1, 1)]


async def test_a_reply_says_how_long_it_is_of_use(process: StoreProcess) -> None:
    here = replace(process, delivery=Delivery(by_event=False, send_now=True, valid_s=90))
    finished = await here.finish(await here.begun())
    assert finished.reply is not None
    assert finished.reply.valid_until == process.now + 90
    await process.store.run(try_later, finished.reply, process.now, "busy")
    assert (await here.sending()).valid_until == process.now + 90


async def test_a_target_that_cannot_be_read_still_has_its_platform(process: StoreProcess) -> None:
    await process.talk("one")
    await process.talk("two")
    await process.plant("UPDATE outbox SET source='{' WHERE id=(SELECT min(id) FROM outbox)")
    reply = await process.sending()
    assert (reply.source.platform, reply.source.chat_id) == ("fake", None)
    await process.store.run(make_dead_letter, reply, process.now, "refused")
    assert (await process.sending()).source == origin()


# -- moves ------------------------------------------------------------------------------------------------------------


MOVES: dict[str, Callable[[Reply, float], Op[object]]] = {
    **{
        action: partial(lambda action, reply, now: mark_unknown(reply, action, now, "lost"), action)
        for action in UnknownAction
    },
    "claim_next": lambda reply, now: claim_next(reply.key, 9, 99, now),
    "record_part": lambda reply, _: record_part(reply, ("1",)),
    "record_sent": lambda reply, now: record_sent(reply, ("1",), now),
    "record_silence": record_silence,
    "record_progress": lambda reply, now: record_progress(reply, ("1",), now),
    "record_shown": lambda reply, now: record_shown(reply, "reply", ("1",), BUBBLE, now),
    "record_bubble": lambda reply, _: record_bubble(reply.id, reply.claim, ("1",), BUBBLE),
    "try_later": lambda reply, now: try_later(reply, now, "busy"),
    "make_dead_letter": lambda reply, now: make_dead_letter(reply, now, "refused"),
    "make_file_dead_letter": lambda reply, now: make_file_dead_letter(reply, now, "refused", 1, "I could not send it."),
    "recover_sending": lambda _, now: recover_sending(1, {"fake": UnknownAction.ASK}, now),
}
BY_CLAIM = sorted(MOVES.keys() - {"claim_next", "recover_sending"})


async def test_no_operation_makes_a_move_that_is_not_in_the_table(process: StoreProcess) -> None:
    """Every state against every operation; one that makes no move leaves an ended row as it is."""
    wrong = []
    for before, name in product(OutboxState, MOVES):
        await process.talk(chat=f"{before} {name}")
        reply = await process.sending(f"{before} {name}")
        ended = 1.0 if before in {OutboxState.SENT, OutboxState.DEAD} else None
        await process.plant("UPDATE outbox SET state=$2, ended_at=$3 WHERE id=$1", reply.id, before, ended)
        row = await process.look("SELECT * FROM outbox WHERE id=$1", reply.id)
        with suppress(FenceLost):
            await process.store.run(MOVES[name], reply, process.now)
        ((after, ended_at),) = await process.look("SELECT state, ended_at FROM outbox WHERE id=$1", reply.id)
        if after != before and OutboxState(after) not in OUTBOX_MOVES[before]:
            wrong.append(f"{before} -> {after} by {name}")
        if (ended_at is None) == (after in {"sent", "dead"}):
            wrong.append(f"{before} -> {after} by {name}, ended at {ended_at}")
        rewrites = before in {"sending", "open", "pending"} if name == "record_bubble" else before == "sending"
        if after == before and not rewrites and await process.look("SELECT * FROM outbox WHERE id=$1", reply.id) != row:
            wrong.append(f"{before} was changed by {name}")
        await process.plant("UPDATE outbox SET state='sent', ended_at=1.0 WHERE key=$1", reply.key)
    assert wrong == []


# -- a former claimer -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("since", ["recovered", "claimed by another", "claimed again by the same", "revoked"])
async def test_a_former_claimers_late_write_is_refused(process: StoreProcess, since: str) -> None:
    """Promise 8, for every verb: the row is as its new owner left it, and the former one hears that it is lost."""
    for verb in BY_CLAIM:
        await process.talk(chat=verb)
        late = await process.sending(verb)
        if since == "revoked":
            await process.plant("UPDATE outbox SET source=$2 WHERE id=$1", late.id, DIRECT)
            await process.store.run(revoke, "fake", "ann", process.now)
        else:
            await process.store.run(recover_sending, 1, {"fake": UnknownAction.REPEAT}, process.now)
        if since.startswith("claimed"):
            await replace(process, instance=2 if since.endswith("another") else 1).sending(verb)
        stored = await process.dump()
        with pytest.raises(FenceLost):
            await process.store.run(MOVES[verb], late, process.now + 1)
        assert await process.dump() == stored, verb


async def test_a_reply_that_left_with_its_finish_is_lost_to_a_new_claim(process: StoreProcess) -> None:
    """It was never claimed: its own number is its claim."""
    here = replace(process, delivery=AT_ONCE)
    for verb in BY_CLAIM:
        late = (await here.finish(await here.begun(chat=verb))).reply
        assert late is not None
        await process.store.run(recover_sending, 1, {"fake": UnknownAction.REPEAT}, process.now)
        await process.sending(verb)
        stored = await process.dump()
        with pytest.raises(FenceLost):
            await process.store.run(MOVES[verb], late, process.now + 1)
        assert await process.dump() == stored, verb


async def test_a_late_write_after_the_new_claimer_was_done_changes_nothing(process: StoreProcess) -> None:
    for verb in BY_CLAIM:
        await process.talk(chat=verb)
        late = await process.sending(verb)
        await process.store.run(recover_sending, 1, {"fake": UnknownAction.REPEAT}, process.now)
        await process.store.run(record_sent, await process.sending(verb), ("new",), process.now)
        stored = await process.dump()
        with pytest.raises(FenceLost):
            await process.store.run(MOVES[verb], late, process.now + 1)
        assert await process.dump() == stored, verb
