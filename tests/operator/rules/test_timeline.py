"""The timeline of a message as lines: in order, with the reason of every end, and with what is still open."""

from typing import Any

import pytest

from everturn.operator.rules.timeline import timeline

Json = dict[str, Any]


def message(**more: Any) -> Json:
    started: Json = {
        "id": "m1", "platform": "api", "account": "", "key": "k", "kind": "message", "state": "done", "why": None,
        "received_at": 1.0, "ended_at": 9.0, "turn": None, "replies": [],
    }  # fmt: skip
    return started | more


def turn(**more: Any) -> Json:
    attempts = [
        {"attempt": 1, "instance": 1, "note": None, "started_at": 1.5, "ended_at": 4.0, "why": "the gateway ended"},
        {"attempt": 2, "instance": 2, "note": "resume:restart_interrupted", "started_at": 5.0, "ended_at": 9.0, "why": "answered"},
    ]  # fmt: skip
    started: Json = {
        "id": "7", "session_id": "s", "state": "answered", "reason": None, "why": None, "note": None, "started_at": 1.5,
        "ended_at": 9.0, "attempts": attempts, "steps": [{"seq": 1, "role": "user", "attempt": 1, "at": 1.0}], "effects": [],
    }  # fmt: skip
    return started | more


def reply(**more: Any) -> Json:
    started: Json = {
        "id": "7", "kind": "reply", "state": "sent", "attempts": 0, "parts": "[]", "marked": False, "error": None,
        "created_at": 9.0, "ended_at": 9.0,
    }  # fmt: skip
    return started | more


def text(told: Json) -> list[str]:
    return [line for _, line in timeline(told)]


def test_what_one_commit_did_is_listed_in_the_order_of_sense() -> None:
    assert text(message(turn=turn(), replies=[reply()])) == [
        "message received from api and stored",
        "turn 7 began in session s",
        "attempt 1 began without a note (instance 1)",
        "step 1: the user's message stored (attempt 1)",
        "attempt 1 ended: the gateway ended while it was running",
        "attempt 2 began with the note resume:restart_interrupted (instance 2)",
        "reply written",
        "reply delivered",
        "attempt 2 ended: answered",
        "turn ended: answered",
        "the message is done",
    ]


def test_a_waiting_message_says_so_without_a_time() -> None:
    assert timeline(message(state="queued", ended_at=None))[-1] == (None, "the message is queued")


def test_an_effect_without_result_is_unknown() -> None:
    open_effect = {"call_id": "c", "name": "pay", "class": "once", "state": "begun", "attempt": 1, "begun_at": 2.0, "done_at": None}  # fmt: skip
    told = text(message(turn=turn(effects=[open_effect])))
    assert "effect pay c (once) begun (attempt 1)" in told
    assert told[-1] == "effect pay c has no result: its outcome is unknown"


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"state": "sent", "attempts": 2, "parts": '["x","y"]'}, "reply delivered at attempt 2 as x, y"),
        (
            {"state": "sent", "attempts": 1, "marked": True},
            "reply delivered at attempt 1, marked as a possible repetition",
        ),
        ({"state": "dead", "attempts": 5, "error": "blocked"}, "reply failed: dead letter after 5 attempts: blocked"),
        ({"state": "dead", "attempts": 1, "error": "blocked"}, "reply failed: dead letter after 1 attempt: blocked"),
        ({"state": "pending", "attempts": 1, "error": "slow", "ended_at": None}, "reply is pending at attempt 1: slow"),
    ],
)
def test_a_delivery_has_its_state_and_reason(changed: Json, told: str) -> None:
    assert told in text(message(replies=[reply(**changed)]))


@pytest.mark.parametrize(
    ("state", "why", "told"),
    [
        ("withdrawn", "/new", "the message was withdrawn: the user reset the conversation (/new)"),
        ("dead", "queue_full", "the message failed: dead letter: too many messages were queued"),
        ("dead", "the model is gone", "the message failed: dead letter: the model is gone"),
    ],
)
def test_an_end_has_its_reason(state: str, why: str, told: str) -> None:
    assert text(message(state=state, why=why))[-1] == told


def test_an_interrupted_turn_tells_why_it_waits() -> None:
    told = text(
        message(state="claimed", ended_at=None, turn=turn(state="interrupted", reason="restart_timeout", ended_at=None))
    )
    assert told[-2:] == [
        "turn 7 is interrupted: cut off by a restart after its drain timeout (restart_timeout)",
        "the message is being answered",
    ]


def test_an_unclean_end_comes_after_what_its_attempt_did() -> None:
    """It is dated by the last heartbeat, which may lie before the attempt."""
    dated = turn(steps=[{"seq": 2, "role": "assistant", "attempt": 1, "at": 3.0}])
    dated["attempts"][0]["ended_at"] = 0.5
    told = timeline(message(turn=dated))
    assert (3.0, "attempt 1 ended: the gateway ended while it was running") in told
    assert [at for at, _ in told] == sorted(at for at, _ in told if at is not None)
    assert told.index((3.0, "step 2: model response stored (attempt 1)")) == 3


@pytest.mark.parametrize(("action", "told"), [("mark_sent", "the reply was marked as delivered"), ("drop", "dropped")])
def test_an_operators_action_names_the_operator(action: str, told: str) -> None:
    done = [{"action": action, "actor": "owner", "at": 20.0}, {"action": action, "actor": "bot", "at": 21.0}]
    assert text(message(actions=done))[-2:] == [f"{told} by the owner", f"{told} by bot"]


def test_usage_failures_and_approval_requests_of_a_turn_are_listed() -> None:
    usage = {"requests": 2, "input_tokens": 900, "output_tokens": 40, "cached_tokens": 800, "cost": 0.0125}
    failed = {"attempt": 1, "kind": "overloaded", "why": "503", "wait_s": 2.0, "at": 2.0}
    compaction = {"attempt": 2, "kind": "compaction", "why": "no summary", "wait_s": 0.0, "at": 6.0}
    asked = {"id": "5", "call_id": "c", "tool": "shell", "request": "?", "state": "approved", "asked_at": 3.0,
             "answered_at": 4.5, "answered_by": "fake:ann"}  # fmt: skip
    told = text(message(turn=turn(usage=usage, failures=[failed, compaction], approvals=[asked])))
    assert "model call failed (overloaded): 503; tried again after 2 s (attempt 1)" in told
    assert "compaction failed: no summary (attempt 2)" in told
    assert told.index("approval request 5 sent: may shell be used?") < told.index(
        "approval request 5 approved by fake:ann"
    )
    assert told.index("    ?") == told.index("approval request 5 sent: may shell be used?") + 1
    assert "used in total: 2 model requests, 900 tokens in (800 cached), 40 out, costs 0.0125" in told


def test_a_lost_model_call_is_listed_and_whether_it_was_repeated() -> None:
    usage = {"requests": 2, "input_tokens": 900, "output_tokens": 40, "cached_tokens": 0, "cost": None}
    lost = {"attempt": 1, "kind": "lost", "why": "never stored", "wait_s": 0.0, "at": 3.0}
    told = text(message(turn=turn(usage=usage, failures=[lost])))
    assert "model call lost: never stored; repeated (attempt 1)" in told
    assert "used in total: 2 model requests (1 lost), 900 tokens in, 40 out" in told
    last = text(message(turn=turn(usage=usage, failures=[lost | {"attempt": 2}])))
    assert "model call lost: never stored (attempt 2)" in last
