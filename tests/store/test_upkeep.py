"""What no message waits for: sessions that expire, and what is forgotten when it was kept long enough."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from everturn.store.operations.attachments import descriptions
from everturn.store.operations.entries import list_entries
from everturn.store.operations.inbox import Outcome, accept
from everturn.store.operations.outbox import give_up, record_sent, try_later
from everturn.store.operations.reading import transcript
from everturn.store.operations.recovery import suspend_session
from everturn.store.operations.telling import event_range
from everturn.store.operations.upkeep import (
    BATCH,
    BODIES_KEPT_S,
    CALLS,
    DAY_S,
    DESCRIPTIONS_KEPT_S,
    IDS_KEPT_S,
    expire,
    follow_clock,
    forget,
    idle_entries,
)
from tests.contracts.store import BY_EVENT, QUEUE, Life, broken, key_of, living


@pytest.fixture
async def life(store_url: str) -> AsyncIterator[Life]:
    async with living(store_url) as life:
        yield life


# -- expiry -----------------------------------------------------------------------------------------------------------


async def test_an_expired_session_is_ended_without_waiting_for_a_message(life: Life) -> None:
    """Behaviour 1.10"""
    begun = await life.talk()
    at, fence = life.now, (await life.entry()).fence
    life.clock.advance(DAY_S)
    assert await life.store.run(expire, key_of(), fence, "idle", life.now) is True
    assert await life.unchanged(expire, key_of(), fence, "idle", life.now) is False
    rows = await life.look("SELECT session_id, ended_at, end_reason, messages FROM session")
    assert rows == [(begun.session_id, life.now, "idle", 2)]
    entry = await life.entry()
    assert (entry.session_id, entry.expired, entry.active_at) == (begun.session_id, "idle", at)
    assert (await life.store.read(list_entries, "", 9))[0]["end_reason"] == "idle"


@pytest.mark.parametrize("moved", ["message", "turn", "interrupted", "activity", "command", "new", "nobody"])
async def test_a_session_that_moved_since_it_was_looked_at_is_not_expired(life: Life, moved: str) -> None:
    """Also in the clock tick in which it was last used."""
    await life.talk()
    fence = (await life.entry()).fence
    if moved == "message":
        await life.accept("next")
    elif moved == "command":
        await life.accept("/status")
    elif moved == "activity":
        await life.talk("next")
    elif moved == "new":
        await life.command("/new")
    elif moved in {"turn", "interrupted"}:
        await life.called("next")
        await life.die() if moved == "interrupted" else None
    key = key_of("nobody") if moved == "nobody" else key_of()
    assert await life.unchanged(expire, key, fence, "idle", life.now) is False


async def test_an_address_without_a_session_does_not_expire(life: Life) -> None:
    await life.command("/help")
    assert await life.unchanged(expire, key_of(), (await life.entry()).fence, "idle", life.now + DAY_S) is False


async def test_an_expiry_and_a_message_at_once_leave_one_session_in_use(life: Life) -> None:
    for number in range(10):
        chat = str(number)
        first = await life.talk(chat=chat)
        fence = (await life.entry(chat)).fence
        life.clock.advance(DAY_S)
        expired, begun = await asyncio.gather(
            life.store.run(expire, key_of(chat), fence, "idle", life.now), life.begun("next", chat)
        )
        assert (begun.session_id == first.session_id) is not expired
        rows = await life.look("SELECT session_id FROM session WHERE key=$1 AND ended_at IS NULL", key_of(chat))
        assert rows == [(begun.session_id,)]
    assert await life.store.read(broken) == {}


async def test_only_idle_sessions_are_looked_at_a_page_at_a_time(life: Life) -> None:
    for chat in ("a", "b", "c"):
        await life.talk(chat=chat)
    await life.called(chat="running")
    await life.accept(chat="waiting")
    await life.store.run(expire, key_of("b"), (await life.entry("b")).fence, "daily", life.now)
    first = await life.store.read(idle_entries, "", 1)
    rest = await life.store.read(idle_entries, first[-1].key, 9)
    assert [entry.key for entry in first + rest] == [key_of("a"), key_of("c")]


# -- forgetting -------------------------------------------------------------------------------------------------------


async def forget_all(life: Life) -> None:
    while await life.store.run(forget, life.now):
        pass


async def test_the_id_outlives_the_body_by_thirty_days(life: Life) -> None:
    """Promise 2"""
    await life.store.run(accept, life.arrival("secret", ext="1"), QUEUE, life.start())
    await life.finish(await life.began())
    life.clock.advance(BODIES_KEPT_S - 1)
    await forget_all(life)
    assert await life.look("SELECT body FROM inbox") == [("secret",)]
    life.clock.advance(2)
    await forget_all(life)
    assert await life.look("SELECT body, state FROM inbox") == [("", "done")]
    life.clock.advance(IDS_KEPT_S - BODIES_KEPT_S - 2)
    await forget_all(life)
    late = life.arrival("secret", ext="1")
    assert (await life.unchanged(accept, late, QUEUE, life.start())).outcome is Outcome.DUPLICATE
    life.clock.advance(2)
    await forget_all(life)
    assert await life.look("SELECT id FROM inbox") == []


async def upkeep(life: Life) -> None:
    """One run, as the gateway makes it."""
    now = await life.store.run(follow_clock, life.now)
    while await life.store.run(forget, now):
        pass


@pytest.mark.parametrize("runs", [0, 1, 40])
async def test_one_run_with_a_wild_clock_forgets_no_id(life: Life, runs: int) -> None:
    """Promise 2: whether it is the first run of all, or one of many."""
    await life.store.run(accept, life.arrival("hello", ext="1"), QUEUE, life.start())
    await life.finish(await life.began())
    for _ in range(runs):
        await upkeep(life)
        life.clock.advance(3600)
    life.clock.advance(38 * DAY_S)
    await upkeep(life)
    life.clock.set_back(38 * DAY_S)
    await upkeep(life)
    late = life.arrival("hello", ext="1")
    assert (await life.unchanged(accept, late, QUEUE, life.start())).outcome is Outcome.DUPLICATE
    assert await life.look("SELECT body FROM inbox") == [("hello",)]


@pytest.mark.parametrize("wild_s", [38 * DAY_S, -38 * DAY_S])
async def test_forgetting_follows_the_clock_again_after_a_wild_run(life: Life, wild_s: float) -> None:
    for _ in range(40):
        await life.store.run(follow_clock, life.now)
        life.clock.advance(3600)
    assert await life.twice(follow_clock, life.now) == life.now
    assert await life.store.run(follow_clock, life.now + wild_s) <= life.now + DAY_S
    assert await life.store.run(follow_clock, life.now) == life.now


async def test_what_a_stopped_gateway_kept_too_long_goes_a_day_a_run(life: Life) -> None:
    for _ in range(40):
        await life.store.run(follow_clock, life.now)
        life.clock.advance(3600)
    await life.talk("hello")
    life.clock.advance(10 * DAY_S)
    bodies = []
    for _ in range(10):
        await upkeep(life)
        bodies += await life.look("SELECT body FROM inbox")
        life.clock.advance(3600)
    assert bodies == [("hello",)] * 7 + [("",)] * 3


async def test_what_is_open_is_never_forgotten(life: Life) -> None:
    begun = await life.called("running")
    await life.accept("waiting")
    await life.talk(chat="owed")
    life.clock.advance(100 * DAY_S)
    await forget_all(life)
    assert await life.look("SELECT body FROM inbox WHERE key=$1 ORDER BY id", begun.key) == [("running",), ("waiting",)]
    assert await life.look("SELECT state FROM outbox") == [("owed",)]
    assert (await life.finish(begun)).more is True


async def test_the_id_of_a_message_that_waited_long_is_kept_after_its_end(life: Life) -> None:
    await life.store.run(accept, life.arrival("patient", ext="1"), QUEUE, None)
    life.clock.advance(50 * DAY_S)
    await life.finish(await life.began())
    await forget_all(life)
    assert (await life.accept("patient", ext="1")).outcome is Outcome.DUPLICATE
    life.clock.advance(IDS_KEPT_S + 1)
    await forget_all(life)
    assert await life.look("SELECT id FROM inbox") == []


async def test_what_was_said_in_a_call_that_stands_alone_is_forgotten_with_its_id(life: Life) -> None:
    here = replace(life, delivery=BY_EVENT)
    alone, begun = [await here.begun(chat="ann", platform="v1", thread_id=thread) for thread in ("call:1", "session:1")]
    for each in (alone, begun):
        await here.tool(each)
        await here.finish(each, 3)
    life.clock.advance(IDS_KEPT_S - 1)
    await forget_all(life)
    assert await life.look("SELECT count(*) FROM entry") == [(2,)]
    life.clock.advance(2)
    await forget_all(life)
    left = {table: await life.look(f"SELECT DISTINCT key FROM {table}") for table in ("entry", "session", "turn")}
    assert left == {table: [(begun.key,)] for table in left}
    assert await life.look("SELECT DISTINCT session_id FROM message") == [(begun.session_id,)]
    assert await life.look("SELECT DISTINCT turn FROM effect") == [(begun.turn,)]
    assert await life.store.read(broken) == {}


async def test_a_call_that_went_on_is_kept_until_that_is_old_too(life: Life) -> None:
    here = replace(life, delivery=BY_EVENT)
    await here.finish(await here.begun(chat="ann", platform="v1", thread_id="call:1"))
    life.clock.advance(IDS_KEPT_S - 5)
    await here.finish(await here.begun("and then?", chat="ann", platform="v1", thread_id="call:1"))
    life.clock.advance(6)
    await forget_all(life)
    assert await life.look("SELECT count(*) FROM message") == [(4,)]
    life.clock.advance(IDS_KEPT_S)
    await forget_all(life)
    assert await life.look("SELECT count(*) FROM message") == [(0,)]


async def test_many_calls_are_forgotten_a_batch_at_a_time(life: Life) -> None:
    here = replace(life, delivery=BY_EVENT)
    for number in range(CALLS + 2):
        await here.finish(await here.begun(chat="ann", platform="v1", thread_id=f"call:{number}"))
    life.clock.advance(IDS_KEPT_S + 1)
    await life.store.run(forget, life.now)
    assert await life.look("SELECT count(*) FROM entry") == [(2,)]
    await forget_all(life)
    assert [await life.look(f"SELECT count(*) FROM {table}") for table in ("entry", "turn", "inbox")] == [[(0,)]] * 3


async def test_sent_replies_are_forgotten_and_dead_letters_kept(life: Life) -> None:
    for chat in ("sent", "dead"):
        await life.talk(chat=chat)
    await life.store.run(record_sent, await life.sending("sent"), ("p",), life.now)
    await life.store.run(give_up, await life.sending("dead"), life.now, "refused")
    life.clock.advance(IDS_KEPT_S + 1)
    await forget_all(life)
    assert await life.states("outbox") == ["dead"]


async def test_the_tries_of_a_reply_go_with_it_and_those_of_its_turn_stay(life: Life) -> None:
    for chat in ("sent", "dead"):
        begun = await life.talk(chat=chat)
        await life.plant("INSERT INTO failure VALUES ($1, 1, 1, 'later', 'a model', 0, 1)", begun.turn)
        await life.store.run(try_later, await life.sending(chat), life.now, "busy")
        reply = await life.sending(chat)
        if chat == "sent":
            await life.store.run(record_sent, reply, ("p",), life.now)
        else:
            await life.store.run(give_up, reply, life.now, "refused")
    life.clock.advance(IDS_KEPT_S + 1)
    await forget_all(life)
    assert await life.look("SELECT why FROM failure ORDER BY turn, number DESC") == [
        ("a model",), ("a model",), ("busy",), ("refused",),
    ]  # fmt: skip


async def test_what_a_sticker_shows_is_kept_for_a_year(life: Life) -> None:
    rows = ",".join(f"('fake', 'u{number}', 'a cat', {life.now + (number == 0)!r})" for number in range(BATCH + 2))
    await life.plant(f"INSERT INTO description VALUES {rows}")
    life.clock.advance(DESCRIPTIONS_KEPT_S)
    assert await life.store.run(forget, life.now) == 0
    life.clock.advance(0.5)
    assert await life.store.run(forget, life.now) == BATCH
    await forget_all(life)
    assert await life.store.read(descriptions, "fake", ["u0", "u1"]) == {"u0": "a cat"}


async def test_old_events_go_and_their_numbers_are_not_given_again(life: Life) -> None:
    here = replace(life, delivery=BY_EVENT)
    await here.talk()
    life.clock.advance(6 * DAY_S)
    await here.talk("later")
    assert await life.store.read(event_range, key_of()) == (1, 8)
    life.clock.advance(2 * DAY_S)
    await forget_all(life)
    assert await life.store.read(event_range, key_of()) == (5, 8)
    life.clock.advance(8 * DAY_S)
    await forget_all(life)
    assert await life.store.read(event_range, key_of()) == (0, 8)
    assert (await here.begun("new")).events[0].seq == 9
    assert await life.store.read(event_range, key_of("nobody")) == (0, 0)


async def test_conversations_are_not_forgotten(life: Life) -> None:
    begun = await life.talk()
    await life.store.run(suspend_session, key_of(), life.now)
    life.clock.advance(1000 * DAY_S)
    await forget_all(life)
    assert len(await life.store.read(transcript, begun.session_id, 0, 9)) == 2
    assert (await life.entry()).session_id == begun.session_id


async def test_forgetting_takes_bounded_batches(life: Life) -> None:
    rows = ",".join(
        f"({n}, 'm{n}', 'fake', '', 'k', 'message', '', 'x', 'done', 0, 1, 1)" for n in range(1, BATCH + 12)
    )
    await life.plant(
        "INSERT INTO inbox (id, ext_id, platform, account, key, kind, source, body, state, place, accepted_at, ended_at)"
        f" VALUES {rows}"
    )
    assert await life.store.run(forget, life.now) == BATCH + 11  # a batch of ids, and the bodies of the rest
    assert await life.store.run(forget, life.now) == 11
    assert await life.store.run(forget, life.now) == 0
