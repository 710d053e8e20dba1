"""Upkeep as rows: sessions expire, and rows are deleted when they were kept long enough."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from everturn.inbox.rows.attachments import descriptions
from everturn.inbox.rows.inbox import AcceptOutcome, accept
from everturn.lifecycle.rows import (
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
from everturn.outbox.rows.outbox import make_dead_letter, record_sent, try_later
from everturn.outbox.rows.replies import event_range
from everturn.sessions.rows.entries import list_entries, transcript
from everturn.turns.rows.recovery import suspend_session
from tests.contracts.store import BY_EVENT, QUEUE, StoreProcess, broken, key_of, living


@pytest.fixture
async def process(store_url: str) -> AsyncIterator[StoreProcess]:
    async with living(store_url) as process:
        yield process


# -- expiry -----------------------------------------------------------------------------------------------------------


async def test_an_expired_session_is_ended_without_waiting_for_a_message(process: StoreProcess) -> None:
    """Behaviour 1.10"""
    begun = await process.talk()
    at, fence = process.now, (await process.entry()).fence
    process.clock.advance(DAY_S)
    assert await process.store.run(expire, key_of(), fence, "idle", process.now) is True
    assert await process.unchanged(expire, key_of(), fence, "idle", process.now) is False
    rows = await process.look("SELECT session_id, ended_at, end_reason, messages FROM session")
    assert rows == [(begun.session_id, process.now, "idle", 2)]
    entry = await process.entry()
    assert (entry.session_id, entry.expired, entry.active_at) == (begun.session_id, "idle", at)
    assert (await process.store.read(list_entries, "", 9))[0]["end_reason"] == "idle"


@pytest.mark.parametrize("moved", ["message", "turn", "interrupted", "activity", "command", "new", "nobody"])
async def test_a_session_that_moved_since_it_was_looked_at_is_not_expired(process: StoreProcess, moved: str) -> None:
    """Also in the clock tick in which it was last used."""
    await process.talk()
    fence = (await process.entry()).fence
    if moved == "message":
        await process.accept("next")
    elif moved == "command":
        await process.accept("/status")
    elif moved == "activity":
        await process.talk("next")
    elif moved == "new":
        await process.command("/new")
    elif moved in {"turn", "interrupted"}:
        await process.called("next")
        await process.die() if moved == "interrupted" else None
    key = key_of("nobody") if moved == "nobody" else key_of()
    assert await process.unchanged(expire, key, fence, "idle", process.now) is False


async def test_an_address_without_a_session_does_not_expire(process: StoreProcess) -> None:
    await process.command("/help")
    assert (
        await process.unchanged(expire, key_of(), (await process.entry()).fence, "idle", process.now + DAY_S) is False
    )


async def test_an_expiry_and_a_message_at_once_leave_one_session_in_use(process: StoreProcess) -> None:
    for number in range(10):
        chat = str(number)
        first = await process.talk(chat=chat)
        fence = (await process.entry(chat)).fence
        process.clock.advance(DAY_S)
        expired, begun = await asyncio.gather(
            process.store.run(expire, key_of(chat), fence, "idle", process.now), process.begun("next", chat)
        )
        assert (begun.session_id == first.session_id) is not expired
        rows = await process.look("SELECT session_id FROM session WHERE key=$1 AND ended_at IS NULL", key_of(chat))
        assert rows == [(begun.session_id,)]
    assert await process.store.read(broken) == {}


async def test_only_idle_sessions_are_looked_at_a_page_at_a_time(process: StoreProcess) -> None:
    for chat in ("a", "b", "c"):
        await process.talk(chat=chat)
    await process.called(chat="running")
    await process.accept(chat="waiting")
    await process.store.run(expire, key_of("b"), (await process.entry("b")).fence, "daily", process.now)
    first = await process.store.read(idle_entries, "", 1)
    rest = await process.store.read(idle_entries, first[-1].key, 9)
    assert [entry.key for entry in first + rest] == [key_of("a"), key_of("c")]


# -- forgetting -------------------------------------------------------------------------------------------------------


async def forget_all(process: StoreProcess) -> None:
    while await process.store.run(forget, process.now):
        pass


async def test_the_id_outlives_the_body_by_thirty_days(process: StoreProcess) -> None:
    """Promise 2"""
    await process.store.run(accept, process.arrival("secret", ext="1"), QUEUE, process.start())
    await process.finish(await process.began())
    process.clock.advance(BODIES_KEPT_S - 1)
    await forget_all(process)
    assert await process.look("SELECT body FROM inbox") == [("secret",)]
    process.clock.advance(2)
    await forget_all(process)
    assert await process.look("SELECT body, state FROM inbox") == [("", "done")]
    process.clock.advance(IDS_KEPT_S - BODIES_KEPT_S - 2)
    await forget_all(process)
    late = process.arrival("secret", ext="1")
    assert (await process.unchanged(accept, late, QUEUE, process.start())).outcome is AcceptOutcome.DUPLICATE
    process.clock.advance(2)
    await forget_all(process)
    assert await process.look("SELECT id FROM inbox") == []


async def upkeep(process: StoreProcess) -> None:
    """One run, as the gateway makes it."""
    now = await process.store.run(follow_clock, process.now)
    while await process.store.run(forget, now):
        pass


@pytest.mark.parametrize("runs", [0, 1, 40])
async def test_one_run_with_a_wild_clock_forgets_no_id(process: StoreProcess, runs: int) -> None:
    """Promise 2: whether it is the first run of all, or one of many."""
    await process.store.run(accept, process.arrival("hello", ext="1"), QUEUE, process.start())
    await process.finish(await process.began())
    for _ in range(runs):
        await upkeep(process)
        process.clock.advance(3600)
    process.clock.advance(38 * DAY_S)
    await upkeep(process)
    process.clock.set_back(38 * DAY_S)
    await upkeep(process)
    late = process.arrival("hello", ext="1")
    assert (await process.unchanged(accept, late, QUEUE, process.start())).outcome is AcceptOutcome.DUPLICATE
    assert await process.look("SELECT body FROM inbox") == [("hello",)]


@pytest.mark.parametrize("wild_s", [38 * DAY_S, -38 * DAY_S])
async def test_forgetting_follows_the_clock_again_after_a_wild_run(process: StoreProcess, wild_s: float) -> None:
    for _ in range(40):
        await process.store.run(follow_clock, process.now)
        process.clock.advance(3600)
    assert await process.twice(follow_clock, process.now) == process.now
    assert await process.store.run(follow_clock, process.now + wild_s) <= process.now + DAY_S
    assert await process.store.run(follow_clock, process.now) == process.now


async def test_what_a_stopped_gateway_kept_too_long_goes_a_day_a_run(process: StoreProcess) -> None:
    for _ in range(40):
        await process.store.run(follow_clock, process.now)
        process.clock.advance(3600)
    await process.talk("hello")
    process.clock.advance(10 * DAY_S)
    bodies = []
    for _ in range(10):
        await upkeep(process)
        bodies += await process.look("SELECT body FROM inbox")
        process.clock.advance(3600)
    assert bodies == [("hello",)] * 7 + [("",)] * 3


async def test_what_is_open_is_never_forgotten(process: StoreProcess) -> None:
    begun = await process.called("running")
    await process.accept("waiting")
    await process.talk(chat="pending")
    process.clock.advance(100 * DAY_S)
    await forget_all(process)
    assert await process.look("SELECT body FROM inbox WHERE key=$1 ORDER BY id", begun.key) == [
        ("running",),
        ("waiting",),
    ]
    assert await process.look("SELECT state FROM outbox") == [("pending",)]
    assert (await process.finish(begun)).more is True


async def test_the_id_of_a_message_that_waited_long_is_kept_after_its_end(process: StoreProcess) -> None:
    await process.store.run(accept, process.arrival("patient", ext="1"), QUEUE, None)
    process.clock.advance(50 * DAY_S)
    await process.finish(await process.began())
    await forget_all(process)
    assert (await process.accept("patient", ext="1")).outcome is AcceptOutcome.DUPLICATE
    process.clock.advance(IDS_KEPT_S + 1)
    await forget_all(process)
    assert await process.look("SELECT id FROM inbox") == []


async def test_what_was_said_in_a_call_that_stands_alone_is_forgotten_with_its_id(process: StoreProcess) -> None:
    here = replace(process, delivery=BY_EVENT)
    alone, begun = [await here.begun(chat="ann", platform="v1", thread_id=thread) for thread in ("call:1", "session:1")]
    for each in (alone, begun):
        await here.tool(each)
        await here.finish(each, 3)
    process.clock.advance(IDS_KEPT_S - 1)
    await forget_all(process)
    assert await process.look("SELECT count(*) FROM entry") == [(2,)]
    process.clock.advance(2)
    await forget_all(process)
    left = {table: await process.look(f"SELECT DISTINCT key FROM {table}") for table in ("entry", "session", "turn")}
    assert left == {table: [(begun.key,)] for table in left}
    assert await process.look("SELECT DISTINCT session_id FROM message") == [(begun.session_id,)]
    assert await process.look("SELECT DISTINCT turn FROM effect") == [(begun.turn,)]
    assert await process.store.read(broken) == {}


async def test_a_call_that_went_on_is_kept_until_that_is_old_too(process: StoreProcess) -> None:
    here = replace(process, delivery=BY_EVENT)
    await here.finish(await here.begun(chat="ann", platform="v1", thread_id="call:1"))
    process.clock.advance(IDS_KEPT_S - 5)
    await here.finish(await here.begun("and then?", chat="ann", platform="v1", thread_id="call:1"))
    process.clock.advance(6)
    await forget_all(process)
    assert await process.look("SELECT count(*) FROM message") == [(4,)]
    process.clock.advance(IDS_KEPT_S)
    await forget_all(process)
    assert await process.look("SELECT count(*) FROM message") == [(0,)]


async def test_many_calls_are_forgotten_a_batch_at_a_time(process: StoreProcess) -> None:
    here = replace(process, delivery=BY_EVENT)
    for number in range(CALLS + 2):
        await here.finish(await here.begun(chat="ann", platform="v1", thread_id=f"call:{number}"))
    process.clock.advance(IDS_KEPT_S + 1)
    await process.store.run(forget, process.now)
    assert await process.look("SELECT count(*) FROM entry") == [(2,)]
    await forget_all(process)
    assert [await process.look(f"SELECT count(*) FROM {table}") for table in ("entry", "turn", "inbox")] == [[(0,)]] * 3


async def test_sent_replies_are_forgotten_and_dead_letters_kept(process: StoreProcess) -> None:
    for chat in ("sent", "dead"):
        await process.talk(chat=chat)
    await process.store.run(record_sent, await process.sending("sent"), ("p",), process.now)
    await process.store.run(make_dead_letter, await process.sending("dead"), process.now, "refused")
    process.clock.advance(IDS_KEPT_S + 1)
    await forget_all(process)
    assert await process.states("outbox") == ["dead"]


async def test_the_tries_of_a_reply_go_with_it_and_those_of_its_turn_stay(process: StoreProcess) -> None:
    for chat in ("sent", "dead"):
        begun = await process.talk(chat=chat)
        await process.plant("INSERT INTO failure VALUES ($1, 1, 1, 'later', 'a model', 0, 1)", begun.turn)
        await process.store.run(try_later, await process.sending(chat), process.now, "busy")
        reply = await process.sending(chat)
        if chat == "sent":
            await process.store.run(record_sent, reply, ("p",), process.now)
        else:
            await process.store.run(make_dead_letter, reply, process.now, "refused")
    process.clock.advance(IDS_KEPT_S + 1)
    await forget_all(process)
    assert await process.look("SELECT why FROM failure ORDER BY turn, number DESC") == [
        ("a model",), ("a model",), ("busy",), ("refused",),
    ]  # fmt: skip


async def test_what_a_sticker_shows_is_kept_for_a_year(process: StoreProcess) -> None:
    rows = ",".join(f"('fake', 'u{number}', 'a cat', {process.now + (number == 0)!r})" for number in range(BATCH + 2))
    await process.plant(f"INSERT INTO description VALUES {rows}")
    process.clock.advance(DESCRIPTIONS_KEPT_S)
    assert await process.store.run(forget, process.now) == 0
    process.clock.advance(0.5)
    assert await process.store.run(forget, process.now) == BATCH
    await forget_all(process)
    assert await process.store.read(descriptions, "fake", ["u0", "u1"]) == {"u0": "a cat"}


async def test_old_events_go_and_their_numbers_are_not_given_again(process: StoreProcess) -> None:
    here = replace(process, delivery=BY_EVENT)
    await here.talk()
    process.clock.advance(6 * DAY_S)
    await here.talk("later")
    assert await process.store.read(event_range, key_of()) == (1, 8)
    process.clock.advance(2 * DAY_S)
    await forget_all(process)
    assert await process.store.read(event_range, key_of()) == (5, 8)
    process.clock.advance(8 * DAY_S)
    await forget_all(process)
    assert await process.store.read(event_range, key_of()) == (0, 8)
    assert (await here.begun("new")).events[0].seq == 9
    assert await process.store.read(event_range, key_of("nobody")) == (0, 0)


async def test_conversations_are_not_forgotten(process: StoreProcess) -> None:
    begun = await process.talk()
    await process.store.run(suspend_session, key_of(), process.now)
    process.clock.advance(1000 * DAY_S)
    await forget_all(process)
    assert len(await process.store.read(transcript, begun.session_id, 0, 9)) == 2
    assert (await process.entry()).session_id == begun.session_id


async def test_forgetting_takes_bounded_batches(process: StoreProcess) -> None:
    rows = ",".join(
        f"({n}, 'm{n}', 'fake', '', 'k', 'message', '', 'x', 'done', 0, 1, 1)" for n in range(1, BATCH + 12)
    )
    await process.plant(
        "INSERT INTO inbox (id, ext_id, platform, account, key, kind, source, body, state, place, accepted_at, ended_at)"
        f" VALUES {rows}"
    )
    assert await process.store.run(forget, process.now) == BATCH + 11  # a batch of ids, and the bodies of the rest
    assert await process.store.run(forget, process.now) == 11
    assert await process.store.run(forget, process.now) == 0
