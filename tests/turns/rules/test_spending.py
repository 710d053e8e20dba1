"""Which spending limit is passed, and the text for it."""

import pytest

from everturn.turns.rules.spending import EVERYBODY, SpendingLimits, day_of, passes_day, passes_turn, spender_of

FEW = SpendingLimits(
    turn_tokens=10, person_tokens_day=100, total_tokens_day=1000, turn_cost=1, person_cost_day=2, total_cost_day=3
)


@pytest.mark.parametrize(
    ("tokens", "cost", "part"),
    [(10, 1.0, None), (11, 0.0, "this task has reached its limit of 10 tokens"), (1, 1.5, "limit of 1.00 in costs")],
)
def test_a_turn_has_its_limits(tokens: int, cost: float, part: str | None) -> None:
    why = passes_turn(FEW, tokens, cost)
    assert (why is None) if part is None else (part in (why or ""))


@pytest.mark.parametrize(
    ("spender", "tokens", "cost", "part"),
    [
        ("person:fake:ann", 100, 2.0, None),
        ("person:fake:ann", 101, 0.0, "your limit of 100 tokens a day is reached, until midnight UTC"),
        ("person:fake:ann", 0, 2.5, "your limit of 2.00 in costs a day"),
        (EVERYBODY, 1000, 3.0, None),
        (EVERYBODY, 1001, 0.0, "everybody's limit of 1,000 tokens a day"),
        (EVERYBODY, 0, 3.5, "everybody's limit of 3.00"),
    ],
)
def test_a_day_has_its_limits(spender: str, tokens: int, cost: float, part: str | None) -> None:
    why = passes_day(FEW, spender, tokens, cost)
    assert (why is None) if part is None else (part in (why or ""))


def test_no_limit_is_never_passed() -> None:
    assert passes_turn(SpendingLimits(), 10**12, 1e9) is None
    assert passes_day(SpendingLimits(), EVERYBODY, 10**12, 1e9) is None
    assert (SpendingLimits().any(), SpendingLimits(turn_tokens=1).any(), SpendingLimits(turn_tokens=1).by_day()) == (
        False,
        True,
        False,
    )
    assert SpendingLimits(total_cost_day=1).by_day()


def test_days_are_of_utc_and_people_have_names() -> None:
    assert (day_of(1_800_000_000.0), day_of(1_799_971_199.0)) == ("2027-01-15", "2027-01-14")
    assert (spender_of("fake:ann", "key"), spender_of(None, "key")) == ("person:fake:ann", "key:key")
