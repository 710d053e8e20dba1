"""Replies on their way out: claimed by one, in order, recorded once; what is uncertain; and the moves of an outbox row."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import product

import pytest

from everturn.decide.delivery import Doubtful
from everturn.errors import FenceLost
from everturn.model import OUTBOX_MOVES, Bubble, OutboxState, Reply, StoredFile
from everturn.store.interface import Op
from everturn.store.operations.admission import revoke
from everturn.store.operations.outbox import (
    SEND_AGAIN,
    claim_next,
    doubt,
    give_up,
    keys_with_replies,
    record_bubble,
    record_part,
    record_progress,
    record_sent,
    record_shown,
    record_silence,
    recover_sending,
    try_later,
)
from everturn.store.operations.sending import give_up_file
from everturn.store.operations.telling import Delivery, owe, tell_key
from everturn.store.operations.turns import finish
from tests.contracts.store import AT_ONCE, Life, key_of, living, origin

BUBBLE = Bubble(name="b")
DIRECT = '{"platform":"fake","chat_type":"dm","user_id":"ann"}'


@pytest.fixture
async def life(store_url: str) -> AsyncIterator[Life]:
    async with living(store_url) as life:
        yield life


async def file_being_sent(life: Life) -> Reply:
    file, at_once = (
        StoredFile(id="i" * 22, name="a.pdf", type="application/pdf", size=3),
        Delivery(by_event=False, send_now=True),
    )
    reply = await life.store.run(
        owe, life.ids.next(), key_of(), None, "file", origin(), "see", life.now, at_once, life.instance, file
    )
    assert reply is not None
    return reply


# -- claim ------------------------------------------------------------------------------------------------------------


async def test_replies_leave_one_at_a_time_in_order(life: Life) -> None:
    """Promise 3"""
    for text in ("one", "two", "three"):
        await life.finish(await life.begun(text), text=f"re {text}")
    sent = []
    while True:
        reply = await life.sending()
        assert await replace(life, instance=2).claim() is None
        sent.append(reply.text)
        if not await life.store.run(record_sent, reply, ("p",), life.now):
            break
    assert sent == ["re one", "re two", "re three"]
    assert set(await life.states("outbox")) == {"sent"}


async def test_of_twenty_who_claim_one_sends_each_reply(life: Life) -> None:
    for chat in "abcde":
        for _ in range(2):
            await life.talk(chat=chat)
    lives = [replace(life, instance=number) for number in range(1, 21)]
    claims = await asyncio.gather(*(each.claim(chat) for each in lives for chat in "abcde"))
    replies = [claim for claim in claims if isinstance(claim, Reply)]
    assert len(replies) == len({reply.id for reply in replies}) == 5
    assert {claim for claim in claims if not isinstance(claim, Reply)} == {None}


async def test_one_life_does_not_claim_what_it_is_sending(life: Life) -> None:
    await life.talk()
    await life.sending()
    life.clock.advance(0.001)
    assert await life.claim() is None


async def test_a_reply_that_is_being_sent_is_not_overtaken(life: Life) -> None:
    """A command is answered while a turn with a lower number runs; the turn's reply waits until the answer is out."""
    begun = await life.begun()
    await life.command("/status")
    answer = await life.sending()
    await life.finish(begun)
    assert await replace(life, instance=2).claim() is None
    await life.store.run(record_sent, answer, ("p",), life.now)
    assert (await life.sending()).id == begun.turn


@pytest.mark.parametrize("later", [1.0, 0.0, -3600.0])
async def test_what_was_owed_first_leaves_first_whatever_its_number(life: Life, later: float) -> None:
    """Promise 3. An answer has the number of its turn, which is lower than that of what was said while the turn ran. A clock
    that stands or is set back changes nothing.
    """
    begun = await life.begun()
    life.clock.advance(1.0)
    await life.command("/status")
    life.clock.set_back(-later)
    await life.finish(begun)
    life.clock.advance(3600.0)
    answer = await life.sending()
    assert answer.id != begun.turn
    await life.store.run(record_sent, answer, ("p",), life.now)
    assert (await life.sending()).id == begun.turn


async def test_a_reply_that_is_not_due_says_when(life: Life) -> None:
    await life.talk()
    reply = await life.sending()
    await life.store.run(try_later, reply, life.now + 60, "busy")
    assert await life.unchanged(claim_next, key_of(), 1, life.ids.next(), life.now) == life.now + 60
    life.clock.advance(60)
    assert (await life.sending()).attempts == 1


