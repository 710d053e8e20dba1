"""The reply to a /v1 request for each state of its rows."""

from typing import Any

import pytest

from everturn.model import InboxState, ToolCall, TurnState, Usage
from everturn.web.v1.rules import CompletionError, FinishedAnswer, Pending, RequestProgress, grown, verdict

CALL = ToolCall("c", "look")


@pytest.mark.parametrize(
    ("seen", "finish"), [({}, "stop"), ({"why": "cut"}, "length"), ({"calls": (CALL,), "text": ""}, "tool_calls")]
)
def test_an_answer_says_why_it_ends(seen: dict[str, Any], finish: str) -> None:
    found = verdict(
        RequestProgress(**{"inbox": "done", "turn": "answered", "text": "hi", "usage": Usage(1, 2, 3), **seen})
    )
    assert isinstance(found, FinishedAnswer)
    assert (found.finish, found.usage, found.calls) == (finish, Usage(1, 2, 3), seen.get("calls", ()))


@pytest.mark.parametrize(
    ("seen", "code", "final"),
    [
        (RequestProgress(inbox="dead", turn="failed", text="no model"), "turn_failed", True),
        (RequestProgress(inbox="dead", turn="suspended"), "session_suspended", True),
        (RequestProgress(inbox="done", turn="stopped"), "turn_stopped", True),
        (RequestProgress(inbox="withdrawn", turn="rolled_back"), "turn_stopped", True),
        (RequestProgress(inbox="withdrawn"), "message_withdrawn", True),
        (RequestProgress(inbox="expired"), "message_expired", True),
        (RequestProgress(inbox="dead"), "message_dead", True),
        (RequestProgress(inbox="claimed", turn="awaiting_approval", approval="run it?"), "approval_required", False),
        (RequestProgress(inbox="queued", approval="run it?"), "approval_required", False),
        (RequestProgress(inbox="queued", suspended=True), "session_suspended", False),
        (RequestProgress(inbox="claimed", turn="interrupted", too_old=True), "turn_interrupted", False),
    ],
)
def test_every_other_end_has_a_name(seen: RequestProgress, code: str, final: bool) -> None:  # noqa: FBT001  a column
    found = verdict(seen)
    assert isinstance(found, CompletionError)
    assert (found.code, found.final, found.status) == (code, final, 500 if final else 409)
    assert not seen.text or found.message == seen.text


@pytest.mark.parametrize("turn", [None, "running", "interrupted", "awaiting_approval"])
def test_what_goes_on_is_waited_for(turn: str | None) -> None:
    assert verdict(RequestProgress(inbox="claimed", turn=turn)) == Pending(running=turn == "running")


def test_no_state_is_without_a_verdict() -> None:
    for inbox in InboxState:
        for turn in (None, *TurnState):
            open_ = turn in {None, "running", "awaiting_approval", "interrupted"} and inbox in {
                "queued",
                "claimed",
                "done",
            }
            assert isinstance(verdict(RequestProgress(inbox=inbox, turn=turn)), Pending) == open_


@pytest.mark.parametrize(
    ("current", "shown", "more"),
    [("", "a", "a"), ("a", "ab", "b"), ("a", "a", ""), ("let me look", "it is 5", "\n\nit is 5"), ("ab", "a", "\n\na")],
)
def test_what_was_sent_is_not_taken_back(current: str, shown: str, more: str) -> None:
    assert grown(current, shown) == more
