"""Pairing on both engines: once, bounded, guarded against guessing, and said the same when an operation runs twice."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from everturn.decide.admission import Admission, Policy
from everturn.decide.admission_words import FORGOTTEN
from everturn.decide.delivery import Doubtful
from everturn.decide.pairing import EACH_S, LOCKED_S, VALID_S
from everturn.store.operations.admission import standing
from everturn.store.operations.inbox import Accepted, Arrival, Outcome, accept
from everturn.store.operations.outbox import doubt, give_up, record_sent
from everturn.store.operations.pairing import Approval, Paired, approve_code, approve_request, list_pairings
from everturn.store.operations.pairing import Outcome as Pair
from everturn.store.operations.upkeep import forget
from tests.contracts.store import QUEUE, Life, living, origin

CODES = ["ABCDEFGH", "BCDEFGHJ", "CDEFGHJK", "DEFGHJKL", "EFGHJKLM"]
ADMISSION = Admission(policies={name: Policy(unknown="pair") for name in ("fake", "other")})


@pytest.fixture
async def life(store_url: str) -> AsyncIterator[Life]:
    async with living(store_url) as made:
        yield made


async def writes(
    life: Life, who: str, code: str, *, later: float = 0.0, platform: str = "fake", text: str = "secret words"
) -> Accepted:
    """Somebody writes to us in a chat of their own."""
    return await life.twice(accept, stranger(life, who, code, later, platform, text), QUEUE, life.start())


def stranger(
    life: Life, who: str, code: str, later: float = 0.0, platform: str = "fake", text: str = "hello", **about: str
) -> Arrival:
    arrival = life.arrival(text, who, platform=platform, **({"user_id": who} | about))
    return replace(arrival, admission=ADMISSION, code=code, salt=f"salt of {who}", at=arrival.at + later)


async def approves(
    life: Life, code: str, *, platform: str | None = None, later: float = 0.0, owner: bool = False
) -> Paired:
    approval = Approval(at=life.now + later, notice=life.ids.next(), owner=owner)
    return await life.twice(approve_code, code, platform, approval)


async def is_known(life: Life, who: str, platform: str = "fake") -> str:
    return str(await life.store.read(standing, type(origin())(platform=platform, user_id=who)))


async def test_a_stranger_gets_a_code_once_and_nothing_of_their_words_is_kept(life: Life) -> None:
    first = await writes(life, "bob", CODES[0])
    again = await writes(life, "bob", CODES[1], later=EACH_S - 1)
    assert [(each.outcome, each.spoke) for each in (first, again)] == [(Outcome.DENIED, True), (Outcome.DENIED, False)]
    (row,) = await life.look("SELECT kind, state, text FROM outbox")
    assert row[:2] == ("pairing", "owed")
    assert CODES[0] in row[2]
    assert await life.states("inbox") == []
    assert await life.look("SELECT key FROM entry") == []
    assert "secret words" not in str(await life.dump())


async def test_a_code_lets_its_person_in_and_is_used_up(life: Life) -> None:
    await writes(life, "bob", CODES[0])
    paired = await approves(life, CODES[0], owner=True)
    assert (paired.outcome, paired.person) == (Pair.LET_IN, "fake:bob")
    assert (await approves(life, CODES[0], later=1.0)).outcome is Pair.WRONG  # a replay
    assert (await is_known(life, "bob"), await is_known(life, "bob", "other")) == ("owner", "unknown")
    arrival = await writes(life, "bob", CODES[1], later=2.0)
    assert (arrival.outcome, arrival.begun is not None) == (Outcome.ACCEPTED, True)


async def test_of_two_who_approve_in_one_clock_tick_one_lets_in(life: Life) -> None:
    await writes(life, "bob", CODES[0])
    (request,) = await life.store.read(list_pairings, life.now)
    assert (await approves(life, CODES[0])).outcome is Pair.LET_IN
    assert (await approves(life, CODES[0])).outcome is Pair.WRONG
    again = Approval(at=life.now, notice=life.ids.next())
    assert (await life.twice(approve_request, int(str(request["request"])), again)).outcome is Pair.WRONG


async def test_a_code_is_in_clear_only_until_it_is_delivered_or_given_up(life: Life) -> None:
    await writes(life, "bob", CODES[0])
    await writes(life, "eve", CODES[1])
    assert (await life.look("SELECT 1 FROM pairing WHERE hash=$1 OR salt=$1", CODES[0])) == []
    sent = await life.sending("bob")
    assert CODES[0] in sent.text
    await life.store.run(record_sent, sent, ("m1",), life.now)
    await life.store.run(give_up, await life.sending("eve"), life.now, "refused")
    assert not [code for code in CODES if code in str(await life.dump())]


async def test_a_flood_of_strangers_costs_three_codes_and_three_refusals(life: Life) -> None:
    """Promise 12."""
    arrivals = [stranger(life, f"bob{n}", f"{n:08}") for n in range(20)]
    found = await asyncio.gather(*(life.store.run(accept, each, QUEUE, None) for each in arrivals))
    assert sum(each.spoke for each in found) == 6
    assert await life.look("SELECT count(*) FROM pairing WHERE ended_at IS NULL") == [(3,)]
    assert await life.look("SELECT count(*) FROM pairing") == [(6,)]
    assert (await writes(life, "new", CODES[0], later=VALID_S + 1)).spoke


async def test_adapters_at_once_never_give_more_codes_than_there_may_be(life: Life) -> None:
    named = [(f"{name}{n}", name) for n in range(5) for name in ("fake", "other")]
    arrivals = [stranger(life, who, f"{who:>08}", platform=platform) for who, platform in named]
    await asyncio.gather(*(life.store.run(accept, each, QUEUE, None) for each in arrivals))
    rows = await life.look("SELECT platform, count(*) FROM pairing WHERE ended_at IS NULL GROUP BY platform ORDER BY 1")
    assert rows == [("fake", 3), ("other", 3)]


async def test_nobody_is_asked_whether_a_code_arrived(life: Life) -> None:
    """Who may not speak could not answer: it is sent again, and says so."""
    await writes(life, "bob", CODES[0])
    await life.twice(doubt, await life.sending("bob"), Doubtful.ASK, life.now, "what?")
    assert await life.look("SELECT state, marked FROM outbox") == [("owed", 1)]


@pytest.mark.parametrize("state", ["owed", "doubtful"])
async def test_a_code_that_was_not_delivered_within_its_hour_is_not_kept_in_clear(life: Life, state: str) -> None:
    """Whatever its row says, also if an operator wanted it sent again."""
    await writes(life, "bob", CODES[0])
    await life.plant("UPDATE outbox SET state=$1, valid_until=NULL", state)
    await life.store.run(forget, life.now + VALID_S - 1)
    assert CODES[0] in (await life.look("SELECT text FROM outbox"))[0][0]
    while await life.store.run(forget, life.now + VALID_S):
        pass
    assert await life.look("SELECT state, text, dead_at FROM outbox") == [("dead", FORGOTTEN, None)]


async def test_five_wrong_codes_lock_issuing_and_approving_and_a_number_still_works(life: Life) -> None:
    await writes(life, "bob", CODES[0])
    for n in range(5):
        guess = await approves(life, "WRNGCDEA", later=n)
        assert guess.outcome is Pair.WRONG
    assert (await approves(life, CODES[0], later=9)).outcome is Pair.LOCKED
    await writes(life, "eve", CODES[1], later=10)
    assert await life.look("SELECT ended FROM pairing WHERE person='eve'") == [("full",)]
    (request,) = await life.store.read(list_pairings, life.now)
    approval = Approval(at=life.now + 11, notice=life.ids.next())
    assert (await life.twice(approve_request, int(str(request["request"])), approval)).outcome is Pair.LET_IN
    await writes(life, "zoe", CODES[2], later=12 + LOCKED_S)
    assert (await approves(life, CODES[2], later=13 + LOCKED_S)).outcome is Pair.LET_IN


async def test_guesses_of_one_clock_tick_are_all_counted(life: Life) -> None:
    """And the tick in which the lock was set is locked, too."""
    await writes(life, "bob", CODES[0])
    for _ in range(5):
        assert (await approves(life, "WRNGCDEA")).outcome is Pair.WRONG
    assert (await approves(life, CODES[0])).outcome is Pair.LOCKED


async def test_a_success_forgets_the_wrong_codes_before_it(life: Life) -> None:
    await writes(life, "bob", CODES[0])
    await writes(life, "eve", CODES[1])
    for n in range(4):
        await approves(life, "WRNGCDEA", later=n)
    assert (await approves(life, CODES[0], later=5)).outcome is Pair.LET_IN
    assert (await approves(life, "WRNGCDEA", later=6)).locked_until == 0
    assert (await approves(life, CODES[1], later=7)).outcome is Pair.LET_IN


async def test_a_code_of_another_platform_is_wrong_and_an_expired_one_too(life: Life) -> None:
    await writes(life, "bob", CODES[0])
    await writes(life, "eve", CODES[1], platform="other")
    assert (await approves(life, CODES[0], platform="other", later=1)).outcome is Pair.WRONG
    assert await life.look("SELECT wrong FROM pairing_lock ORDER BY platform") == [(0,), (1,)]
    assert (await approves(life, CODES[0], later=VALID_S + 1)).outcome is Pair.WRONG
    assert await is_known(life, "bob") == "unknown"
    assert await life.store.read(list_pairings, life.now + VALID_S + 1) == []


async def test_one_person_under_two_ids_has_one_request_and_one_grant(life: Life) -> None:
    await life.store.run(accept, stranger(life, "bob", CODES[0], user_id_alt="robert"), QUEUE, None)
    assert not (await writes(life, "robert", CODES[1])).spoke
    await approves(life, CODES[0])
    assert [await is_known(life, who) for who in ("bob", "robert")] == ["granted", "granted"]
