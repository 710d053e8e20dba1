"""Whether a platform receives, and the text that says so."""

import pytest

from everturn.platform.interface import Contact
from everturn.platform.rules import RECENT_S, Reach, reach_of, reach_text

NOW = 1_800_000_000.0


@pytest.mark.parametrize(
    ("received_at", "trouble", "state"),
    [
        (None, None, Reach.CONNECTING),
        (NOW, None, Reach.READING),
        (NOW - RECENT_S, None, Reach.READING),
        (NOW - RECENT_S - 1, None, Reach.SILENT),
        (NOW + 5, None, Reach.READING),  # a clock that was set back
        (NOW, "no route to host", Reach.TROUBLE),
        (None, "the token is wrong", Reach.TROUBLE),
    ],
)
def test_reading_means_that_it_answered_lately(received_at: float | None, trouble: str | None, state: Reach) -> None:
    assert reach_of(received_at, trouble, NOW) is state


@pytest.mark.parametrize(
    ("state", "trouble", "since", "text"),
    [
        ("reading", None, "", "reading"),
        ("trouble", "no answer", "12:00", "cannot be read since 12:00: no answer"),
        ("silent", None, "12:00", "has sent nothing since 12:00"),
        ("connecting", None, "12:00", "connecting since 12:00"),
        ("open", None, "", "open"),
    ],
)
def test_it_is_said_in_words(state: str, trouble: str | None, since: str, text: str) -> None:
    assert reach_text(state, trouble, since) == text


@pytest.mark.parametrize(
    ("before", "since"),
    [
        (Contact(), NOW),
        (Contact(NOW - RECENT_S, None, NOW - 900), NOW - 900),
        (Contact(NOW - RECENT_S, "no route to host", NOW - 900), NOW - 900),
        (Contact(NOW - RECENT_S - 1, None, NOW - 900), NOW),
        (Contact(NOW + 500, None, NOW - 900), NOW - 900),  # a clock that was set back
    ],
)
def test_who_was_silent_for_long_is_heard_only_since_then(before: Contact, since: float) -> None:
    assert before.answered(NOW) == Contact(NOW, None, since)