async def test_waits_that_were_ordered_and_deaths_are_tries_but_no_failures(life: Life) -> None:
    """A platform that orders many waits, or a gateway that restarts often, makes no dead letter."""
    await life.talk()
    for failed, sent in ((False, (1, 0)), (True, (2, 1)), (False, (3, 1)), (True, (4, 2))):
        await life.twice(try_later, await life.sending(), life.now, "busy", failed=failed)
        assert await life.look("SELECT attempts, failures FROM outbox") == [sent]
    assert (await life.sending()).failures == 2
    await life.store.run(recover_sending, 1, {"fake": Doubtful.MARK}, life.now)
    reply = await life.sending()
    assert (reply.attempts, reply.failures) == (5, 2)
    await life.twice(doubt, reply, Doubtful.MARK, life.now, "lost")
    assert (await life.sending()).failures == 3


async def test_a_reply_that_is_sent_anew_has_not_failed_yet(life: Life) -> None:
    begun = await life.talk()
    await life.store.run(try_later, await life.sending(), life.now, "busy")
    await life.plant(SEND_AGAIN, begun.turn, life.now)
    reply = await life.sending()
    assert reply.failures == 0
    await life.store.run(try_later, reply, life.now, "busy")
    assert await life.look("SELECT attempts, failures FROM outbox") == [(1, 1)]


async def test_a_reply_is_sent_at_once_only_when_nothing_is_before_it(life: Life) -> None:
    here = replace(life, delivery=AT_ONCE)
    first = await here.finish(await here.begun())
    assert isinstance(first.reply, Reply)
    second = await here.finish(await here.begun("next"))
    assert second.reply is None
    assert await life.states("outbox") == ["sending", "owed"]
    assert await here.store.run(record_sent, first.reply, ("p",), life.now) is True
    assert (await here.sending()).text == "done"


async def test_a_preview_that_is_out_is_not_claimed(life: Life) -> None:
    await life.talk()
    await life.plant("UPDATE outbox SET state='open'")
    assert await life.unchanged(claim_next, key_of(), 1, life.ids.next(), life.now) is None


async def test_keys_with_replies_are_those_that_owe_one(life: Life) -> None:
    for chat in "abc":
        await life.talk(chat=chat)
    reply = await life.sending("a")
    assert await life.store.read(keys_with_replies) == [key_of("b"), key_of("c")]
    await life.store.run(try_later, reply, life.now, "busy")
    assert await life.store.read(keys_with_replies) == [key_of("a"), key_of("b"), key_of("c")]


# -- run twice --------------------------------------------------------------------------------------------------------


async def test_claiming_twice_gives_the_reply_twice_to_who_claimed_it(life: Life) -> None:
    """Otherwise nobody would send it after a commit whose outcome was unknown."""
    await life.talk()
    reply = await life.twice(claim_next, key_of(), life.instance, life.ids.next(), life.now)
    assert isinstance(reply, Reply)
    assert reply.attempts == 0
    await life.store.run(try_later, reply, life.now + 1, "busy")
    life.clock.advance(2)
    again = await life.twice(claim_next, key_of(), life.instance, life.ids.next(), life.now)
    assert isinstance(again, Reply)
    assert (again.id, again.attempts) == (reply.id, 1)


async def test_a_reply_that_leaves_with_its_finish_is_not_claimed_beside_it(life: Life) -> None:
    """Even when the clock stands still between the two."""
    here = replace(life, delivery=AT_ONCE)
    begun = await here.begun()
    finished = await here.twice(finish, begun, here.answer(begun), here.delivery, here.instance, None)
    assert isinstance(finished.reply, Reply)
    assert await here.claim() is None


async def test_every_record_run_twice_is_there_once(life: Life) -> None:
    for chat in ("sent", "later", "dead", *Doubtful):
        await life.talk(chat=chat)
    reply = await life.sending("sent")
    await life.twice(record_part, reply, ("1",))
    assert await life.twice(record_sent, reply, ("1", "2"), life.now) is False
    await life.twice(try_later, await life.sending("later"), life.now + 5, "busy")
    await life.twice(give_up, await life.sending("dead"), life.now, "refused")
    for action in Doubtful:
        await life.twice(doubt, await life.sending(action), action, life.now, "lost")
    await life.twice(tell_key, key_of("sent"), life.ids.next(), origin(), "hello", "why", life.now, life.delivery)


# -- what becomes of it -----------------------------------------------------------------------------------------------


async def test_parts_that_are_out_stay_out(life: Life) -> None:
    await life.talk()
    reply = await life.sending()
    await life.store.run(record_part, reply, ("ä", 'b"'))
    await life.store.run(try_later, reply, life.now, "busy")
    assert (await life.sending()).sent_parts == ("ä", 'b"')


async def test_a_reply_nobody_takes_is_a_dead_letter_and_blocks_nobody(life: Life) -> None:
    await life.talk("one")
    await life.talk("two")
    await life.store.run(give_up, await life.sending(), life.now, "refused")
    assert await life.look("SELECT state, error, ended_at FROM outbox ORDER BY id LIMIT 1") == [
        ("dead", "refused", life.now)
    ]
    assert isinstance(await life.claim(), Reply)


