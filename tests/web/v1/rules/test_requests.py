"""Requests in the OpenAI format: parsing, session input, and errors with the parameter's name."""

import json
from typing import Any

import pytest

from everturn.model import Message, ToolCall
from everturn.web.v1.rules import (
    REFUSED,
    MalformedRequest,
    fingerprint,
    read_chat,
    read_response,
    to_session,
    to_standalone,
)
from tests.house import ROOT

USER = {"role": "user", "content": "hello"}
CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
CALLED = {"role": "assistant", "content": None, "tool_calls": [CALL]}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "rain"}
LOOK = {"name": "look", "description": "looks", "parameters": {"type": "object"}}


def chat(*messages: Any, **more: Any) -> bytes:
    return json.dumps({"model": "main", "messages": messages or [USER], **more}).encode()


def response(given: Any = "hello", **more: Any) -> bytes:
    return json.dumps({"model": "main", "input": given, **more}).encode()


def test_a_chat_is_read_with_its_instructions_apart() -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    asked = read_chat(
        chat({"role": "system", "content": "be brief"}, {"role": "developer", "content": "be kind"},
             {"role": "user", "content": parts}, stream=True, stream_options={"include_usage": True}, user="ann")
    )  # fmt: skip
    assert (asked.instructions, asked.rows) == ("be brief\n\nbe kind", (Message(role="user", content="one\ntwo"),))
    assert (asked.stream, asked.include_usage, asked.session, asked.store) == (True, True, "ann", True)


def test_both_ways_of_writing_a_conversation_are_the_same() -> None:
    items = [
        {"role": "user", "content": [{"type": "input_text", "text": "hello"}]},
        {"type": "reasoning", "summary": []},
        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "rain"},
    ]
    rows = read_response(response(items)).rows
    assert rows == read_chat(chat(USER, CALLED, RESULT)).rows
    assert rows[1].calls == (ToolCall("c1", "look", "{}"),)


def test_calls_that_were_made_together_stand_together() -> None:
    calls = [{"type": "function_call", "call_id": each, "name": "look", "arguments": "{}"} for each in ("a", "b")]
    results = [{"type": "function_call_output", "call_id": each, "output": "x"} for each in ("a", "b")]
    rows = read_response(response([USER, *calls, *results])).rows
    assert [len(row.calls) for row in rows] == [0, 2, 0, 0]


def test_functions_are_offered_unless_none_is_wanted() -> None:
    nested = [{"type": "function", "function": LOOK}]
    assert read_chat(chat(tools=nested)).tools == read_response(response(tools=[{"type": "function", **LOOK}])).tools
    assert read_chat(chat(tools=nested)).tools[0].parameters == {"type": "object"}
    assert read_chat(chat(tools=nested, tool_choice="none")).tools == ()


def test_a_call_that_stands_alone_brings_its_whole_history() -> None:
    said = to_standalone(read_chat(chat(USER, {"role": "assistant", "content": "hi"}, USER)), "messages")
    assert ([row.role for row in said.rows], said.text) == (["user", "assistant"], "hello")
    results = to_standalone(read_chat(chat(USER, CALLED, RESULT)), "messages")
    assert ([row.role for row in results.rows], results.text) == (["user", "assistant", "tool"], "")


def test_a_session_gets_only_what_came_after_its_last_answer() -> None:
    said = to_session(read_chat(chat(USER, {"role": "assistant", "content": "hi"}, USER, USER)))
    assert ([row.role for row in said.rows], said.text) == (["user"], "hello")
    assert to_session(read_chat(chat(USER, CALLED, RESULT))).rows[0].call_id == "c1"
    assert to_session(read_chat(chat(RESULT))).text == ""


SYSTEM = {"role": "system", "content": "be brief"}
PLAIN = [USER, {"role": "assistant", "content": "hi"}, {"role": "user", "content": "é\\ and \t\u2028"}]


@pytest.mark.parametrize("before", [[], [SYSTEM], [SYSTEM, {"role": "developer", "content": "be kind"}]])
@pytest.mark.parametrize("last", [1, 2, 3])
def test_plain_messages_mean_what_others_mean(last: int, before: list[dict[str, str]]) -> None:
    """They are read in another way, which takes a fifth of the time."""
    given = [*before, *[*PLAIN, *PLAIN][:-last], *before, USER]
    plain, named = read_chat(chat(*given)), read_chat(chat(*({**each, "name": "ann"} for each in given)))
    assert to_standalone(plain, "messages") == to_standalone(named, "messages")
    assert to_session(plain) == to_session(named)
    assert (plain.instructions, plain.model, plain.tools) == (named.instructions, named.model, named.tools)


def test_instructions_alone_are_nothing_to_answer() -> None:
    with pytest.raises(MalformedRequest, match="the last of messages"):
        read_chat(chat(SYSTEM))


def test_a_result_without_its_call_is_refused_where_nothing_came_before() -> None:
    with pytest.raises(MalformedRequest, match="no such call"):
        to_standalone(read_chat(chat(USER, RESULT)), "messages")


