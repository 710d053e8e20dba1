"""How a conversation stands, in the words of `everturn sessions`."""

import pytest

from everturn.decide.ops_words import session_words


@pytest.mark.parametrize(
    ("state", "reason", "ends", "has_turn", "words"),
    [
        ("active", None, 0, False, "active"),
        ("resume_pending", "restart_timeout", 0, True, "cut off by a restart; its task goes on"),
        (
            "resume_pending",
            "restart_interrupted",
            1,
            False,
            "cut off when the gateway ended without warning; the next message goes on, with a note of it",
        ),
        ("resume_pending", "other", 0, True, "cut off (other); its task goes on"),
        ("suspended", "stuck", 3, False, "set aside after 3 unclean ends in a row; /resume brings it back"),
        ("suspended", "operator", 0, False, "set aside by an operator; /resume brings it back"),
    ],
)
def test_how_it_stands(state: str, reason: str | None, ends: int, has_turn: bool, words: str) -> None:  # noqa: FBT001
    assert session_words(state, reason, ends, has_turn=has_turn) == words
