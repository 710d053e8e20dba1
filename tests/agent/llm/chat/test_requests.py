"""What our client sends is, byte for byte, what pydantic-ai and OpenAI's SDK sent: a session that they began keeps its cached prompt."""

import json
from itertools import pairwise
from typing import Any

import pytest

from everturn.agent.llm.chat.requests import ChatOptions, chat_body, chat_messages
from everturn.agent.llm.freezing import FrozenTool
from everturn.agent.llm.rendering import Anchored, Picture, Said, UserSaid, rendered
from everturn.agent.llm.replies import ModelInput
from everturn.model import Message, RowOutcome, ToolCall
from tests.agent.llm.chat.recorded import STREAMS, streaming, theirs

CALLS = (ToolCall("a", "write", '{"line": "1",  "n": 1.50}'), ToolCall("b", "look", ""), ToolCall("c", "look", '{"x"'))
TOOLS = [
    FrozenTool("write", "write a line", {"type": "object", "properties": {"line": {"type": "string"}}, "required": ["line"]}),
    FrozenTool("look", "", {"type": "object", "title": "Look", "properties": {"at": {"type": "string", "default": "x"}}}),
]  # fmt: skip


def row(role: str, content: str = "", **more: Any) -> Message:
    return Message(role=role, content=content, **more)


def kept(*parts: dict[str, Any], provider: str = "openai") -> str:
    """Parts as pydantic-ai's clients stored them."""
    return json.dumps({"parts": parts, "provider": provider}, sort_keys=True, separators=(",", ":"))


def text(content: str) -> dict[str, Any]:
    return {"content": content, "part_kind": "text"}


def thought(content: str, field: str | None = "reasoning_content", provider: str | None = "openai") -> dict[str, Any]:
    said = {"content": content, "id": field, "part_kind": "thinking", "provider_name": provider}
    return {name: value for name, value in said.items() if value is not None}


def call(call_id: str, args: Any = "{}", **more: Any) -> dict[str, Any]:
    return {"args": args, "part_kind": "tool-call", "tool_call_id": call_id, "tool_name": "look", **more}


LOOK = (ToolCall("a", "look", "{}"),)
SIGNED = {"provider_name": "openai", "provider_details": {"extra_content": {"google": {"thought_signature": "c2ln"}}}}
FOREIGN = SIGNED | {"provider_name": "anthropic"}
RESULT = row("tool", "seen", call_id="a")
ANSWERS: dict[str, list[Message]] = {
    "plain": [row("assistant", "hi")],
    "calls": [row("assistant", "I do", calls=CALLS), *(row("tool", f"did {each}", call_id=each) for each in "cab")],
    "results that answer nothing": [row("assistant", "", calls=LOOK), RESULT, row("tool", "other", call_id="zz")],
    "the same id twice": [row("assistant", "", calls=LOOK * 2), RESULT, RESULT],
    "a thought": [row("assistant", "hi", extra=kept(thought("hm"), text("hi")))],
    "thoughts around a text": [row("assistant", "1\n\n2", extra=kept(thought("a"), text("1"), thought("b"), text("2")))],
    "a thought of a tag": [row("assistant", "hi", extra=kept(thought("hm", "content"), text("hi")))],
    "a thought of nobody": [row("assistant", "hi", extra=kept(thought("hm", None), text("hi")))],
    "a thought of another provider": [row("assistant", "hi", extra=kept(thought("hm", provider="x"), text("hi")))],
    "a thought and a call": [row("assistant", calls=LOOK, extra=kept(thought("hm"), call("a"))), RESULT],
    "thoughts in two fields": [row("assistant", "hi", extra=kept(thought("a"), thought("b", "reasoning"), text("hi")))],
    "only a thought": [row("assistant", "", extra=kept(thought("hm")))],
    "a call without a thought behind one with it": [
        row("assistant", calls=LOOK, extra=kept(thought("hm"), call("a"))), RESULT,
        row("assistant", calls=(ToolCall("b", "look", "{}"),)), row("tool", "more", call_id="b"),
    ],
    "a call with an object": [row("assistant", calls=LOOK, extra=kept(call("a", {"x": [1, None, "ü"]}))), RESULT],
    "a call without arguments": [row("assistant", calls=LOOK, extra=kept(call("a", None))), RESULT],
    "a signature": [row("assistant", calls=LOOK, extra=kept(call("a", **SIGNED))), RESULT],
    "a signature of another provider": [row("assistant", calls=LOOK, extra=kept(call("a", **FOREIGN))), RESULT],
    "parts of another protocol": [
        row("assistant", "hi", extra=kept(
            {"part_kind": "builtin-tool-call", "tool_name": "web_search", "tool_call_id": "w", "args": "{}"}, text("hi"),
        )),
    ],
    "parts of another provider": [row("assistant", "hi", extra=kept(thought("hm"), text("hi"), provider="anthropic"))],
    "parts that call something else": [row("assistant", calls=LOOK, extra=kept(thought("hm"), call("z"))), RESULT],
    "damaged parts": [row("assistant", "hi", extra=kept({"part_kind": "nothing"}))],
    "damaged text": [row("assistant", "hi", extra=kept({"part_kind": "text", "content": 5}))],
    "no JSON": [row("assistant", "hi", extra="{")],
    "a stopped answer": [row("assistant", "hal", outcome=RowOutcome.STOPPED)],
    "an empty answer": [row("assistant", "")],
    "odd numbers": [
        row("assistant", calls=(ToolCall("a", "look", '{"n":[1e5,1.0,-0.0,123456789012345678901234567890,1e-9]}'),)), RESULT,
    ],
    "odd characters": [row("assistant", '\u2028 \x7f \x00 </script> \\ " 👋', calls=(ToolCall("a", "look", '{"t":"\\u2028\\u0000é👋"}'),)), RESULT],
}  # fmt: skip


