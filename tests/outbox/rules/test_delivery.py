"""After a failed send, or one with unknown delivery: when to retry, when to stop, and how a repetition is marked."""

import math

import pytest

from everturn.errors import OutcomeUnknown, PlatformError, Refused, TryLater
from everturn.outbox.rules.delivery import (
    MAY_REPEAT,
    DeadLetter,
    Retry,
    Surety,
    UnknownAction,
    after_failure,
    is_too_late,
    marked,
    unknown_action,
)

NOW = 1_760_000_000.0


def decided(
    error: PlatformError, tries: int, failures: int, *, valid_s: float | None = None, harmless: bool = False
) -> Retry | DeadLetter:
    valid_until = None if valid_s is None else NOW + valid_s
    return after_failure(error, tries, failures, NOW, valid_until=valid_until, harmless=harmless)


def waits(error: PlatformError, tries: int, failures: int = 1, *, harmless: bool = False) -> float:
    decision = decided(error, tries, failures, harmless=harmless)
    assert isinstance(decision, Retry)
    return decision.at - NOW


@pytest.mark.parametrize(("failures", "wait_s"), [(0, 1), (1, 1), (2, 2), (3, 4), (6, 32), (7, 60)])
def test_the_pause_after_a_failure_grows_to_a_minute(failures: int, wait_s: float) -> None:
    assert waits(TryLater("busy", 0), failures, failures) == wait_s
    assert waits(OutcomeUnknown("timed out"), failures, failures) == wait_s
    assert waits(PlatformError("odd"), failures, failures) == wait_s


def test_the_platforms_own_delay_is_kept() -> None:
    assert waits(TryLater("flood", 900), 1) == 900
    assert waits(TryLater("flood", 3), 5) == 16


def test_a_wait_that_was_ordered_is_no_failed_try() -> None:
    """However often: only the reply's own time ends it. Between orders it is asked at least once a minute."""
    assert waits(TryLater("flood", 40), 1000, 1000) == 60
    assert waits(TryLater("flood", 400), 1000, 1000) == 400
    assert isinstance(decided(TryLater("flood", 40), 1000, 0, valid_s=59), DeadLetter)


def test_a_failure_after_many_waits_and_deaths_is_the_first() -> None:
    assert waits(OutcomeUnknown("timed out"), 1000, 1) == 1
    assert waits(OutcomeUnknown("timed out"), 1000, 1, harmless=True) == 1


@pytest.mark.parametrize(("delay_s", "wait_s"), [(-5, 1), (math.nan, 1), (math.inf, 86_400)])
def test_a_senseless_delay_is_bounded(delay_s: float, wait_s: float) -> None:
    assert waits(TryLater("odd", delay_s), 1) == wait_s


@pytest.mark.parametrize(
    ("valid_s", "seen", "late"),
    [(None, False, False), (1, False, False), (0, False, False), (-1, False, True), (-1, True, False)],
)
def test_what_is_out_of_date_is_not_begun_but_completed(valid_s: float | None, seen: bool, late: bool) -> None:  # noqa: FBT001
    valid_until = None if valid_s is None else NOW + valid_s
    assert is_too_late(valid_until, NOW, seen=seen) is late


def test_what_is_refused_is_a_dead_letter_at_once() -> None:
    assert decided(Refused("bot was blocked"), 1, 1) == DeadLetter("the platform refused it: bot was blocked")


def test_failures_are_bounded_and_the_reason_is_plain() -> None:
    assert isinstance(decided(TryLater("busy", 0), 7, 7), Retry)
    assert decided(TryLater("busy", 0), 8, 8) == DeadLetter("gave up after 8 failed attempts: busy")


def test_a_platform_in_trouble_is_waited_for_where_nothing_can_appear_twice() -> None:
    """Promise 12: for an hour, and asked every minute."""
    gone_s, failures = 0.0, 1
    while isinstance(decision := decided(OutcomeUnknown("502"), failures, failures, harmless=True), Retry):
        gone_s, failures = gone_s + decision.at - NOW, failures + 1
    assert waits(OutcomeUnknown("502"), 20, 20, harmless=True) == 60
    assert 3500 < gone_s < 4000


def test_nothing_is_sent_after_it_lost_its_use() -> None:
    error = TryLater("busy", 10)
    assert decided(error, 1, 1, valid_s=10) == Retry(NOW + 10)
    decision = decided(error, 1, 1, valid_s=9)
    assert isinstance(decision, DeadLetter)
    assert "busy" in decision.why


@pytest.mark.parametrize("policy", ["mark", "ask", "drop"])
def test_unknown_delivery_is_settled_by_key_or_by_looking_else_by_the_owner_promise_6(policy: str) -> None:
    assert unknown_action(Surety.KEYED, policy) is UnknownAction.REPEAT
    assert unknown_action(Surety.KEYED, policy, readable=True) is UnknownAction.LOOK
    assert unknown_action(Surety.READ_BACK, policy) is UnknownAction.LOOK
    assert unknown_action(Surety.NEITHER, policy) is UnknownAction(policy)


def test_a_policy_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(KeyError):
        unknown_action(Surety.NEITHER, "repeat")


def test_a_possible_duplicate_is_marked_once() -> None:
    assert marked("done: 3 steps") == f"done: 3 steps\n\n{MAY_REPEAT}"
    assert marked(marked("hello")) == marked("hello")
    assert "twice" in MAY_REPEAT
