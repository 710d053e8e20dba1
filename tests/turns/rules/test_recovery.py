"""Fair blame: the conversation that kills the process is suspended, its neighbours are not."""

import random
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everturn.turns.rules.recovery import (
    CutOff,
    RecoveryVerdict,
    blame,
    crash_loop,
    drain_counts,
    is_suspect,
    resumes_by_itself,
)

REQUEUE, COUNT, SPARE, SUSPEND = (
    RecoveryVerdict.REQUEUE,
    RecoveryVerdict.COUNT,
    RecoveryVerdict.SPARE,
    RecoveryVerdict.SUSPEND,
)
NOW = 1_760_000_000.0


def cut(turn: int, ends: int = 0, *, called: bool = True, proven: bool = False) -> CutOff:
    return CutOff(
        turn=turn,
        key=f"k{turn}",
        unclean_ends=ends,
        called=called,
        proven=proven,
    )


@pytest.mark.parametrize(
    ("turns", "verdicts"),
    [
        ([], []),
        ([cut(1)], [COUNT]),
        ([cut(1, 1)], [COUNT]),
        ([cut(1, 2)], [SUSPEND]),
        ([cut(1, 7)], [SUSPEND]),
        ([cut(1, 2, called=False)], [REQUEUE]),
        ([cut(1, called=False), cut(2)], [REQUEUE, COUNT]),
        ([cut(1, 2, proven=True)], [SUSPEND]),
        ([cut(1, 2, proven=True), cut(2, 2)], [SPARE, SUSPEND]),
        ([cut(1, 2), cut(2, 2)], [SUSPEND, SUSPEND]),
        ([cut(1, 2, proven=True), cut(2, 2, proven=True)], [SPARE, SPARE]),
        ([cut(1, 2, proven=True), cut(2, 2, proven=True), cut(3, 1)], [SPARE, SPARE, COUNT]),
        ([cut(1, 2), cut(2, 0), cut(3, 1)], [SUSPEND, COUNT, COUNT]),
        ([cut(1, 2, proven=True), cut(2, 2, called=False)], [SUSPEND, REQUEUE]),
    ],
)
def test_each_mix_of_turns_has_its_verdicts(turns: list[CutOff], verdicts: list[RecoveryVerdict]) -> None:
    assert list(blame(turns, 3).values()) == verdicts


def test_two_unclean_ends_are_counted_and_the_third_suspends() -> None:
    """The reference deletes its counter on every start; here two ends are remembered and the third suspends."""
    assert [blame([cut(1, ends)], 3)[1] for ends in (0, 1, 2)] == [COUNT, COUNT, SUSPEND]


def test_zero_never_suspends() -> None:
    turns = [cut(1, 50), cut(2, 50, proven=True), cut(3, called=False)]
    assert blame(turns, 0) == {1: COUNT, 2: COUNT, 3: REQUEUE}
    assert not is_suspect(50, 0)


@pytest.mark.parametrize(("ends", "after", "suspect"), [(0, 3, False), (1, 3, False), (2, 3, True), (0, 1, True)])
def test_a_suspect_is_one_end_away(ends: int, after: int, *, suspect: bool) -> None:
    assert is_suspect(ends, after) is suspect


TURNS = st.builds(
    cut,
    st.integers(),
    st.integers(0, 4),
    called=st.booleans(),
    proven=st.booleans(),
)


@settings(deadline=None)
@given(st.lists(TURNS, unique_by=lambda turn: turn.turn), st.integers(0, 4))
def test_blame_judges_everybody_and_never_the_innocent(turns: list[CutOff], after: int) -> None:
    verdicts = blame(turns, after)
    assert list(verdicts) == [turn.turn for turn in turns]
    for turn in turns:
        verdict = verdicts[turn.turn]
        suspect = is_suspect(turn.unclean_ends, after)
        assert (verdict is REQUEUE) is (not turn.called)
        assert verdict not in {SPARE, SUSPEND} or suspect
        assert verdict is not SPARE or turn.proven


@dataclass
class Conversation:
    """A conversation of a simulation in which one of many kills the process each time it runs."""

    number: int
    killer: bool = False
    ends: int = 0
    suspended: bool = False

    def cut_off(self, *, proven: bool) -> CutOff:
        return cut(self.number, self.ends, proven=proven)

    def take(self, verdict: RecoveryVerdict) -> None:
        self.ends += verdict in {COUNT, SUSPEND}
        self.suspended = verdict is SUSPEND


