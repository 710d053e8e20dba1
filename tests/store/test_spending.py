"""Spending as rows: counted before a call, settled with its step, never twice, and a crash leaves it counted."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from everturn.decide.spending import EVERYBODY, Limits, day_of
from everturn.errors import FenceLost, Spent
from everturn.model import Message, ResumePending, Usage
from everturn.store.operations.spending import Plan, last_turn, spent_on, usage_of_session, usage_of_turn
from everturn.store.operations.turn_values import Begun
from everturn.store.operations.turns import calling, calling_with_plan, failed_call, finish, step
from tests.contracts.store import Life, broken, living, response

ANN = "person:fake:ann"
MANY = Limits(turn_tokens=1000, person_tokens_day=1000, total_tokens_day=1000)
USED = Usage(requests=1, input_tokens=30, output_tokens=10, cost=0.25)


@pytest.fixture
async def life(store_url: str) -> AsyncIterator[Life]:
    async with living(store_url) as life:
        yield life


def plan(life: Life, tokens: int = 100, limits: Limits = MANY, cost: float = 1.0) -> Plan:
    asked = Usage(requests=1, input_tokens=tokens - 40, output_tokens=40, cost=cost)
    return Plan(
        call=life.ids.next(), tokens=tokens, cost=cost, day=day_of(life.now), who=ANN, limits=limits, asked=asked
    )


async def spent(life: Life, who: str = ANN) -> tuple[int, float]:
    return await life.store.read(spent_on, who, day_of(life.now))


async def answered(life: Life, begun: Begun, usage: Usage = USED) -> None:
    answer = Message(role="assistant", content="done", seq=begun.seq + 2, at=life.now)
    await life.store.run(finish, begun, answer, life.delivery, life.instance, None, usage)


async def test_a_plan_is_counted_once_and_replaced_by_what_was_used(life: Life) -> None:
    begun = await life.begun()
    await life.twice(calling_with_plan, begun, plan(life))
    assert [await spent(life), await spent(life, EVERYBODY)] == [(100, 1.0), (100, 1.0)]
    await life.twice(step, begun, response(begun, 1, at=life.now), None, None, USED, prove_it=False)
    assert [await spent(life), await spent(life, EVERYBODY)] == [(40, 0.25), (40, 0.25)]
    await life.store.run(calling_with_plan, begun, plan(life))
    await answered(life, begun)
    assert await spent(life) == (80, 0.5)
    twice = Usage(requests=2, input_tokens=60, output_tokens=20, cost=0.5)
    assert await life.store.read(usage_of_turn, begun.turn) == twice
    assert await life.store.read(usage_of_session, begun.session_id) == twice
    assert await life.store.read(last_turn, begun.session_id) == begun.turn


async def test_a_call_that_is_seen_to_fail_gives_its_plan_back(life: Life) -> None:
    begun = await life.begun()
    await life.store.run(calling_with_plan, begun, plan(life))
    assert await life.twice(failed_call, begun, life.ids.next(), "overloaded", "503", 1.0, life.now) == 1
    assert [await spent(life), await spent(life, EVERYBODY)] == [(0, 0.0), (0, 0.0)]
    assert await life.twice(failed_call, begun, life.ids.next(), "overloaded", "503", 1.0, life.now) == 2  # same tick
    assert await spent(life) == (0, 0.0)


async def test_a_crash_loop_cannot_spend_past_a_limit(life: Life) -> None:
    """Each life plans a call and dies in it: the plans stay counted, of the turn and of the day."""
    life = replace(life, stuck_after=0)
    begun = await life.begun()
    for number in range(2, 12):
        await life.store.run(calling_with_plan, begun, plan(life))
        assert await spent(life) == (100 * (number - 1), 1.0 * (number - 1))
        await life.die()
        life = replace(life, instance=number)
        begun = await life.began()
    for limits, words in ((MANY, "this task"), (replace(MANY, turn_tokens=0), "your limit of 1,000 tokens a day")):
        with pytest.raises(Spent, match=words):
            await life.store.run(calling_with_plan, begun, plan(life, limits=limits))
    assert await spent(life) == (1000, 10.0)


async def test_a_call_that_a_death_cut_off_is_counted_as_it_was_expected_to_be(life: Life) -> None:
    begun = await life.begun()
    await life.store.run(calling, begun, USED)
    await life.die()
    again = await replace(life, instance=2).began()
    assert await life.store.read(usage_of_turn, begun.turn) == USED
    assert await life.store.read(usage_of_session, begun.session_id) == USED
    await life.store.run(calling, again, USED)
    await answered(replace(life, instance=2), again)
    assert (await life.store.read(usage_of_turn, begun.turn)).requests == 2
    (lost,) = await life.look("SELECT attempt, kind, why FROM failure")
    assert lost[:2] == (1, "lost")
    assert "40 tokens, an estimate" in lost[2]


async def test_a_call_whose_response_is_stored_is_not_lost_with_what_follows_it(life: Life) -> None:
    begun = await life.begun()
    await life.store.run(calling, begun, USED)
    await life.store.run(step, begun, response(begun, 1, at=life.now), None, None, USED, prove_it=False)
    await life.die()
    assert await life.store.read(usage_of_turn, begun.turn) == USED
    assert await life.look("SELECT count(*) FROM failure") == [(0,)]


async def test_a_call_that_somebody_stops_is_counted_and_stays_spent(life: Life) -> None:
    begun = await life.begun()
    await life.store.run(calling_with_plan, begun, plan(life))
    await life.command("/stop")
    assert await spent(life) == (100, 1.0)
    used = Usage(requests=1, input_tokens=60, output_tokens=40, cost=1.0)
    assert await life.store.read(usage_of_session, begun.session_id) == used
    assert await life.store.read(broken) == {}


async def test_an_answer_that_broke_off_is_counted_with_what_it_used(life: Life) -> None:
    begun = await life.begun()
    await life.store.run(calling_with_plan, begun, plan(life))
    assert await life.twice(failed_call, begun, life.ids.next(), "cut", "the stream ended", 1.0, life.now, USED) == 1
    assert await spent(life) == (40, 0.25)
    assert await life.store.read(usage_of_session, begun.session_id) == USED


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        (Limits(turn_tokens=99), "this task has reached its limit of 99 tokens"),
        (Limits(turn_cost=0.5), "this task"),
        (Limits(person_tokens_day=99), "your limit of 99 tokens a day"),
        (Limits(person_cost_day=0.5), "your limit"),
        (Limits(total_tokens_day=99), "everybody's limit of 99 tokens a day"),
        (Limits(total_cost_day=0.5), "everybody's limit"),
    ],
)
async def test_who_would_pass_a_limit_is_told_which_and_nothing_is_counted(
    life: Life, limits: Limits, words: str
) -> None:
    begun = await life.begun()
    stored = await life.dump()
    with pytest.raises(Spent, match=words):
        await life.store.run(calling_with_plan, begun, plan(life, limits=limits))
    assert await life.dump() == stored


async def test_a_day_ends_at_midnight_and_people_are_counted_apart(life: Life) -> None:
    limits = Limits(person_tokens_day=150)
    begun = await life.begun()
    await life.store.run(calling_with_plan, begun, plan(life, limits=limits))
    bob = Plan(call=life.ids.next(), tokens=100, cost=0, day=day_of(life.now), who="person:fake:bob", limits=limits)
    await life.store.run(calling_with_plan, await life.begun(chat="bob"), bob)
    with pytest.raises(Spent):
        await life.store.run(calling_with_plan, begun, plan(life, limits=limits))
    assert await spent(life, EVERYBODY) == (200, 1.0)
    life.clock.advance(86_400)
    await life.store.run(calling_with_plan, begun, plan(life, limits=limits))
    assert await spent(life) == (100, 1.0)


async def test_a_late_writer_counts_nothing(life: Life) -> None:
    begun = await life.begun()
    await life.command("/new")
    with pytest.raises(FenceLost):
        await life.store.run(calling_with_plan, begun, plan(life))
    assert await spent(life) == (0, 0.0)


async def test_an_answer_that_is_cut_is_shown_so_and_is_no_success(life: Life) -> None:
    """The mark and the count stay, and so does the note; the transcript holds what was said, without the mark."""
    await life.called("work")
    await life.die()
    second = replace(life, instance=2)
    begun = await second.began()
    answer = second.answer(begun, text="half of")
    await second.twice(finish, begun, answer, life.delivery, 2, None, USED, "half of [cut]")
    entry = await life.entry()
    assert (isinstance(entry.state, ResumePending), entry.unclean_ends, entry.turn) == (True, 1, None)
    assert await life.look("SELECT text FROM outbox") == [("half of [cut]",)]
    assert await life.look("SELECT content FROM message ORDER BY seq DESC LIMIT 1") == [("half of",)]
    assert await life.look("SELECT state, why FROM turn") == [("answered", "cut")]
    again = await second.begun("go on")
    assert again.note is not None
    await second.finish(again)
    assert (await life.entry()).unclean_ends == 0
    assert await life.store.read(broken) == {}
