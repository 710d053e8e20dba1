"""Pairing on both engines: once, bounded, guarded against guessing, and said the same when an operation runs twice."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from everturn.inbox.rows.inbox import Accepted, AcceptOutcome, Arrival, accept
from everturn.lifecycle.rows import forget
from everturn.outbox.rows.outbox import make_dead_letter, mark_unknown, record_sent
from everturn.outbox.rules.delivery import UnknownAction
from everturn.people.rows.access import standing
from everturn.people.rows.pairing import Approval, Paired, approve_code, approve_request, list_pairings
from everturn.people.rows.pairing import PairingOutcome as Pair
from everturn.people.rules.access import EACH_S, LOCKED_S, VALID_S, AccessPolicy, Admission
from everturn.people.rules.people_texts import FORGOTTEN
from tests.contracts.store import QUEUE, StoreProcess, living, origin

CODES = ["ABCDEFGH", "BCDEFGHJ", "CDEFGHJK", "DEFGHJKL", "EFGHJKLM"]
ADMISSION = Admission(policies={name: AccessPolicy(unknown="pair") for name in ("fake", "other")})


@pytest.fixture
async def process(store_url: str) -> AsyncIterator[StoreProcess]:
    async with living(store_url) as made:
        yield made


async def writes(
    process: StoreProcess,
    who: str,
    code: str,
    *,
    later: float = 0.0,
    platform: str = "fake",
    text: str = "secret words",
) -> Accepted:
    """Somebody writes to us in a chat of their own."""
    return await process.twice(accept, stranger(process, who, code, later, platform, text), QUEUE, process.start())


def stranger(
    process: StoreProcess,
    who: str,
    code: str,
    later: float = 0.0,
    platform: str = "fake",
    text: str = "hello",
    **about: str,
) -> Arrival:
    arrival = process.arrival(text, who, platform=platform, **({"user_id": who} | about))
    return replace(arrival, admission=ADMISSION, code=code, salt=f"salt of {who}", at=arrival.at + later)


async def approves(
    process: StoreProcess, code: str, *, platform: str | None = None, later: float = 0.0, owner: bool = False
) -> Paired:
    approval = Approval(at=process.now + later, notice=process.ids.next(), owner=owner)
    return await process.twice(approve_code, code, platform, approval)


async def is_known(process: StoreProcess, who: str, platform: str = "fake") -> str:
    return str(await process.store.read(standing, type(origin())(platform=platform, user_id=who)))


async def test_a_stranger_gets_a_code_once_and_nothing_of_their_text_is_kept(process: StoreProcess) -> None:
    first = await writes(process, "bob", CODES[0])
    again = await writes(process, "bob", CODES[1], later=EACH_S - 1)
    assert [(each.outcome, each.spoke) for each in (first, again)] == [
        (AcceptOutcome.DENIED, True),
        (AcceptOutcome.DENIED, False),
    ]
    (row,) = await process.look("SELECT kind, state, text FROM outbox")
    assert row[:2] == ("pairing", "pending")
    assert CODES[0] in row[2]
    assert await process.states("inbox") == []
    assert await process.look("SELECT key FROM entry") == []
    assert "secret words" not in str(await process.dump())


async def test_a_code_lets_its_person_in_and_is_used_up(process: StoreProcess) -> None:
    await writes(process, "bob", CODES[0])
    paired = await approves(process, CODES[0], owner=True)
    assert (paired.outcome, paired.person) == (Pair.APPROVED, "fake:bob")
    assert (await approves(process, CODES[0], later=1.0)).outcome is Pair.WRONG  # a replay
    assert (await is_known(process, "bob"), await is_known(process, "bob", "other")) == ("owner", "unknown")
    arrival = await writes(process, "bob", CODES[1], later=2.0)
    assert (arrival.outcome, arrival.begun is not None) == (AcceptOutcome.ACCEPTED, True)


async def test_of_two_who_approve_in_one_clock_tick_one_lets_in(process: StoreProcess) -> None:
    await writes(process, "bob", CODES[0])
    (request,) = await process.store.read(list_pairings, process.now)
    assert (await approves(process, CODES[0])).outcome is Pair.APPROVED
    assert (await approves(process, CODES[0])).outcome is Pair.WRONG
    again = Approval(at=process.now, notice=process.ids.next())
    assert (await process.twice(approve_request, int(str(request["request"])), again)).outcome is Pair.WRONG


async def test_a_code_is_in_clear_only_until_it_is_delivered_or_given_up(process: StoreProcess) -> None:
    await writes(process, "bob", CODES[0])
    await writes(process, "eve", CODES[1])
    assert (await process.look("SELECT 1 FROM pairing WHERE hash=$1 OR salt=$1", CODES[0])) == []
    sent = await process.sending("bob")
    assert CODES[0] in sent.text
    await process.store.run(record_sent, sent, ("m1",), process.now)
    await process.store.run(make_dead_letter, await process.sending("eve"), process.now, "refused")
    assert not [code for code in CODES if code in str(await process.dump())]


async def test_a_flood_of_strangers_costs_three_codes_and_three_refusals(process: StoreProcess) -> None:
    """Promise 12."""
    arrivals = [stranger(process, f"bob{n}", f"{n:08}") for n in range(20)]
    found = await asyncio.gather(*(process.store.run(accept, each, QUEUE, None) for each in arrivals))
    assert sum(each.spoke for each in found) == 6
    assert await process.look("SELECT count(*) FROM pairing WHERE ended_at IS NULL") == [(3,)]
    assert await process.look("SELECT count(*) FROM pairing") == [(6,)]
    assert (await writes(process, "new", CODES[0], later=VALID_S + 1)).spoke


async def test_adapters_at_once_never_give_more_codes_than_there_may_be(process: StoreProcess) -> None:
    named = [(f"{name}{n}", name) for n in range(5) for name in ("fake", "other")]
    arrivals = [stranger(process, who, f"{who:>08}", platform=platform) for who, platform in named]
    await asyncio.gather(*(process.store.run(accept, each, QUEUE, None) for each in arrivals))
    rows = await process.look(
        "SELECT platform, count(*) FROM pairing WHERE ended_at IS NULL GROUP BY platform ORDER BY 1"
    )
    assert rows == [("fake", 3), ("other", 3)]


async def test_nobody_is_asked_whether_a_code_arrived(process: StoreProcess) -> None:
    """Somebody who may not speak could not answer: it is sent again, and says so."""
    await writes(process, "bob", CODES[0])
    await process.twice(mark_unknown, await process.sending("bob"), UnknownAction.ASK, process.now, "what?")
    assert await process.look("SELECT state, marked FROM outbox") == [("pending", 1)]


@pytest.mark.parametrize("state", ["pending", "unknown"])
async def test_a_code_that_was_not_delivered_within_its_hour_is_not_kept_in_clear(
    process: StoreProcess, state: str
) -> None:
    """Whatever its row says, also if an operator wanted it sent again."""
    await writes(process, "bob", CODES[0])
    await process.plant("UPDATE outbox SET state=$1, valid_until=NULL", state)
    await process.store.run(forget, process.now + VALID_S - 1)
    assert CODES[0] in (await process.look("SELECT text FROM outbox"))[0][0]
    while await process.store.run(forget, process.now + VALID_S):
        pass
    assert await process.look("SELECT state, text, dead_at FROM outbox") == [("dead", FORGOTTEN, None)]


async def test_five_wrong_codes_lock_issuing_and_approving_and_a_number_still_works(process: StoreProcess) -> None:
    await writes(process, "bob", CODES[0])
    for n in range(5):
        guess = await approves(process, "WRNGCDEA", later=n)
        assert guess.outcome is Pair.WRONG
    assert (await approves(process, CODES[0], later=9)).outcome is Pair.LOCKED
    await writes(process, "eve", CODES[1], later=10)
    assert await process.look("SELECT ended FROM pairing WHERE person='eve'") == [("full",)]
    (request,) = await process.store.read(list_pairings, process.now)
    approval = Approval(at=process.now + 11, notice=process.ids.next())
    assert (await process.twice(approve_request, int(str(request["request"])), approval)).outcome is Pair.APPROVED
    await writes(process, "zoe", CODES[2], later=12 + LOCKED_S)
    assert (await approves(process, CODES[2], later=13 + LOCKED_S)).outcome is Pair.APPROVED


async def test_guesses_of_one_clock_tick_are_all_counted(process: StoreProcess) -> None:
    """And the tick in which the lock was set is locked, too."""
    await writes(process, "bob", CODES[0])
    for _ in range(5):
        assert (await approves(process, "WRNGCDEA")).outcome is Pair.WRONG
    assert (await approves(process, CODES[0])).outcome is Pair.LOCKED


async def test_a_success_forgets_the_wrong_codes_before_it(process: StoreProcess) -> None:
    await writes(process, "bob", CODES[0])
    await writes(process, "eve", CODES[1])
    for n in range(4):
        await approves(process, "WRNGCDEA", later=n)
    assert (await approves(process, CODES[0], later=5)).outcome is Pair.APPROVED
    assert (await approves(process, "WRNGCDEA", later=6)).locked_until == 0
    assert (await approves(process, CODES[1], later=7)).outcome is Pair.APPROVED


async def test_a_code_of_another_platform_is_wrong_and_an_expired_one_too(process: StoreProcess) -> None:
    await writes(process, "bob", CODES[0])
    await writes(process, "eve", CODES[1], platform="other")
    assert (await approves(process, CODES[0], platform="other", later=1)).outcome is Pair.WRONG
    assert await process.look("SELECT wrong FROM pairing_lock ORDER BY platform") == [(0,), (1,)]
    assert (await approves(process, CODES[0], later=VALID_S + 1)).outcome is Pair.WRONG
    assert await is_known(process, "bob") == "unknown"
    assert await process.store.read(list_pairings, process.now + VALID_S + 1) == []


async def test_one_person_under_two_ids_has_one_request_and_one_grant(process: StoreProcess) -> None:
    await process.store.run(accept, stranger(process, "bob", CODES[0], user_id_alt="robert"), QUEUE, None)
    assert not (await writes(process, "robert", CODES[1])).spoke
    await approves(process, CODES[0])
    assert [await is_known(process, who) for who in ("bob", "robert")] == ["granted", "granted"]
