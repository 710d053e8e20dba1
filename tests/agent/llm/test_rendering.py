"""From rows to what a model reads: deterministic, paired, and only as much from the provider's own parts as is sound."""

from typing import Any

import pytest
from pydantic_ai.messages import ModelMessagesTypeAdapter, ModelResponse, TextPart, ThinkingPart, ToolCallPart

from everturn.agent.llm.library import answer_of, library_messages
from everturn.agent.llm.rendering import Anchored, ModelSaid, Said, SystemSaid, ToolSaid, UserSaid, rendered
from everturn.agent.llm.replies import ModelAnswer, as_kept, call_part, extra_of, valid_arguments
from everturn.agent.rules import CallOutcome
from everturn.model import Message, RowOutcome, ToolCall, Usage

CALL = ToolCall("c1", "write", '{"line":"1"}')
THOUGHT = ThinkingPart(content="hm", signature="sig", provider_name="anthropic")


def row(role: str, content: str, seq: int = 1, author: str | None = None) -> Message:
    return Message(role=role, content=content, seq=seq, author=author)


def texts_of(said: list[Said]) -> list[str]:
    return [each.text for each in said]


def library_parts(said: list[Said]) -> list[tuple[str, object]]:
    """The same as the library gets it."""
    parts = [part for message in library_messages(said) for part in message.parts]
    return [(part.part_kind, getattr(part, "content", None)) for part in parts]


def test_a_conversation_is_rendered_with_its_system_prompt_in_front() -> None:
    rows = [row("user", "hi"), Message(role="assistant", content="", calls=(CALL,)), Message(role="tool", content="ok", call_id="c1")]  # fmt: skip
    said = rendered(rows, "be brief", "openai")
    assert said == [SystemSaid("be brief"), UserSaid("hi"), ModelSaid("", (CALL,)), ToolSaid("c1", "write", "ok")]
    assert library_parts(said) == [
        ("system-prompt", "be brief"), ("user-prompt", "hi"), ("tool-call", None), ("tool-return", "ok"),
    ]  # fmt: skip


def test_authors_precede_words_summaries_are_marked_and_empty_words_are_said_to_be_empty() -> None:
    rows = [row("summary", "they met"), row("user", "hi", author="Ann]\n"), row("user", "")]
    first, *others = texts_of(rendered(rows, "", "openai"))
    assert first.endswith("\n\nthey met")
    assert others == ["[Ann)] hi", "(a message without text)"]


def test_the_model_sees_that_an_answer_was_stopped_and_the_row_stays_clean() -> None:
    stopped = Message(role="assistant", content="half an ans", seq=2, outcome=RowOutcome.STOPPED)
    first, answer, mark, then = rendered([row("user", "one"), stopped, row("user", "two", 3)], "", "openai")
    assert (first, answer, then) == (UserSaid("one"), ModelSaid("half an ans", ()), UserSaid("two"))
    assert isinstance(mark, UserSaid)
    assert "stopped" in mark.text


def test_the_note_precedes_the_words_or_stands_behind_the_results() -> None:
    rows = [row("user", "one"), row("assistant", "1"), row("user", "two", author="Ann")]
    assert rendered(rows, "", "x", Anchored("NOTE", 3))[-1] == UserSaid("NOTE\n\n[Ann] two")
    asked = [row("user", "go"), Message(role="assistant", content="", calls=(CALL,)), Message(role="tool", content="ok", call_id="c1")]  # fmt: skip
    with_more = [*asked, row("assistant", "later")]
    assert texts_of(rendered(asked, "", "x", Anchored("NOTE", 3)))[2:] == ["ok", "NOTE"]
    assert texts_of(rendered(with_more, "", "x", Anchored("NOTE", 3)))[2:4] == ["ok", "NOTE"]
    assert "NOTE" not in str(rendered(with_more, "", "x"))


def kept_row(response: ModelResponse, extra: str | None = None) -> Message:
    answer = answer_of(response)
    calls = tuple(ToolCall(part["tool_call_id"], part["tool_name"], part["args"]) for part in answer.calls)
    return Message(
        role="assistant", content=answer.text, calls=calls, extra=extra or extra_of(answer, answer.text, calls)
    )


def test_a_plain_response_needs_nothing_but_the_transcript() -> None:
    response = ModelResponse(parts=[TextPart("hi"), ToolCallPart("write", "{}", "c1")], provider_name="openai")
    assert kept_row(response).extra is None


def test_a_providers_own_parts_come_back_byte_for_byte() -> None:
    response = ModelResponse(parts=[THOUGHT, TextPart("hi")], provider_name="anthropic")
    rows = [row("user", "x"), kept_row(response)]
    first, second = (library_messages(rendered(rows, "", "anthropic"))[1].parts for _ in range(2))
    dumped = [ModelMessagesTypeAdapter.dump_json([ModelResponse(parts=parts, timestamp=response.timestamp)]) for parts in (first, second, response.parts)]  # type: ignore[arg-type]  # fmt: skip
    assert dumped[0] == dumped[1] == dumped[2]


@pytest.mark.parametrize("extra", ["{", "[]", '{"provider":"anthropic"}', '{"provider":"anthropic","parts":[{"x":1}]}'])
def test_damaged_parts_are_replaced_by_what_the_transcript_says(extra: str) -> None:
    kept = Message(role="assistant", content="hi", extra=extra)
    assert library_parts(rendered([row("user", "x"), kept], "", "anthropic"))[1:] == [("text", "hi")]


def test_another_providers_parts_are_not_sent() -> None:
    kept = kept_row(ModelResponse(parts=[THOUGHT, TextPart("hi")], provider_name="anthropic"))
    assert rendered([row("user", "x"), kept], "", "openai")[1:] == [ModelSaid("hi", ())]


def answer(*parts: dict[str, Any]) -> ModelAnswer:
    return ModelAnswer(parts, "openai", CallOutcome.ANSWERED, Usage())


def test_every_call_gets_an_id_of_its_own() -> None:
    calls = [call_part("write", "{}", call_id) for call_id in ("a", "a", "used", "x" * 99, "")]
    kept = as_kept(answer(*calls), {"used", "t-1-2"}, "t-1")
    assert [part["tool_call_id"] for part in kept.calls] == ["a", "t-1-1", "t-1-2_", "t-1-3", "t-1-4"]


def test_text_behind_another_part_is_a_paragraph_of_its_own() -> None:
    texts = [{"part_kind": "text", "content": content} for content in ("one", " more", "two")]
    thought = {"part_kind": "thinking", "content": "hm"}
    assert answer(*texts[:2], thought, texts[2]).text == "one more\n\ntwo"
    assert answer().text == ""


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