async def test_a_doubtful_reply_follows_its_action(life: Life) -> None:
    """Promise 6: (state, marked, look) by action."""
    seen = {}
    for action in Doubtful:
        await life.talk(chat=action)
        reply = await life.sending(action)
        await life.store.run(doubt, reply, action, life.now, "lost")
        rows = await life.look("SELECT state, marked, look, error FROM outbox WHERE id=$1", reply.id)
        seen[action] = rows[0]
    assert seen == {
        Doubtful.REPEAT: ("owed", 0, 0, "lost"),
        Doubtful.LOOK: ("owed", 0, 1, "lost"),
        Doubtful.MARK: ("owed", 1, 0, "lost"),
        Doubtful.ASK: ("doubtful", 0, 0, "lost"),
        Doubtful.DROP: ("dead", 1, 0, "lost"),
    }
    assert await life.claim(Doubtful.ASK) is None
    assert (await life.sending(Doubtful.MARK)).marked
    assert (await life.sending(Doubtful.LOOK)).look


async def test_a_mark_stays_through_later_doubts(life: Life) -> None:
    await life.talk()
    await life.store.run(doubt, await life.sending(), Doubtful.MARK, life.now, "lost")
    await life.store.run(doubt, await life.sending(), Doubtful.REPEAT, life.now, "lost again")
    assert (await life.sending()).marked


async def test_who_waits_for_a_file_that_is_given_up_is_told_once(life: Life) -> None:
    reply = await file_being_sent(life)
    await life.twice(give_up_file, reply, life.now, "refused", life.ids.next(), "I could not send it.")
    assert await life.look("SELECT state, text FROM outbox ORDER BY id") == [
        ("dead", "see"), ("owed", "I could not send it."),
    ]  # fmt: skip


@pytest.mark.parametrize("meanwhile", ["revoked", "taken over"])
async def test_nobody_is_told_of_a_file_that_is_no_longer_ours_to_send(life: Life, meanwhile: str) -> None:
    reply = await file_being_sent(life)
    if meanwhile == "revoked":
        await life.store.run(revoke, "fake", "ann", life.now)
    else:
        await life.store.run(recover_sending, life.instance, {"fake": Doubtful.REPEAT}, life.now)
        await replace(life, instance=2).sending()
    with pytest.raises(FenceLost):
        await life.store.run(give_up_file, reply, life.now, "refused", life.ids.next(), "I could not send it.")
    assert await life.states("outbox") == ["dead" if meanwhile == "revoked" else "sending"]


async def test_what_a_dead_life_was_sending_follows_its_platforms_class(life: Life) -> None:
    other = replace(life, instance=2)
    for chat in ("a", "b", "c"):
        await life.talk(chat=chat)
    await life.sending("a")
    await other.sending("b")
    assert await life.store.run(recover_sending, 1, {"fake": Doubtful.LOOK}, life.now) == 1
    assert await life.states("outbox") == ["owed", "sending", "owed"]
    assert (await life.sending("a")).look
    assert await life.store.run(recover_sending, 2, {}, life.now) == 1  # a platform that is gone: say so if repeated
    assert (await life.sending("b")).marked


async def test_two_recoveries_of_one_life_act_once(life: Life) -> None:
    await life.talk()
    await life.sending()
    actions = {"fake": Doubtful.MARK}
    await asyncio.gather(*(life.store.run(recover_sending, 1, actions, life.now) for _ in range(2)))
    assert await life.look("SELECT state, marked, attempts FROM outbox") == [("owed", 1, 1)]


async def test_a_reply_says_how_long_it_is_of_use(life: Life) -> None:
    here = replace(life, delivery=Delivery(by_event=False, send_now=True, valid_s=90))
    finished = await here.finish(await here.begun())
    assert finished.reply is not None
    assert finished.reply.valid_until == life.now + 90
    await life.store.run(try_later, finished.reply, life.now, "busy")
    assert (await here.sending()).valid_until == life.now + 90


async def test_a_target_that_cannot_be_read_still_has_its_platform(life: Life) -> None:
    await life.talk("one")
    await life.talk("two")
    await life.plant("UPDATE outbox SET source='{' WHERE id=(SELECT min(id) FROM outbox)")
    reply = await life.sending()
    assert (reply.source.platform, reply.source.chat_id) == ("fake", None)
    await life.store.run(give_up, reply, life.now, "refused")
    assert (await life.sending()).source == origin()


# -- moves ------------------------------------------------------------------------------------------------------------


