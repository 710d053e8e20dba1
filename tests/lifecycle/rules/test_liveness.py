"""Which instances are dead: by the database's clock, and after a grace period."""

import pytest

from everturn.lifecycle.rules import STALE_S, Suspect, is_dead, is_stale, watch


def test_a_heartbeat_is_stale_after_a_minute() -> None:
    assert is_stale(999.0 - STALE_S, 1000.0)
    for alive_at in (None, 1000.0, 1000.0 - STALE_S, 1000.0 + 2 * STALE_S):
        assert not is_stale(alive_at, 1000.0)


@pytest.mark.parametrize(
    ("before", "heartbeats", "after"),
    [
        ({}, {1: 7.0}, {1: Suspect(7.0, 100.0)}),
        ({1: Suspect(7.0, 50.0)}, {1: 7.0}, {1: Suspect(7.0, 50.0)}),
        ({1: Suspect(7.0, 50.0)}, {1: 8.0}, {1: Suspect(8.0, 100.0)}),  # its heartbeat moved: it is alive
        ({1: Suspect(7.0, 50.0)}, {2: 7.0}, {2: Suspect(7.0, 100.0)}),  # its lock is back
        ({1: Suspect(7.0, 50.0)}, {}, {}),
    ],
)
def test_a_suspect_stays_one_while_nothing_moves(
    before: dict[int, Suspect], heartbeats: dict[int, float], after: dict[int, Suspect]
) -> None:
    assert watch(before, heartbeats, 100.0) == after


def test_a_suspect_is_dead_after_the_grace() -> None:
    verdicts = [is_dead(Suspect(7.0, since), 100.0, 5.0) for since in (100.0, 95.1, 95.0, 10.0)]
    assert verdicts == [False, False, True, True]
