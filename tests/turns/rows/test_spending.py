"""Spending as rows: counted before a call, settled with its step, never twice, and a crash leaves it counted."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from everturn.errors import FenceLost, Spent
from everturn.model import Message, ResumePending, Usage
from everturn.turns.rows.spending import Plan, last_turn, usage_of_session, usage_of_turn
from everturn.turns.rows.turn_values import StartedTurn
from everturn.turns.rows.turns import calling, calling_with_plan, failed_call, finish, step
from everturn.turns.rules.spending import EVERYBODY, SpendingLimits, day_of
from tests.contracts.store import StoreProcess, broken, living, response

SPENT = "SELECT tokens, cost FROM spending WHERE spender=$1 AND day=$2"
ANN = "person:fake:ann"
MANY = SpendingLimits(turn_tokens=1000, person_tokens_day=1000, total_tokens_day=1000)
USED = Usage(requests=1, input_tokens=30, output_tokens=10, cost=0.25)


@pytest.fixture
async def process(store_url: str) -> AsyncIterator[StoreProcess]:
    async with living(store_url) as process:
        yield process


def plan(process: StoreProcess, tokens: int = 100, limits: SpendingLimits = MANY, cost: float = 1.0) -> Plan:
    asked = Usage(requests=1, input_tokens=tokens - 40, output_tokens=40, cost=cost)
    return Plan(
        call=process.ids.next(),
        tokens=tokens,
        cost=cost,
        day=day_of(process.now),
        spender=ANN,
        limits=limits,
        asked=asked,
    )


async def spent(process: StoreProcess, spender: str = ANN) -> tuple[int, float]:
    rows = await process.look(SPENT, spender, day_of(process.now))
    return (rows[0][0], rows[0][1]) if rows else (0, 0.0)


async def answered(process: StoreProcess, begun: StartedTurn, usage: Usage = USED) -> None:
    answer = Message(role="assistant", content="done", seq=begun.seq + 2, at=process.now)
    await process.store.run(finish, begun, answer, process.delivery, process.instance, None, usage)


async def test_a_plan_is_counted_once_and_replaced_by_what_was_used(process: StoreProcess) -> None:
    begun = await process.begun()
    await process.twice(calling_with_plan, begun, plan(process))
    assert [await spent(process), await spent(process, EVERYBODY)] == [(100, 1.0), (100, 1.0)]
    await process.twice(step, begun, response(begun, 1, at=process.now), None, None, USED, prove_it=False)
    assert [await spent(process), await spent(process, EVERYBODY)] == [(40, 0.25), (40, 0.25)]
    await process.store.run(calling_with_plan, begun, plan(process))
    await answered(process, begun)
    assert await spent(process) == (80, 0.5)
    twice = Usage(requests=2, input_tokens=60, output_tokens=20, cost=0.5)
    assert await process.store.read(usage_of_turn, begun.turn) == twice
    assert await process.store.read(usage_of_session, begun.session_id) == twice
    assert await process.store.read(last_turn, begun.session_id) == begun.turn


async def test_a_call_that_is_seen_to_fail_gives_its_plan_back(process: StoreProcess) -> None:
    begun = await process.begun()
    await process.store.run(calling_with_plan, begun, plan(process))
    assert await process.twice(failed_call, begun, process.ids.next(), "overloaded", "503", 1.0, process.now) == 1
    assert [await spent(process), await spent(process, EVERYBODY)] == [(0, 0.0), (0, 0.0)]
    assert (
        await process.twice(failed_call, begun, process.ids.next(), "overloaded", "503", 1.0, process.now) == 2
    )  # same tick
    assert await spent(process) == (0, 0.0)


async def test_a_crash_loop_cannot_spend_past_a_limit(process: StoreProcess) -> None:
    """Each process plans a call and dies in it: the plans stay counted, of the turn and of the day."""
    process = replace(process, stuck_after=0)
    begun = await process.begun()
    for number in range(2, 12):
        await process.store.run(calling_with_plan, begun, plan(process))
        assert await spent(process) == (100 * (number - 1), 1.0 * (number - 1))
        await process.die()
        process = replace(process, instance=number)
        begun = await process.began()
    for limits, text in ((MANY, "this task"), (replace(MANY, turn_tokens=0), "your limit of 1,000 tokens a day")):
        with pytest.raises(Spent, match=text):
            await process.store.run(calling_with_plan, begun, plan(process, limits=limits))
    assert await spent(process) == (1000, 10.0)


async def test_a_call_that_a_death_cut_off_is_counted_as_it_was_expected_to_be(process: StoreProcess) -> None:
    begun = await process.begun()
    await process.store.run(calling, begun, USED)
    await process.die()
    again = await replace(process, instance=2).began()
    assert await process.store.read(usage_of_turn, begun.turn) == USED
    assert await process.store.read(usage_of_session, begun.session_id) == USED
    await process.store.run(calling, again, USED)
    await answered(replace(process, instance=2), again)
    assert (await process.store.read(usage_of_turn, begun.turn)).requests == 2
    (lost,) = await process.look("SELECT attempt, kind, why FROM failure")
    assert lost[:2] == (1, "lost")
    assert "40 tokens, an estimate" in lost[2]


async def test_a_call_whose_response_is_stored_is_not_lost_with_what_follows_it(process: StoreProcess) -> None:
    begun = await process.begun()
    await process.store.run(calling, begun, USED)
    await process.store.run(step, begun, response(begun, 1, at=process.now), None, None, USED, prove_it=False)
    await process.die()
    assert await process.store.read(usage_of_turn, begun.turn) == USED
    assert await process.look("SELECT count(*) FROM failure") == [(0,)]


async def test_a_call_that_somebody_stops_is_counted_and_stays_spent(process: StoreProcess) -> None:
    begun = await process.begun()
    await process.store.run(calling_with_plan, begun, plan(process))
    await process.command("/stop")
    assert await spent(process) == (100, 1.0)
    used = Usage(requests=1, input_tokens=60, output_tokens=40, cost=1.0)
    assert await process.store.read(usage_of_session, begun.session_id) == used
    assert await process.store.read(broken) == {}


async def test_an_answer_that_broke_off_is_counted_with_what_it_used(process: StoreProcess) -> None:
    begun = await process.begun()
    await process.store.run(calling_with_plan, begun, plan(process))
    assert (
        await process.twice(failed_call, begun, process.ids.next(), "cut", "the stream ended", 1.0, process.now, USED)
        == 1
    )
    assert await spent(process) == (40, 0.25)
    assert await process.store.read(usage_of_session, begun.session_id) == USED


@pytest.mark.parametrize(
    ("limits", "text"),
    [
        (SpendingLimits(turn_tokens=99), "this task has reached its limit of 99 tokens"),
        (SpendingLimits(turn_cost=0.5), "this task"),
        (SpendingLimits(person_tokens_day=99), "your limit of 99 tokens a day"),
        (SpendingLimits(person_cost_day=0.5), "your limit"),
        (SpendingLimits(total_tokens_day=99), "everybody's limit of 99 tokens a day"),
        (SpendingLimits(total_cost_day=0.5), "everybody's limit"),
    ],
)
async def test_a_call_that_would_pass_a_limit_is_refused_and_nothing_is_counted(
    process: StoreProcess, limits: SpendingLimits, text: str
) -> None:
    begun = await process.begun()
    stored = await process.dump()
    with pytest.raises(Spent, match=text):
        await process.store.run(calling_with_plan, begun, plan(process, limits=limits))
    assert await process.dump() == stored


async def test_a_day_ends_at_midnight_and_people_are_counted_apart(process: StoreProcess) -> None:
    limits = SpendingLimits(person_tokens_day=150)
    begun = await process.begun()
    await process.store.run(calling_with_plan, begun, plan(process, limits=limits))
    bob = Plan(
        call=process.ids.next(), tokens=100, cost=0, day=day_of(process.now), spender="person:fake:bob", limits=limits
    )
    await process.store.run(calling_with_plan, await process.begun(chat="bob"), bob)
    with pytest.raises(Spent):
        await process.store.run(calling_with_plan, begun, plan(process, limits=limits))
    assert await spent(process, EVERYBODY) == (200, 1.0)
    process.clock.advance(86_400)
    await process.store.run(calling_with_plan, begun, plan(process, limits=limits))
    assert await spent(process) == (100, 1.0)


async def test_a_late_writer_counts_nothing(process: StoreProcess) -> None:
    begun = await process.begun()
    await process.command("/new")
    with pytest.raises(FenceLost):
        await process.store.run(calling_with_plan, begun, plan(process))
    assert await spent(process) == (0, 0.0)


async def test_an_answer_that_is_cut_is_shown_so_and_is_no_success(process: StoreProcess) -> None:
    """The mark and the count stay, and so does the note; the transcript holds what was said, without the mark."""
    await process.called("work")
    await process.die()
    second = replace(process, instance=2)
    begun = await second.began()
    answer = second.answer(begun, text="half of")
    await second.twice(finish, begun, answer, process.delivery, 2, None, USED, "half of [cut]")
    entry = await process.entry()
    assert (isinstance(entry.state, ResumePending), entry.unclean_ends, entry.turn) == (True, 1, None)
    assert await process.look("SELECT text FROM outbox") == [("half of [cut]",)]
    assert await process.look("SELECT content FROM message ORDER BY seq DESC LIMIT 1") == [("half of",)]
    assert await process.look("SELECT state, why FROM turn") == [("answered", "cut")]
    again = await second.begun("go on")
    assert again.note is not None
    await second.finish(again)
    assert (await process.entry()).unclean_ends == 0
    assert await process.store.read(broken) == {}
