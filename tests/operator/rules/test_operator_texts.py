"""How a conversation stands, as `everturn sessions` prints it."""

import pytest

from everturn.operator.rules.operator_texts import session_text


@pytest.mark.parametrize(
    ("state", "reason", "ends", "has_turn", "text"),
    [
        ("active", None, 0, False, "active"),
        ("resume_pending", "restart_timeout", 0, True, "cut off by a restart; its task continues"),
        (
            "resume_pending",
            "restart_interrupted",
            1,
            False,
            "cut off when the gateway ended without warning; the next message continues it, with a note",
        ),
        ("resume_pending", "other", 0, True, "cut off (other); its task continues"),
        ("suspended", "stuck", 3, False, "suspended after 3 unclean ends in a row; /resume resumes it"),
        ("suspended", "operator", 0, False, "suspended by an operator; /resume resumes it"),
    ],
)
def test_how_it_stands(state: str, reason: str | None, ends: int, has_turn: bool, text: str) -> None:  # noqa: FBT001
    assert session_text(state, reason, ends, has_turn=has_turn) == text
