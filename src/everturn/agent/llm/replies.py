"""What a model answered, whoever asked it: its parts, how it ended, what it used; and the parts as a transcript row keeps them.

A part is the JSON object that is stored: {"part_kind": "text", "content": ...}, "thinking", "tool-call", or another kind that only
its own client understands. It is the format of pydantic-ai's messages, which wrote the rows of older sessions.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import msgspec

from everturn.agent.llm.freezing import FrozenTool
from everturn.agent.llm.rendering import Said
from everturn.agent.rules import CallOutcome
from everturn.model import ToolCall, Usage

TEXT, CALL = "text", "tool-call"
Part = dict[str, Any]
Heard = Callable[[Callable[[], str]], None]
"""Called when something of an answer arrived, with a function that returns its text so far."""
_LONGEST_ID = 64


@dataclass(frozen=True, slots=True)
class ModelInput:
    """What a model is asked: the messages, the tools it may call, and the session, whose prompt a provider may have cached."""

    messages: Sequence[Said]
    tools: Sequence[FrozenTool]
    session_id: str
    encoded: bytes = b""  # the messages as `KnownHistory` has them: then the others are not made


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """An answer, complete or not."""

    parts: Sequence[Part]
    provider: str
    outcome: CallOutcome
    used: Usage

    @property
    def text(self) -> str:
        """All its text: what follows another kind of part is a paragraph of its own."""
        texts: list[str] = []
        before = ""
        for part in self.parts:
            kind = part["part_kind"]
            if kind == TEXT and before == TEXT:
                texts[-1] += part["content"]
            elif kind == TEXT:
                texts.append(part["content"])
            before = kind
        return "\n\n".join(texts)

    @property
    def calls(self) -> list[Part]:
        """The parts that call tools."""
        return [part for part in self.parts if part["part_kind"] == CALL]

    def with_only(self, kept: Callable[[Part], bool]) -> ModelAnswer:
        """The answer without its other parts."""
        return replace(self, parts=[part for part in self.parts if kept(part)])


class ModelClient(Protocol):
    """One model of one provider, with its connections."""

    @property
    def provider(self) -> str:
        """The provider whose own parts it is sent back."""
        ...

    @property
    def takes_encoded(self) -> bool:
        """Whether it sends the bytes that `KnownHistory` keeps."""
        ...

    def start(self) -> None:
        """Begin to load what the first call will need, without waiting for it."""
        ...

    async def plan(self, input_tokens: int, output_tokens: int) -> Usage:
        """What a call with so many tokens would use, with its price where that is known."""
        ...

    async def ask(self, asked: ModelInput, heard: Heard) -> ModelAnswer:
        """Ask once. Raises CallFailed, or whatever a library raises."""
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


def judged(parts: Sequence[Part], finish: str | None, *, refused: bool) -> CallOutcome:
    """The outcome of a stream that ended by itself, by its parts and its finish reason; None: it had none."""
    if refused or finish == "content_filter":
        return CallOutcome.REFUSED
    if finish is None:
        return CallOutcome.CUT
    if any(part["part_kind"] == CALL for part in parts):
        return CallOutcome.ANSWERED
    if finish == "length":
        return CallOutcome.LENGTH
    said = any(part["part_kind"] == TEXT and part["content"].strip() for part in parts)
    return CallOutcome.ANSWERED if said else CallOutcome.EMPTY


def plain_parts(content: str, calls: Sequence[ToolCall]) -> list[Part]:
    """The parts of an answer of which only the text and the calls are known."""
    text: list[Part] = [{"part_kind": TEXT, "content": content}] if content else []
    return [*text, *(call_part(c.name, valid_arguments(c.arguments), c.id) for c in calls)]


def call_part(name: str, arguments: str, call_id: str) -> Part:
    """A part that calls a tool."""
    return {"part_kind": CALL, "tool_name": name, "args": arguments, "tool_call_id": call_id}


def arguments_of(part: Part) -> str:
    """The arguments of a call as the model wrote them, be they JSON or not."""
    args = part.get("args")
    return args if isinstance(args, str) else msgspec.json.encode(args or {}).decode()


def valid_arguments(arguments: str) -> str:
    """The arguments as a JSON object, whatever the model wrote: providers refuse a history with anything else."""
    try:
        msgspec.json.decode(arguments or "{}", type=dict[str, object])
    except msgspec.MsgspecError:
        return json.dumps({"INVALID_JSON": arguments}, ensure_ascii=False)
    return arguments or "{}"


def extra_of(answer: ModelAnswer, content: str, calls: Sequence[ToolCall]) -> str | None:
    """The provider's own parts of an answer as JSON; None when they are just its text and its calls."""
    if list(answer.parts) == plain_parts(content, calls):
        return None
    kept = {"provider": answer.provider, "parts": answer.parts}
    return json.dumps(kept, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def as_kept(answer: ModelAnswer, used: Collection[str], fresh: str) -> ModelAnswer:
    """The answer as it is stored: its calls have ids that no other call of the conversation has, and valid arguments."""
    taken = set(used)
    parts: list[Part] = []
    for place, part in enumerate(answer.parts):
        if part["part_kind"] != CALL:
            parts.append(part)
            continue
        known = part.get("tool_call_id") or ""
        own = known if known and known not in taken and len(known) <= _LONGEST_ID else f"{fresh}-{place}"
        while own in taken:  # a child session counts its rows from the beginning
            own += "_"
        taken.add(own)
        parts.append(part | {"tool_call_id": own, "args": valid_arguments(arguments_of(part))})
    return replace(answer, parts=parts)
