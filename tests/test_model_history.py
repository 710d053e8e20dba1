"""The checker of model requests finds each planted fault."""

import json
from typing import Any

import pytest

from everturn.model import Message, ToolCall
from everturn.testing.model import LoggedRequest
from tests.model_history import model_problems

NOTE = "[System note: you were cut off.]"
ROWS = [
    Message(role="user", content="go"),
    Message(role="assistant", content="", calls=(ToolCall("c1", "write", '{"line": "1"}'),)),
    Message(role="tool", content="wrote 1", call_id="c1"),
    Message(role="assistant", content="done"),
]
GO = {"role": "user", "content": "go"}
CALL = {"id": "c1", "type": "function", "function": {"name": "write", "arguments": '{"line":"1"}'}}
STEP = {"role": "assistant", "content": None, "tool_calls": [CALL]}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "wrote 1"}


def requests(*conversations: list[dict[str, Any]], tools: tuple[str, ...] = ()) -> list[LoggedRequest]:
    names = [*tools, *[""] * len(conversations)]
    return [
        LoggedRequest(number, json.dumps({"messages": each, "tools": names[number - 1]}, separators=(",", ":")), None)
        for number, each in enumerate(conversations, start=1)
    ]


def noted(text: str = "") -> dict[str, Any]:
    return {"role": "user", "content": f"{NOTE}\n\n{text}" if text else NOTE}


@pytest.mark.parametrize(
    "scenario",
    [
        [[GO], [GO, STEP, RESULT]],
        [[GO], [noted("go")], [noted("go"), STEP, RESULT]],
        [[GO], [GO, STEP, RESULT, noted()]],
    ],
)
def test_an_honest_history_has_no_problems(scenario: list[list[dict[str, Any]]]) -> None:
    assert model_problems(requests(*scenario), ROWS) == []


@pytest.mark.parametrize(
    ("scenario", "problem"),
    [
        ([[GO, STEP, RESULT], [GO]], "asks for a step again"),
        ([[{"role": "user", "content": "gone"}]], "is not the transcript"),
        ([[GO, STEP], [noted("go"), STEP, RESULT, noted()]], "has 2 notes"),
        ([[GO], [{"content": "go", "role": "user"}, STEP, RESULT]], "does not begin as"),
    ],
)
def test_a_broken_promise_is_seen(scenario: list[list[dict[str, Any]]], problem: str) -> None:
    assert any(problem in each for each in model_problems(requests(*scenario), ROWS))


def test_other_tools_are_seen() -> None:
    (found,) = model_problems(requests([GO], [GO, STEP, RESULT], tools=("a", "b")), ROWS)
    assert "offers other tools" in found
