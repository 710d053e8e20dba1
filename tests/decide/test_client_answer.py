"""What a program is told about its request, from how its rows stand."""

from typing import Any

import pytest

from everturn.decide.client_answer import Answered, Pending, Problem, Seen, grown, verdict
from everturn.model import InboxState, ToolCall, TurnState, Usage

CALL = ToolCall("c", "look")


@pytest.mark.parametrize(
    ("seen", "finish"), [({}, "stop"), ({"why": "cut"}, "length"), ({"calls": (CALL,), "text": ""}, "tool_calls")]
)
def test_an_answer_says_why_it_ends(seen: dict[str, Any], finish: str) -> None:
    found = verdict(Seen(**{"inbox": "done", "turn": "answered", "text": "hi", "usage": Usage(1, 2, 3), **seen}))
    assert isinstance(found, Answered)
    assert (found.finish, found.usage, found.calls) == (finish, Usage(1, 2, 3), seen.get("calls", ()))


@pytest.mark.parametrize(
    ("seen", "code", "final"),
    [
        (Seen(inbox="dead", turn="failed", text="no model"), "turn_failed", True),
        (Seen(inbox="dead", turn="suspended"), "session_suspended", True),
        (Seen(inbox="done", turn="stopped"), "turn_stopped", True),
        (Seen(inbox="withdrawn", turn="rolled_back"), "turn_stopped", True),
        (Seen(inbox="withdrawn"), "message_withdrawn", True),
        (Seen(inbox="expired"), "message_expired", True),
        (Seen(inbox="dead"), "message_dead", True),
        (Seen(inbox="claimed", turn="waiting", asks="run it?"), "approval_required", False),
        (Seen(inbox="waiting", asks="run it?"), "approval_required", False),
        (Seen(inbox="waiting", suspended=True), "session_suspended", False),
        (Seen(inbox="claimed", turn="interrupted", too_old=True), "turn_interrupted", False),
    ],
)
def test_every_other_end_has_a_name(seen: Seen, code: str, final: bool) -> None:  # noqa: FBT001  a column
    found = verdict(seen)
    assert isinstance(found, Problem)
    assert (found.code, found.final, found.status) == (code, final, 500 if final else 409)
    assert not seen.text or found.message == seen.text


@pytest.mark.parametrize("turn", [None, "running", "interrupted", "waiting"])
def test_what_goes_on_is_waited_for(turn: str | None) -> None:
    assert verdict(Seen(inbox="claimed", turn=turn)) == Pending(running=turn == "running")


def test_no_state_is_without_a_verdict() -> None:
    for inbox in InboxState:
        for turn in (None, *TurnState):
            open_ = turn in {None, "running", "waiting", "interrupted"} and inbox in {"waiting", "claimed", "done"}
            assert isinstance(verdict(Seen(inbox=inbox, turn=turn)), Pending) == open_


@pytest.mark.parametrize(
    ("current", "shown", "more"),
    [("", "a", "a"), ("a", "ab", "b"), ("a", "a", ""), ("let me look", "it is 5", "\n\nit is 5"), ("ab", "a", "\n\na")],
)
def test_what_was_sent_is_not_taken_back(current: str, shown: str, more: str) -> None:
    assert grown(current, shown) == more
