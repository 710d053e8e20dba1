"""The frozen prompt of a session: system prompt and tools as one text, the same in every request."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from everturn.agent.interface import TurnContext
from everturn.agent.llm.settings import LlmSettings
from everturn.agent.rules import system_prompt
from everturn.agent.toolbox import Tool, Toolbox
from everturn.model import Json, RequestExtras


class FrozenTool(msgspec.Struct, frozen=True):
    """A tool as the model sees it."""

    name: str
    description: str
    parameters: Json


class Frozen(msgspec.Struct, frozen=True):
    """The stored form of a frozen prompt."""

    system: str
    tools: list[FrozenTool]


@dataclass(frozen=True, slots=True)
class Prompt:
    """The frozen part of a request, ready to be sent."""

    text: str  # as it is kept: for estimates
    system: str
    tools: list[FrozenTool]


def frozen_prompt(turn: TurnContext, settings: LlmSettings, toolbox: Toolbox, known: str | None) -> Prompt:
    """The session's frozen prompt, which is known; made now when the session has none that can be read."""
    place = turn.source if settings.tell_place else None
    text = frozen_text(system_prompt(settings.instructions, place), toolbox.all())
    kept = known if known is not None else text
    try:
        frozen = msgspec.json.decode(kept, type=Frozen)
    except msgspec.MsgspecError:
        frozen = msgspec.json.decode(text, type=Frozen)  # damaged, or another kind of agent's
    return Prompt(kept, frozen.system, frozen.tools)


def with_extras(prompt: Prompt, extras: RequestExtras) -> tuple[Prompt, frozenset[str]]:
    """The prompt of a turn with the instructions and functions of its API client; and the names of the functions offered.

    None of them takes the name of a tool of ours. What the session keeps does not change.
    """
    if not extras.instructions and not extras.tools:
        return prompt, frozenset()
    taken = {tool.name for tool in prompt.tools}
    theirs = [tool for tool in extras.tools if tool.name not in taken]
    offered = [FrozenTool(tool.name, tool.description, tool.parameters) for tool in theirs]
    system = "\n\n".join(part for part in (prompt.system, extras.instructions) if part)
    text = prompt.text + extras.instructions + "".join(str(tool.parameters) for tool in theirs)
    return Prompt(text, system, [*prompt.tools, *offered]), frozenset(tool.name for tool in theirs)


def frozen_text(system: str, tools: Sequence[Tool]) -> str:
    """The same bytes for the same prompt and tools."""
    offered = [{"name": tool.name, "description": tool.description, "parameters": tool.parameters} for tool in tools]
    return json.dumps({"system": system, "tools": offered}, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