MOVES: dict[str, Callable[[Reply, float], Op[object]]] = {
    **{action: partial(lambda action, reply, now: doubt(reply, action, now, "lost"), action) for action in Doubtful},
    "claim_next": lambda reply, now: claim_next(reply.key, 9, 99, now),
    "record_part": lambda reply, _: record_part(reply, ("1",)),
    "record_sent": lambda reply, now: record_sent(reply, ("1",), now),
    "record_silence": record_silence,
    "record_progress": lambda reply, now: record_progress(reply, ("1",), now),
    "record_shown": lambda reply, now: record_shown(reply, "reply", ("1",), BUBBLE, now),
    "record_bubble": lambda reply, _: record_bubble(reply.id, reply.claim, ("1",), BUBBLE),
    "try_later": lambda reply, now: try_later(reply, now, "busy"),
    "give_up": lambda reply, now: give_up(reply, now, "refused"),
    "give_up_file": lambda reply, now: give_up_file(reply, now, "refused", 1, "I could not send it."),
    "recover_sending": lambda _, now: recover_sending(1, {"fake": Doubtful.ASK}, now),
}
BY_CLAIM = sorted(MOVES.keys() - {"claim_next", "recover_sending"})


async def test_no_operation_makes_a_move_that_is_not_in_the_table(life: Life) -> None:
    """Every state against every operation; who makes no move leaves an ended row as it is."""
    wrong = []
    for before, name in product(OutboxState, MOVES):
        await life.talk(chat=f"{before} {name}")
        reply = await life.sending(f"{before} {name}")
        ended = 1.0 if before in {OutboxState.SENT, OutboxState.DEAD} else None
        await life.plant("UPDATE outbox SET state=$2, ended_at=$3 WHERE id=$1", reply.id, before, ended)
        row = await life.look("SELECT * FROM outbox WHERE id=$1", reply.id)
        with suppress(FenceLost):
            await life.store.run(MOVES[name], reply, life.now)
        ((after, ended_at),) = await life.look("SELECT state, ended_at FROM outbox WHERE id=$1", reply.id)
        if after != before and OutboxState(after) not in OUTBOX_MOVES[before]:
            wrong.append(f"{before} -> {after} by {name}")
        if (ended_at is None) == (after in {"sent", "dead"}):
            wrong.append(f"{before} -> {after} by {name}, ended at {ended_at}")
        rewrites = before in {"sending", "open", "owed"} if name == "record_bubble" else before == "sending"
        if after == before and not rewrites and await life.look("SELECT * FROM outbox WHERE id=$1", reply.id) != row:
            wrong.append(f"{before} was changed by {name}")
        await life.plant("UPDATE outbox SET state='sent', ended_at=1.0 WHERE key=$1", reply.key)
    assert wrong == []


# -- a former claimer -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("since", ["recovered", "claimed by another", "claimed again by the same", "revoked"])
async def test_a_former_claimers_late_write_is_refused(life: Life, since: str) -> None:
    """Promise 8, for every verb: the row is as its new owner left it, and the former one hears that it is lost."""
    for verb in BY_CLAIM:
        await life.talk(chat=verb)
        late = await life.sending(verb)
        if since == "revoked":
            await life.plant("UPDATE outbox SET source=$2 WHERE id=$1", late.id, DIRECT)
            await life.store.run(revoke, "fake", "ann", life.now)
        else:
            await life.store.run(recover_sending, 1, {"fake": Doubtful.REPEAT}, life.now)
        if since.startswith("claimed"):
            await replace(life, instance=2 if since.endswith("another") else 1).sending(verb)
        stored = await life.dump()
        with pytest.raises(FenceLost):
            await life.store.run(MOVES[verb], late, life.now + 1)
        assert await life.dump() == stored, verb


async def test_a_reply_that_left_with_its_finish_is_lost_to_a_new_claim(life: Life) -> None:
    """It was never claimed: its own number is its claim."""
    here = replace(life, delivery=AT_ONCE)
    for verb in BY_CLAIM:
        late = (await here.finish(await here.begun(chat=verb))).reply
        assert late is not None
        await life.store.run(recover_sending, 1, {"fake": Doubtful.REPEAT}, life.now)
        await life.sending(verb)
        stored = await life.dump()
        with pytest.raises(FenceLost):
            await life.store.run(MOVES[verb], late, life.now + 1)
        assert await life.dump() == stored, verb


async def test_a_late_write_after_the_new_claimer_was_done_changes_nothing(life: Life) -> None:
    for verb in BY_CLAIM:
        await life.talk(chat=verb)
        late = await life.sending(verb)
        await life.store.run(recover_sending, 1, {"fake": Doubtful.REPEAT}, life.now)
        await life.store.run(record_sent, await life.sending(verb), ("new",), life.now)
        stored = await life.dump()
        with pytest.raises(FenceLost):
            await life.store.run(MOVES[verb], late, life.now + 1)
        assert await life.dump() == stored, verb
