"""After a failed or uncertain send: when to try again, when to stop, and how doubt is shown."""

import math

import pytest

from everturn.decide.delivery import (
    MAY_REPEAT,
    Doubtful,
    GiveUp,
    Retry,
    Surety,
    after_failure,
    marked,
    when_uncertain,
)
from everturn.errors import OutcomeUnknown, PlatformError, Refused, TryLater

NOW = 1_760_000_000.0


def waits(error: PlatformError, attempts: int, max_attempts: int = 20) -> float:
    decision = after_failure(error, attempts, NOW, valid_until=None, max_attempts=max_attempts)
    assert isinstance(decision, Retry)
    return decision.at - NOW


@pytest.mark.parametrize(
    ("attempts", "wait_s"), [(0, 1), (1, 1), (2, 2), (3, 4), (8, 128), (9, 256), (10, 300), (19, 300)]
)
def test_the_back_off_grows_to_five_minutes(attempts: int, wait_s: float) -> None:
    assert waits(TryLater("busy", 0), attempts) == wait_s
    assert waits(OutcomeUnknown("timed out"), attempts) == wait_s
    assert waits(PlatformError("odd"), attempts) == wait_s


def test_the_platforms_own_delay_is_kept() -> None:
    assert waits(TryLater("flood", 900), 1) == 900
    assert waits(TryLater("flood", 3), 5) == 16


@pytest.mark.parametrize(("delay_s", "wait_s"), [(-5, 1), (math.nan, 1), (math.inf, 86_400)])
def test_a_senseless_delay_is_bounded(delay_s: float, wait_s: float) -> None:
    assert waits(TryLater("odd", delay_s), 1) == wait_s


def test_what_is_refused_is_given_up_at_once() -> None:
    decision = after_failure(Refused("bot was blocked"), 1, NOW, valid_until=None)
    assert decision == GiveUp("the platform refused it: bot was blocked")


def test_attempts_are_bounded_and_the_reason_is_plain() -> None:
    assert isinstance(after_failure(TryLater("busy", 0), 7, NOW, valid_until=None), Retry)
    decision = after_failure(TryLater("busy", 0), 8, NOW, valid_until=None)
    assert decision == GiveUp("gave up after 8 attempts: busy")


def test_nothing_is_sent_after_it_lost_its_use() -> None:
    error = TryLater("busy", 10)
    assert after_failure(error, 1, NOW, valid_until=NOW + 10) == Retry(NOW + 10)
    decision = after_failure(error, 1, NOW, valid_until=NOW + 9)
    assert isinstance(decision, GiveUp)
    assert "busy" in decision.why


@pytest.mark.parametrize("policy", ["mark", "ask", "drop"])
def test_doubt_is_settled_by_key_or_by_looking_else_by_the_owner_promise_6(policy: str) -> None:
    assert when_uncertain(Surety.KEYED, policy) is Doubtful.REPEAT
    assert when_uncertain(Surety.READ_BACK, policy) is Doubtful.LOOK
    assert when_uncertain(Surety.NEITHER, policy) is Doubtful(policy)


def test_a_policy_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(KeyError):
        when_uncertain(Surety.NEITHER, "repeat")


def test_a_repetition_is_visibly_marked_once_trap_6() -> None:
    assert marked("done: 3 steps") == f"done: 3 steps\n\n{MAY_REPEAT}"
    assert marked(marked("hello")) == marked("hello")
    assert "twice" in MAY_REPEAT