def test_the_fingerprint_is_that_of_what_is_asked() -> None:
    first = fingerprint("chat", "s", b'{"a": 1, "b": 2}')
    assert first == fingerprint("chat", "s", b'{"b":2,"a":1,"stream":true}')
    others = [("responses", "s", b'{"a":1,"b":2}'), ("chat", "t", b'{"a":1,"b":2}'), ("chat", "s", b'{"a":1,"b":3}')]
    assert first not in {fingerprint(*each) for each in others}


MALFORMED: list[tuple[bytes, str | None]] = [
    (b"", None),
    (b"{", None),
    (b"[]", None),
    (b'{"model": "main", "messages": [{"role": "user", "content": "\xff"}]}', None),
    (b"[" * 100_000, None),
    (b'{"messages": [{"role": "user", "content": "x"}]}', "model"),
    (chat(model=3), "model"),
    (chat(messages=[]), "messages"),
    (chat(messages="hello"), "messages"),
    (chat("hello"), "messages[0]"),
    (chat({"role": "friend", "content": "x"}), "messages[0].role"),
    (chat({"role": "user"}), "messages[0].content"),
    (chat({"role": "user", "content": " "}), "messages[0].content"),
    (chat({"role": "user", "content": "a\x00b"}), "messages[0].content"),
    (chat({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}), "messages[0].content[0]"),
    (chat({"role": "user", "content": [{"type": "text"}]}), "messages[0].content[0]"),
    (chat(USER, {"role": "assistant", "content": ""}, USER), "messages[1]"),
    (chat(USER, {"role": "assistant", "content": "x"}), "messages"),
    (chat({"role": "system", "content": "x"}), "messages"),
    (chat(USER, {"role": "assistant", "tool_calls": ["x"]}, USER), "messages[1].tool_calls[0]"),
    (chat(USER, {"role": "assistant", "tool_calls": [{**CALL, "id": ""}]}, USER), "messages[1].tool_calls[0].id"),
    (chat({"role": "tool", "content": "x"}), "messages[0].tool_call_id"),
    (chat(stream="yes"), "stream"),
    (chat(stream_options=[1]), "stream_options"),
    (chat(user=7), "user"),
    (chat(metadata={"a": 1}), "metadata"),
    (chat(tools=[{"type": "web_search"}]), "tools[0].type"),
    (chat(tools=[{"type": "function", "function": {"name": "no spaces"}}]), "tools[0].name"),
    (chat(tools=[{"type": "function", "function": {**LOOK, "parameters": []}}, 1]), "tools[1].type"),
    (chat(n=2), "n"),
    (chat(logprobs=True), "logprobs"),
    (chat(stop=["x"]), "stop"),
    (chat(response_format={"type": "json_object"}), "response_format"),
    (chat(tool_choice="required"), "tool_choice"),
    (chat(functions=[LOOK]), "functions"),
    (chat(modalities=["text", "audio"]), "modalities"),
]


@pytest.mark.parametrize(("body", "param"), MALFORMED)
def test_what_is_wrong_is_named(body: bytes, param: str | None) -> None:
    with pytest.raises(MalformedRequest) as error:
        read_chat(body)
    assert error.value.param == param


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (response([]), "input"),
        (response(3), "input"),
        (response([{"type": "item_reference", "id": "x"}]), "input[0]"),
        (response([{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]), "input[0].content[0]"),
        (response(previous_response_id=1), "previous_response_id"),
        (response(background=True), "background"),
        (response(conversation="c"), "conversation"),
        (response(text={"format": {"type": "json_schema"}}), "text"),
    ],
)
def test_what_is_wrong_with_a_response_is_named(body: bytes, param: str) -> None:
    with pytest.raises(MalformedRequest) as error:
        read_response(body)
    assert error.value.param == param


def test_asking_for_what_happens_anyway_is_fine() -> None:
    fine = {"n": 1, "logprobs": False, "stop": None, "response_format": {"type": "text"}, "tool_choice": "auto"}
    assert read_chat(chat(**fine, temperature=0.5, an_unknown_one=1)).model == "main"
    assert read_response(response(text={"format": {"type": "text"}}, background=False)).model == "main"


IGNORED = (  # the owner's settings of the agent decide
    "temperature", "top_p", "presence_penalty", "frequency_penalty", "logit_bias", "seed", "max_tokens",
    "max_completion_tokens", "max_output_tokens", "max_tool_calls", "parallel_tool_calls", "reasoning",
    "reasoning_effort", "verbosity", "service_tier", "prediction", "truncation", "include", "prompt_cache_key",
    "safety_identifier",
)  # fmt: skip


def test_every_parameter_that_is_not_honoured_is_documented() -> None:
    page = (ROOT / "docs" / "howto" / "openai.md").read_text(encoding="utf-8")
    assert [name for name in (*IGNORED, *REFUSED) if f"`{name}`" not in page] == []
