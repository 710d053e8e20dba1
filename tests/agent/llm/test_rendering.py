"""From rows to a provider's messages: deterministic, paired, and only as much from the provider's own parts as is sound."""

import pytest
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelResponse,
    TextPart,
    ThinkingPart,
    ToolCallPart,
)

from everturn.agent.llm.rendering import Anchored, as_kept, extra_of, rendered, valid_arguments
from everturn.model import Message, RowOutcome, ToolCall

CALL = ToolCall("c1", "write", '{"line":"1"}')
THOUGHT = ThinkingPart(content="hm", signature="sig", provider_name="anthropic")


def parts_of(messages: list[ModelMessage]) -> list[tuple[str, object]]:
    return [(part.part_kind, getattr(part, "content", None)) for message in messages for part in message.parts]


def row(role: str, content: str, seq: int = 1, author: str | None = None) -> Message:
    return Message(role=role, content=content, seq=seq, author=author)


def test_a_conversation_is_rendered_with_its_system_prompt_in_front() -> None:
    rows = [row("user", "hi"), Message(role="assistant", content="", calls=(CALL,)), Message(role="tool", content="ok", call_id="c1")]  # fmt: skip
    messages = rendered(rows, "be brief", "openai")
    assert parts_of(messages) == [
        ("system-prompt", "be brief"), ("user-prompt", "hi"), ("tool-call", None), ("tool-return", "ok"),
    ]  # fmt: skip
    assert messages[-1].parts[0].tool_name == "write"  # type: ignore[union-attr]


def test_authors_precede_words_summaries_are_marked_and_empty_words_are_said_to_be_empty() -> None:
    rows = [row("summary", "they met"), row("user", "hi", author="Ann]\n"), row("user", "")]
    contents = [content for _, content in parts_of(rendered(rows, "", "openai"))]
    assert str(contents[0]).endswith("\n\nthey met")
    assert contents[1:] == ["[Ann)] hi", "(a message without text)"]


def test_the_model_sees_that_an_answer_was_stopped_and_the_row_stays_clean() -> None:
    stopped = Message(role="assistant", content="half an ans", seq=2, outcome=RowOutcome.STOPPED)
    first, answer, mark, then = parts_of(rendered([row("user", "one"), stopped, row("user", "two", 3)], "", "openai"))
    assert (first, answer, then) == (("user-prompt", "one"), ("text", "half an ans"), ("user-prompt", "two"))
    assert mark[0] == "user-prompt"
    assert "stopped" in str(mark[1])


def test_the_note_precedes_the_words_or_stands_behind_the_results() -> None:
    rows = [row("user", "one"), row("assistant", "1"), row("user", "two", author="Ann")]
    assert parts_of(rendered(rows, "", "x", Anchored("NOTE", 3)))[-1] == ("user-prompt", "NOTE\n\n[Ann] two")
    asked = [row("user", "go"), Message(role="assistant", content="", calls=(CALL,)), Message(role="tool", content="ok", call_id="c1")]  # fmt: skip
    with_more = [*asked, row("assistant", "later")]
    assert parts_of(rendered(asked, "", "x", Anchored("NOTE", 3)))[2:] == [
        ("tool-return", "ok"),
        ("user-prompt", "NOTE"),
    ]
    assert parts_of(rendered(with_more, "", "x", Anchored("NOTE", 3)))[2:4] == [
        ("tool-return", "ok"), ("user-prompt", "NOTE"),
    ]  # fmt: skip
    assert "NOTE" not in str(rendered(with_more, "", "x"))


def kept_row(response: ModelResponse, extra: str | None = None) -> Message:
    text = response.text or ""
    calls = tuple(
        ToolCall(part.tool_call_id, part.tool_name, part.args_as_json_str())
        for part in response.parts
        if isinstance(part, ToolCallPart)
    )
    return Message(role="assistant", content=text, calls=calls, extra=extra or extra_of(response, text, calls))


def test_a_plain_response_needs_nothing_but_the_transcript() -> None:
    response = ModelResponse(parts=[TextPart("hi"), ToolCallPart("write", "{}", "c1")], provider_name="openai")
    assert kept_row(response).extra is None


def test_a_providers_own_parts_come_back_byte_for_byte() -> None:
    response = ModelResponse(parts=[THOUGHT, TextPart("hi")], provider_name="anthropic")
    kept = kept_row(response)
    rows = [row("user", "x"), kept]
    first, second = (rendered(rows, "", "anthropic")[1].parts for _ in range(2))
    dumped = [ModelMessagesTypeAdapter.dump_json([ModelResponse(parts=parts, timestamp=response.timestamp)]) for parts in (first, second, response.parts)]  # type: ignore[arg-type]  # fmt: skip
    assert dumped[0] == dumped[1] == dumped[2]


@pytest.mark.parametrize("extra", ["{", "[]", '{"provider":"anthropic"}', '{"provider":"anthropic","parts":[{"x":1}]}'])
def test_damaged_parts_are_replaced_by_what_the_transcript_says(extra: str) -> None:
    kept = Message(role="assistant", content="hi", extra=extra)
    assert parts_of(rendered([row("user", "x"), kept], "", "anthropic"))[1:] == [("text", "hi")]


def test_another_providers_parts_are_not_sent() -> None:
    kept = kept_row(ModelResponse(parts=[THOUGHT, TextPart("hi")], provider_name="anthropic"))
    assert parts_of(rendered([row("user", "x"), kept], "", "openai"))[1:] == [("text", "hi")]


def test_every_call_gets_an_id_of_its_own() -> None:
    calls = [ToolCallPart("write", "{}", call_id) for call_id in ("a", "a", "used", "x" * 99, "")]
    kept = as_kept(ModelResponse(parts=calls), {"used", "t-1-2"}, "t-1")
    assert [part.tool_call_id for part in kept.parts if isinstance(part, ToolCallPart)] == [
        "a", "t-1-1", "t-1-2_", "t-1-3", "t-1-4",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("said", "sent"),
    [
        ('{"a":1}', '{"a":1}'),
        ("", "{}"),
        ('{"a":', '{"INVALID_JSON": "{\\"a\\":"}'),
        ("[1]", '{"INVALID_JSON": "[1]"}'),
    ],
)
def test_arguments_in_a_history_are_always_an_object(said: str, sent: str) -> None:
    assert valid_arguments(said) == sent