def conversation(answers: list[Message]) -> list[Said]:
    rows = [row("user", "hello"), *answers, row("user", "and now?", author="Ann")]
    return rendered([*rows[:-1], rows[-1]], "You help.", "openai", Anchored("NOTE", len(rows)))


async def sent_by_the_library(asked: ModelInput, *, own_server: bool, **settings: Any) -> bytes:
    async with streaming(STREAMS["openai_text"]) as server:
        model = theirs(server, own_server=own_server, **settings)
        await model.ask(asked, lambda _: None)
        await model.close()
        return server.connections[0].bodies[0]


@pytest.mark.parametrize("name", ANSWERS)
async def test_a_conversation_is_sent_as_it_was(name: str) -> None:
    asked = ModelInput(conversation(ANSWERS[name]), TOOLS, "s1")
    body = chat_body(asked, ChatOptions("gpt-4o", None, own_server=True))
    assert body.decode() == (await sent_by_the_library(asked, own_server=True)).decode()


@pytest.mark.parametrize("own_server", [True, False])
@pytest.mark.parametrize("tools", [[], TOOLS])
@pytest.mark.parametrize("max_tokens", [None, 7])
async def test_the_settings_are_sent_as_they_were(own_server: bool, tools: list[FrozenTool], max_tokens: int | None) -> None:  # noqa: FBT001  # fmt: skip
    asked = ModelInput(conversation(ANSWERS["calls"]), tools, "s1")
    settings: dict[str, Any] = {} if max_tokens is None else {"max_tokens": max_tokens}
    if not own_server:
        settings["openai_prompt_cache_key"] = "s1"
    body = chat_body(asked, ChatOptions("gpt-4o", max_tokens, own_server=own_server))
    assert body.decode() == (await sent_by_the_library(asked, own_server=own_server, **settings)).decode()


async def test_pictures_are_sent_as_they_were() -> None:
    pictures = [Picture(b"\x89PNG\r\n\x1a\n", "image/png"), Picture(b"RIFF", "image/webp")]
    asked = ModelInput([UserSaid("what is this?", pictures), UserSaid("well?")], (), "s1")
    body = chat_body(asked, ChatOptions("gpt-4o", None, own_server=True))
    assert body.decode() == (await sent_by_the_library(asked, own_server=True)).decode()


@pytest.mark.parametrize("name", [name for name in ANSWERS if name not in {"a call without a thought behind one with it", "a thought and a call"}])  # fmt: skip
def test_each_request_begins_with_the_one_before(name: str) -> None:
    """The two left out are sent with an empty thought until the user writes again: a provider demands it."""
    rows = [row("user", "hello"), *ANSWERS[name], row("user", "and?"), row("assistant", "so"), row("user", "now")]
    asked = [chat_messages(rendered(rows[:count], "You help.", "openai")) for count in (1, len(rows) - 2, len(rows))]
    assert all(later[: len(earlier)] == earlier for earlier, later in pairwise(asked))
