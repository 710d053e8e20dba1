"""When a room that cannot be read is skipped, and when its owner sees it."""

import pytest

from everturn.platform.matrix.rules import is_hopeless, is_loud


@pytest.mark.parametrize(
    ("failures", "failing_s", "hopeless"),
    [
        (1, 0.0, False),
        (4, 7200.0, False),
        (5, 3599.0, False),
        (5, 3600.0, True),
        (60, 600.0, False),
        (60, 3600.0, True),
    ],
)
def test_a_room_is_passed_over_when_it_failed_often_and_for_long(
    failures: int, failing_s: float, hopeless: object
) -> None:
    assert is_hopeless(failures, failing_s) is hopeless


@pytest.mark.parametrize(("failures", "loud"), [(1, False), (2, False), (3, True)])
def test_its_owner_hears_of_it_when_it_lasts(failures: int, loud: object) -> None:
    assert is_loud(failures) is loud
