"""The body of a chat completion request, as OpenAI's API takes it. Pure: the same conversation gives the same bytes.

Each request of a session begins with the bytes of the one before, up to the end of its messages. They are the bytes that pydantic-ai
and OpenAI's SDK sent for the same rows, so that a session that began with those keeps what its provider has cached.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import Any

import msgspec

from everturn.agent.llm.chat.schemas import ToolSchema
from everturn.agent.llm.freezing import FrozenTool
from everturn.agent.llm.rendering import ModelSaid, Said, SystemSaid, ToolSaid, UserSaid
from everturn.agent.llm.replies import CALL, TEXT, ModelInput, valid_arguments
from everturn.model import ToolCall

PROVIDER = "openai"
THINKING = "thinking"
# Kinds of parts that another protocol of the same provider may have stored; here they are not sent back.
_ELSEWHERE = {"builtin-tool-call", "builtin-tool-return", "compaction", "file", "speech"}
_FIELDS = ("reasoning", "reasoning_content")  # in which servers send what a model thought
Sent = dict[str, Any]


class KeptText(msgspec.Struct, frozen=True, tag=TEXT, tag_field="part_kind"):
    """A part of the text."""

    content: str


class KeptThought(msgspec.Struct, frozen=True, tag=THINKING, tag_field="part_kind"):
    """What the model thought; `id` is the field it came in, or `content` if it stood in the text."""

    content: str
    id: str | None = None
    provider_name: str | None = None


class KeptCall(msgspec.Struct, frozen=True, tag=CALL, tag_field="part_kind"):
    """A call. `provider_details` may have what the provider wants back with it."""

    tool_name: str
    tool_call_id: str
    args: str | dict[str, Any] | None = None
    provider_name: str | None = None
    provider_details: dict[str, Any] | None = None


Kept = KeptText | KeptThought | KeptCall


@dataclass(frozen=True, slots=True)
class ChatOptions:
    """What a request says beside the conversation. OpenAI wants some things that compatible servers do not know."""

    model: str
    max_tokens: int | None = None
    own_server: bool = False


def chat_body(asked: ModelInput, options: ChatOptions) -> bytes:
    """The request's JSON."""
    messages = msgspec.Raw(asked.encoded) if asked.encoded else chat_messages(asked.messages)
    said: Sent = {"model": options.model, "stream": True, "messages": messages}
    if options.max_tokens is not None:
        said["max_tokens" if options.own_server else "max_completion_tokens"] = options.max_tokens
    if not options.own_server:
        said["prompt_cache_key"] = asked.session_id
    said["stream_options"] = {"include_usage": True}
    if asked.tools:
        said["tool_choice"] = "auto"
        said["tools"] = msgspec.Raw(_tools(msgspec.json.encode(asked.tools), exact=not options.own_server))
    return msgspec.json.encode(said)


@lru_cache(maxsize=32)
def _tools(tools: bytes, *, exact: bool) -> bytes:
    """The tools as they are sent. A session's tools are the same in each request: walking their schemas each time would cost more
    than all the rest.
    """
    return msgspec.json.encode([_tool(each, exact=exact) for each in msgspec.json.decode(tools, type=list[FrozenTool])])


def _tool(tool: FrozenTool, *, exact: bool) -> Sent:
    try:
        schema = ToolSchema(tool.parameters)
        sent, strict = schema.sent, exact and schema.strict
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
        sent, strict = dict(tool.parameters), False  # no JSON schema: what is wrong with it the provider says better
    function = {"name": tool.name, "description": tool.description, "parameters": sent}
    return {"type": "function", "function": function | ({"strict": True} if strict else {})}


def chat_messages(said: Sequence[Said], thoughts: Iterable[str] = ()) -> list[Sent]:
    """The messages of a request, or the last of them; `thoughts` are the fields in use in those before."""
    messages = earlier_messages(said)
    _fill_thoughts(messages, thoughts_in(messages).union(thoughts))
    return messages


def earlier_messages(said: Sequence[Said]) -> list[Sent]:
    """The messages of a request that a message of the user follows."""
    messages: list[Sent] = []
    calls: Sequence[ToolCall] = ()
    for is_answer, group in groupby(said, key=lambda each: isinstance(each, ModelSaid)):
        if not is_answer:
            messages += _between(group, calls)
            continue
        for each in group:
            if isinstance(each, ModelSaid):
                calls = each.calls
                messages += _answer(each)
    return messages


