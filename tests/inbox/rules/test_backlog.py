"""What becomes of messages that were sent while the gateway was disconnected."""

import pytest

from everturn.inbox.rules import (
    Arriving,
    BacklogDecision,
    BacklogPolicy,
    BacklogRule,
    arriving,
    before_newest,
    count,
    settle,
)

NOW, SINCE = 10_000.0, 9_990.0


@pytest.mark.parametrize(
    ("policy", "age_s", "said_at", "command", "expected"),
    [
        ("all", 0, 1.0, False, Arriving.NOW),
        ("newest", 0, None, False, Arriving.NOW),
        ("newest", 0, 9_991.0, False, Arriving.NOW),
        ("newest", 0, 9_985.0, False, Arriving.NOW),  # within the grace
        ("newest", 0, 9_984.0, False, Arriving.HOLD),
        ("digest", 0, 9_000.0, False, Arriving.HOLD),
        ("ask", 0, 9_000.0, False, Arriving.HOLD),
        ("ask", 0, 9_000.0, True, Arriving.NOW),
        ("all", 3600, 6_400.0, False, Arriving.NOW),
        ("all", 3600, 6_399.0, False, Arriving.EXPIRE),
        ("ask", 3600, 6_399.0, True, Arriving.EXPIRE),
        ("newest", 3600, 20_000.0, False, Arriving.NOW),  # a platform whose clock is ahead
    ],
)
def test_what_a_message_does_when_it_arrives(
    policy: str,
    age_s: float,
    said_at: float | None,
    command: bool,  # noqa: FBT001  a column of the table
    expected: Arriving,
) -> None:
    assert arriving(BacklogRule(policy=policy, age_s=age_s), said_at, SINCE, NOW, command=command) is expected


@pytest.mark.parametrize(
    ("policy", "held", "expected"),
    [
        (BacklogPolicy.ALL, 3, BacklogDecision()),
        (BacklogPolicy.NEWEST, 1, BacklogDecision()),
        (BacklogPolicy.NEWEST, 3, BacklogDecision(newest=True)),
        (BacklogPolicy.DIGEST, 3, BacklogDecision(together=True)),
        (BacklogPolicy.ASK, 1, BacklogDecision(ask=True)),
        (BacklogPolicy.ASK, 3, BacklogDecision(ask=True)),
    ],
)
def test_what_becomes_of_a_backlog(policy: str, held: int, expected: BacklogDecision) -> None:
    assert settle(policy, held) == expected


@pytest.mark.parametrize(
    ("albums", "messages", "before"),
    [
        ([], 0, 0),
        ([None], 1, 0),
        ([None, None, None], 3, 2),
        (["a", "a", "a"], 1, 0),
        ([None, "a", "a"], 2, 1),
        (["a", "a", None], 2, 2),
        (["a", "a", "b"], 2, 2),
        (["a", None, "a"], 3, 2),
    ],
)
def test_an_album_is_one_message(albums: list[str | None], messages: int, before: int) -> None:
    assert (count(albums), before_newest(albums)) == (messages, before)
