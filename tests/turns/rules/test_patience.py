"""Timeouts of a running turn: which notice is due when, and that each is sent once."""

import pytest

from everturn.turns.rules import turn_texts
from everturn.turns.rules.turns import Moment, Notice, NoticesSent, TurnTimeouts, due

DEFAULT = TurnTimeouts()


@pytest.mark.parametrize(
    ("running_s", "idle_s", "behind", "sent", "notice"),
    [
        (179, 10, False, NoticesSent(), None),
        (180, 10, False, NoticesSent(), Notice.WORKING),
        (359, 10, False, NoticesSent(1), None),
        (1000, 10, False, NoticesSent(1), Notice.WORKING),
        (1000, 10, True, NoticesSent(5), None),
        (1000, 299, True, NoticesSent(5), None),
        (1000, 300, True, NoticesSent(5), Notice.STALL),
        (1000, 300, False, NoticesSent(5), None),
        (1000, 400, True, NoticesSent(5, stalled=True), None),
        (1000, 900, True, NoticesSent(5, stalled=True), Notice.WARN),
        (1000, 900, True, NoticesSent(5), Notice.STALL),
        (1000, 950, True, NoticesSent(5, warned=True, stalled=True), None),
        (5000, 1800, False, NoticesSent(), Notice.INACTIVE),
        (5000, 1799, False, NoticesSent(27, warned=True), None),
    ],
)
def test_one_thing_is_due_the_gravest_first(
    running_s: float,
    idle_s: float,
    behind: bool,  # noqa: FBT001
    sent: NoticesSent,
    notice: Notice | None,
) -> None:
    assert due(DEFAULT, Moment(running_s=running_s, idle_s=idle_s, behind=behind), sent)[0] is notice


def test_each_is_said_once_and_again_after_the_turn_has_moved() -> None:
    stuck = Moment(running_s=400, idle_s=310, behind=True)
    notice, sent = due(DEFAULT, stuck, NoticesSent(2))
    assert (notice, sent) == (Notice.STALL, NoticesSent(2, stalled=True))
    assert due(DEFAULT, stuck, sent) == (None, sent)
    moved = due(DEFAULT, Moment(running_s=410, idle_s=1, behind=True), sent)
    assert moved == (None, NoticesSent(2))
    assert due(DEFAULT, Moment(running_s=720, idle_s=310, behind=True), moved[1])[0] is Notice.STALL


def test_what_is_said_counts_as_the_sign_that_it_still_works() -> None:
    notice, sent = due(DEFAULT, Moment(running_s=900, idle_s=900, behind=False), NoticesSent(4))
    assert (notice, sent.working) == (Notice.WARN, 5)


def test_every_limit_can_be_switched_off() -> None:
    never = TurnTimeouts(inactive_s=0, warn_s=0, working_s=0, stall_s=0)
    assert due(never, Moment(running_s=1e9, idle_s=1e9, behind=True), NoticesSent()) == (None, NoticesSent())


def test_notices_say_how_long_and_what_people_can_do() -> None:
    assert "for 3 minutes now. It is using shell." in turn_texts.still_working(185, "shell")
    assert "for 59 seconds now. Send /stop" in turn_texts.still_working(59.9, None)
    assert "fails in 15 minutes" in turn_texts.inactive_soon(900, 900)
    assert "fails" not in turn_texts.inactive_soon(900, 0)
    assert "/stop" in turn_texts.stalled(60, "shell")
    assert "/new" in turn_texts.stalled(60, None)
    assert "for 1 minute," in turn_texts.inactive(60)
