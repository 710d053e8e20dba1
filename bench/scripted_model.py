"""One scripted model for both sides of a comparison: a call of one tool, then an answer of twenty words, streamed."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.direct import model_request_stream
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    SystemPromptPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel
from pydantic_ai.tools import ToolDefinition

from everturn.agent.toolbox import Tool, ToolPlace
from everturn.model import Effect, Json

PROMPT = "use look {}"  # so the scripted model behind HTTP calls the tool, too
INSTRUCTIONS = "You are a helpful assistant."
ANSWER = ("I looked at it for you, and this is what I found: ", "it is all in order, ", "nothing is amiss.")
TURNS_A_CHAT = 5  # a conversation is then left for a fresh one: what is measured does not grow with the measuring


async def scripted_answer(messages: list[ModelMessage], _info: AgentInfo) -> AsyncIterator[str | DeltaToolCalls]:
    """The script of the model: first a call, then a text."""
    if any(isinstance(part, ToolReturnPart) for part in messages[-1].parts):
        for text in ANSWER:
            yield text
    else:
        yield {0: DeltaToolCall(name="look", json_args="{}", tool_call_id=f"call-{len(messages)}")}


class ScriptedAnswers(FunctionModel):
    """The library's own test model, with the finish reason that a real provider sends."""

    def __init__(self) -> None:
        super().__init__(stream_function=scripted_answer)

    @asynccontextmanager
    async def request_stream(self, *args: Any, **kwargs: Any) -> AsyncIterator[StreamedResponse]:
        """As the library does it."""
        async with super().request_stream(*args, **kwargs) as stream:
            stream.provider_details = {"finish_reason": "stop"}
            yield stream


async def look(_arguments: Json, _place: ToolPlace) -> str:
    """The tool of both sides."""
    return "it looks fine"


class Looking:
    """Offers that one tool."""

    def tools(self) -> list[Tool]:
        """It."""
        schema: Json = {"type": "object", "properties": {}, "additionalProperties": False}
        return [Tool(name="look", description="Look at it.", parameters=schema, run=look, effect=Effect.ONCE)]


class Alone:
    """The library alone: the same model and tool, streamed; the conversation is kept in memory and nowhere else."""

    def __init__(self, model: Model[Any]) -> None:
        self._agent = Agent(model, system_prompt=INSTRUCTIONS)
        self._agent.tool_plain(_look, name="look", description="Look at it.")
        self._history: dict[int, list[ModelMessage]] = {}

    async def turn(self, session: int, count: int) -> None:
        """One turn of a session."""
        history = self._history.get(session, []) if count % TURNS_A_CHAT else []
        done = await self._agent.run(PROMPT, message_history=history, event_stream_handler=_drain)
        self._history[session] = done.all_messages()


class Bare:
    """The library's model requests and nothing around them: the least that any agent on it costs."""

    def __init__(self, model: Model[Any]) -> None:
        self._model = model
        schema: Json = {"type": "object", "properties": {}, "additionalProperties": False}
        tool = ToolDefinition(name="look", description="Look at it.", parameters_json_schema=schema)
        self._offered = ModelRequestParameters(function_tools=[tool])
        self._history: dict[int, list[ModelMessage]] = {}

    async def turn(self, session: int, count: int) -> None:
        """One turn of a session."""
        first = [ModelRequest(parts=[SystemPromptPart(content=INSTRUCTIONS)])]
        history = self._history[session] = self._history.get(session, []) if count % TURNS_A_CHAT else [*first]
        history.append(ModelRequest(parts=[UserPromptPart(content=PROMPT)]))
        while calls := await self._response(history):
            results = [ToolReturnPart(call.tool_name, await _look(), call.tool_call_id) for call in calls]
            history.append(ModelRequest(parts=results))

    async def _response(self, history: list[ModelMessage]) -> list[ToolCallPart]:
        async with model_request_stream(self._model, history, model_request_parameters=self._offered) as stream:
            async for _ in stream:
                pass
        response = stream.get()
        history.append(response)
        return [part for part in response.parts if isinstance(part, ToolCallPart)]


async def _look() -> str:
    return "it looks fine"


async def _drain(_context: object, events: AsyncIterable[object]) -> None:
    async for _ in events:
        pass


def chats(name: str) -> Callable[[int], str]:
    """Which chat the next turn of a session is in: a fresh one after so many."""
    counts: dict[int, int] = {}

    def chat(session: int) -> str:
        count = counts[session] = counts.get(session, -1) + 1
        return f"{name}-{session}-{count // TURNS_A_CHAT}"

    return chat