def die(turns: list[CutOff], all_of_them: list[Conversation]) -> None:
    for number, verdict in blame(turns, 3).items():
        all_of_them[number].take(verdict)


def one_life(order: list[Conversation], *, kills_when_proven: bool) -> list[CutOff]:
    """The turns that run when the killer strikes: plain ones at once, suspects one after another, each when the last is proven."""
    running = [one.cut_off(proven=False) for one in order if not is_suspect(one.ends, 3)]
    for one in (one for one in order if is_suspect(one.ends, 3)):
        if one.killer and not kills_when_proven:
            return [*running, one.cut_off(proven=False)]
        running.append(one.cut_off(proven=True))
    return running


@pytest.mark.parametrize("seed", range(20))
def test_one_killer_among_fifty_is_suspended_alone_promise_9(seed: int) -> None:
    conversations = [Conversation(number, killer=number == 17) for number in range(51)]
    order = random.Random(seed).sample(conversations, 51)
    for _ in range(3):
        die(one_life(order, kills_when_proven=False), conversations)
    assert [one.number for one in conversations if one.suspended] == [17]


@pytest.mark.parametrize("seed", range(20))
def test_a_killer_that_strikes_late_is_found_one_at_a_time_promise_9(seed: int) -> None:
    conversations = [Conversation(number, killer=number == 17) for number in range(51)]
    order = random.Random(seed).sample(conversations, 51)
    for _ in range(5):
        die(one_life(order, kills_when_proven=True), conversations)
    assert not any(one.suspended for one in conversations)
    # The crash loop delay runs them one at a time: each neighbour finishes alone, the killer dies alone.
    die([conversations[17].cut_off(proven=True)], conversations)
    assert [one.number for one in conversations if one.suspended] == [17]


@pytest.mark.parametrize(
    ("attempt", "progressed", "ends", "after", "verdict"),
    [
        (1, True, 0, 3, SPARE),
        (9, True, 2, 3, SPARE),
        (10, True, 0, 3, COUNT),
        (10, True, 2, 3, SUSPEND),
        (1, False, 0, 3, COUNT),
        (3, False, 2, 3, SUSPEND),
        (30, False, 30, 0, COUNT),
    ],
)
def test_a_planned_drain_spares_a_turn_that_moves_on(
    attempt: int, *, progressed: bool, ends: int, after: int, verdict: RecoveryVerdict
) -> None:
    assert drain_counts(attempt, progressed, ends, after) is verdict


@pytest.mark.parametrize(
    ("ages", "threshold", "suspended_one", "slow"),
    [
        ([0, 100, 300], 3, False, True),
        ([0, 100, 301], 3, False, False),
        ([0, 100], 3, False, False),
        ([0, 1, 2, 3], 3, False, True),
        ([0, 1, 2], 3, True, False),
        ([0, 1, 2], 0, False, False),
        ([], 0, False, False),
        ([0], 1, False, True),
    ],
)
def test_three_unclean_boots_in_five_minutes_slow_the_resumes(
    ages: list[float], threshold: int, *, suspended_one: bool, slow: bool
) -> None:
    assert crash_loop([NOW - age for age in ages], NOW, threshold, suspended_one) is slow


def test_a_clock_set_back_is_no_crash_loop() -> None:
    assert not crash_loop([NOW + 3600, NOW + 3601, NOW], NOW, 3, False)
    assert crash_loop([NOW - 50, NOW - 20, NOW], NOW, 3, False, window_s=60)


@pytest.mark.parametrize(
    ("age", "fresh_s", "mode", "resumes"),
    [
        (10, 3600, "auto", True),
        (3600, 3600, "auto", True),
        (3601, 3600, "auto", False),
        (3601, 0, "auto", True),
        (3601, -1, "auto", True),
        (-500, 3600, "auto", True),
        (None, 3600, "auto", True),
        (10, 3600, "on_message", False),
        (None, 0, "on_message", False),
    ],
)
def test_a_fresh_interrupted_turn_resumes_by_itself(
    age: float | None, fresh_s: float, mode: str, *, resumes: bool
) -> None:
    marked_at = None if age is None else NOW - age
    assert resumes_by_itself(marked_at, NOW, fresh_s, mode) is resumes
