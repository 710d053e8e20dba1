"""Fair sharing of slots: a client that takes all it may leaves some for the next one."""

import pytest

from everturn.web.wire.limits import may_take


@pytest.mark.parametrize(
    ("own", "most", "free", "may"),
    [
        (0, 1000, 1, True),
        (0, 1000, 0, False),
        (999, 1000, 3000, True),
        (1000, 1000, 3000, False),
        (500, 1000, 501, True),
        (500, 1000, 500, False),
    ],
)
def test_nobody_takes_more_than_they_leave(own: int, most: int, free: int, *, may: bool) -> None:
    assert may_take(own, most, free) is may


@pytest.mark.parametrize("clients", [1, 2, 5, 50])
def test_however_many_take_all_they_may_somebody_else_finds_room(clients: int) -> None:
    taken = [0] * clients
    while any(may_take(own, 1000, 4096 - sum(taken)) for own in taken):
        taken[taken.index(min(taken))] += 1
    assert may_take(0, 1000, 4096 - sum(taken))
    assert 4096 - sum(taken) >= 4096 // (clients + 1)
