"""What a message does while a turn runs: which mode counts, which messages join, which begin a turn together."""

import pytest

from everturn.inbox.rules import BusyMode, burst, busy_of, forced_by, quiet_at, skipped, steers


@pytest.mark.parametrize(
    ("forced", "chosen", "configured", "busy"),
    [
        (None, None, "steer", BusyMode.STEER),
        (None, None, "queue", BusyMode.QUEUE),
        (None, "interrupt", "queue", BusyMode.INTERRUPT),
        ("queue", "interrupt", "steer", BusyMode.QUEUE),
        ("steer", None, "rollback", BusyMode.STEER),
        (None, "nonsense", "collect", BusyMode.COLLECT),
        (None, None, "nonsense", BusyMode.STEER),
    ],
)
def test_the_message_itself_then_busy_then_the_configuration(
    forced: str | None, chosen: str | None, configured: str, busy: BusyMode
) -> None:
    assert busy_of(forced, chosen, configured, turn_open=True, others_wait=False) is busy


@pytest.mark.parametrize("mode", BusyMode)
@pytest.mark.parametrize("others", [False, True])
def test_without_a_turn_only_what_is_being_collected_waits(mode: BusyMode, others: bool) -> None:  # noqa: FBT001
    found = busy_of(None, None, mode, turn_open=False, others_wait=others)
    assert found is (BusyMode.COLLECT if mode is BusyMode.COLLECT and others else None)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("/steer go left", (BusyMode.STEER, "go left")),
        ("/queue  two\nlines", (BusyMode.QUEUE, "two\nlines")),
        ("/steer", None),
        ("/queue   ", None),
        ("/stop now", None),
        ("steer me", None),
        ("/steering wheel", None),
    ],
)
def test_steer_and_queue_with_a_text_are_messages(text: str, found: tuple[BusyMode, str] | None) -> None:
    assert forced_by(text) == found


@pytest.mark.parametrize(
    ("modes", "count"),
    [([], 0), (["steer", "steer"], 2), (["steer", "queue", "steer"], 1), (["queue", "steer"], 0), ([None], 0)],
)
def test_those_in_front_that_steer_join(modes: list[str | None], count: int) -> None:
    assert steers(modes) == count


@pytest.mark.parametrize(
    ("waiting", "count"),
    [
        ([("ann", 0.0)], 1),
        ([("ann", 0.0), ("ann", 0.35)], 2),
        ([("ann", 0.0), ("ann", 0.36)], 1),
        ([("ann", 0.0), ("bob", 0.1), ("ann", 0.2)], 1),
        ([("ann", 0.0), ("ann", 0.3), ("ann", 0.6), ("ann", 0.9), ("ann", 1.2)], 4),
        ([("ann", 5.0), ("ann", 4.0)], 1),
    ],
)
def test_a_burst_is_of_one_author_close_together_and_short(waiting: list[tuple[str, float]], count: int) -> None:
    assert burst(waiting, 0.35) == count


def test_without_a_window_every_message_is_alone() -> None:
    assert burst([("ann", 1.0), ("ann", 1.0)], 0.0) == 1


def test_it_is_quiet_when_nothing_came_after_the_last() -> None:
    assert quiet_at([3.0, 1.0], 2.0) == 5.0


def test_a_skipped_call_says_why() -> None:
    assert skipped("it rains") == "Skipped: this call was not run, because it rains."