def thoughts_in(messages: Sequence[Sent]) -> set[str]:
    """The fields in which answers have what their model thought."""
    return {name for name in _FIELDS if any(name in each for each in messages if each["role"] == "assistant")}


def joined(messages: Iterable[Sent]) -> bytes:
    """Messages as JSON, side by side: a list of them without its brackets."""
    return b",".join(msgspec.json.encode(each) for each in messages)


def _between(group: Iterable[Said], calls: Sequence[ToolCall]) -> Iterator[Sent]:
    """What stands between two answers; the results in the order of the calls."""
    order = {call.id: place for place, call in reversed(list(enumerate(calls)))}
    every = list(group)
    results = sorted(
        (each for each in every if isinstance(each, ToolSaid) and each.call_id in order),
        key=lambda each: order[each.call_id],
    )
    for each in every:
        if isinstance(each, SystemSaid):
            yield {"role": "system", "content": each.text}
        elif isinstance(each, UserSaid):
            yield {"role": "user", "content": _content(each)}
        elif isinstance(each, ToolSaid):
            result = results.pop(0) if each.call_id in order else each
            yield {"role": "tool", "tool_call_id": result.call_id, "content": result.text}


def _content(said: UserSaid) -> str | list[Sent]:
    if not said.pictures:
        return said.text
    urls = (f"data:{each.media_type};base64,{b64encode(each.data).decode()}" for each in said.pictures)
    pictures = [{"image_url": {"url": url}, "type": "image_url"} for url in urls]
    return [{"text": said.text, "type": "text"}, *pictures]


def _answer(said: ModelSaid) -> list[Sent]:
    """An answer, with its thoughts in the field they came in; none if there is nothing to say."""
    message: Sent = {"role": "assistant"}
    texts: list[str] = []
    calls: list[Sent] = []
    for part in _kept(said):
        if isinstance(part, KeptText):
            texts.append(part.content)
        elif isinstance(part, KeptCall):
            calls.append(_call(part))
        elif part.id and part.id != "content" and part.provider_name == PROVIDER:
            message[part.id] = f"{message[part.id]}\n\n{part.content}" if part.id in message else part.content
        else:
            texts.append(f"<think>\n{part.content}\n</think>")
    message["content"] = "\n\n".join(texts) if texts else None
    if calls:
        message["tool_calls"] = calls
    return [message] if texts or calls else []


def _call(part: KeptCall) -> Sent:
    function = {"name": part.tool_name, "arguments": _compact(part.args)}
    call: Sent = {"id": part.tool_call_id, "type": "function", "function": function}
    if (
        part.provider_details
        and part.provider_name == PROVIDER
        and (more := part.provider_details.get("extra_content"))
    ):
        call["extra_content"] = more
    return call


def _compact(arguments: str | dict[str, Any] | None) -> str:
    """The arguments without blanks: however a model wrote them, and whichever way they were stored, the bytes are the same."""
    given = msgspec.json.decode(valid_arguments(arguments)) if isinstance(arguments, str) else arguments or {}
    return msgspec.json.encode(given).decode()


def _kept(said: ModelSaid) -> Sequence[Kept]:
    """The provider's own parts, if they can be read and call what the row says; else what the row itself says."""
    if said.parts:
        try:
            here = [each for each in said.parts if each["part_kind"] not in _ELSEWHERE]
            parts = msgspec.convert(here, list[Kept])
        except (msgspec.MsgspecError, TypeError, KeyError):
            parts = []
        if parts and [part.tool_call_id for part in parts if isinstance(part, KeptCall)] == [
            call.id for call in said.calls
        ]:
            return parts
    text = [KeptText(said.text)] if said.text else []
    return [*text, *(KeptCall(call.name, call.id, call.arguments) for call in said.calls)]


def _fill_thoughts(messages: Sequence[Sent], used: Collection[str]) -> None:
    """Give the calls since the last message of the user an empty field for thoughts, where one such field is in use: some
    servers (DeepSeek's) refuse a call without it.
    """
    if len(used) != 1:
        return
    (name,) = used
    since = max((place for place, each in enumerate(messages) if each["role"] == "user"), default=-1)
    for message in messages[since + 1 :]:
        if message["role"] == "assistant" and message.get("tool_calls"):
            message.setdefault(name, "")
