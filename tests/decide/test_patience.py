"""How long a running turn is waited for: what is due when, and that each thing is said once."""

import pytest

from everturn.decide import progress_words
from everturn.decide.patience import Moment, Notice, Patience, Told, due

DEFAULT = Patience()


@pytest.mark.parametrize(
    ("running_s", "idle_s", "behind", "told", "notice"),
    [
        (179, 10, False, Told(), None),
        (180, 10, False, Told(), Notice.WORKING),
        (359, 10, False, Told(1), None),
        (1000, 10, False, Told(1), Notice.WORKING),
        (1000, 10, True, Told(5), None),
        (1000, 299, True, Told(5), None),
        (1000, 300, True, Told(5), Notice.STALL),
        (1000, 300, False, Told(5), None),
        (1000, 400, True, Told(5, stalled=True), None),
        (1000, 900, True, Told(5, stalled=True), Notice.WARN),
        (1000, 900, True, Told(5), Notice.STALL),
        (1000, 950, True, Told(5, warned=True, stalled=True), None),
        (5000, 1800, False, Told(), Notice.GIVE_UP),
        (5000, 1799, False, Told(27, warned=True), None),
    ],
)
def test_one_thing_is_due_the_gravest_first(
    running_s: float,
    idle_s: float,
    behind: bool,  # noqa: FBT001
    told: Told,
    notice: Notice | None,
) -> None:
    assert due(DEFAULT, Moment(running_s=running_s, idle_s=idle_s, behind=behind), told)[0] is notice


def test_each_is_said_once_and_again_after_the_turn_has_moved() -> None:
    stuck = Moment(running_s=400, idle_s=310, behind=True)
    notice, told = due(DEFAULT, stuck, Told(2))
    assert (notice, told) == (Notice.STALL, Told(2, stalled=True))
    assert due(DEFAULT, stuck, told) == (None, told)
    moved = due(DEFAULT, Moment(running_s=410, idle_s=1, behind=True), told)
    assert moved == (None, Told(2))
    assert due(DEFAULT, Moment(running_s=720, idle_s=310, behind=True), moved[1])[0] is Notice.STALL


def test_what_is_said_counts_as_the_sign_that_it_still_works() -> None:
    notice, told = due(DEFAULT, Moment(running_s=900, idle_s=900, behind=False), Told(4))
    assert (notice, told.working) == (Notice.WARN, 5)


def test_every_limit_can_be_switched_off() -> None:
    never = Patience(inactive_s=0, warn_s=0, working_s=0, stall_s=0)
    assert due(never, Moment(running_s=1e9, idle_s=1e9, behind=True), Told()) == (None, Told())


def test_people_are_told_how_long_and_what_they_can_do() -> None:
    assert "for 3 minutes now. It is using shell." in progress_words.still_working(185, "shell")
    assert "for 59 seconds now. Send /stop" in progress_words.still_working(59.9, None)
    assert "given up in 15 minutes" in progress_words.inactive_soon(900, 900)
    assert "given up" not in progress_words.inactive_soon(900, 0)
    assert "/stop" in progress_words.stalled(60, "shell")
    assert "/new" in progress_words.stalled(60, None)
    assert "for 1 minute," in progress_words.gave_up(60)
