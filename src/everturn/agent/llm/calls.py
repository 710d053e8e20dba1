"""One model call: streamed, watched for stalls, shown as it grows, and judged by how it ended."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic_ai.direct import model_request_stream
from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from everturn.agent.llm.failures import Stalled
from everturn.agent.rules import CallOutcome
from everturn.clock import Clock
from everturn.model import Usage

T = TypeVar("T")
Show = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class ProviderRequest:
    """One request to a provider."""

    model: Model[Any]
    messages: Sequence[ModelMessage]
    tools: Sequence[ToolDefinition]
    settings: ModelSettings


@dataclass(frozen=True, slots=True)
class CallWatch:
    """How a call is watched: where it streams to, how often, and when it counts as stalled."""

    clock: Clock
    stall_s: float
    every_s: float
    show: Show
    active: Callable[[], None]


class Pulse:
    """Records when the last activity was."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.at = clock.monotonic()

    def beat(self) -> None:
        """Record activity."""
        self.at = self._clock.monotonic()

    def quiet_s(self) -> float:
        """Seconds since the last activity."""
        return self._clock.monotonic() - self.at


async def call_model(request: ProviderRequest, watch: CallWatch) -> ModelResponse:
    """Call the model; returns the whole response. Raises Stalled, or whatever the library raises."""
    pulse = Pulse(watch.clock)
    return await unless_stalled(_read(request, watch, pulse), pulse, watch)


async def unless_stalled(work: Awaitable[T], pulse: Pulse, watch: CallWatch) -> T:
    """Wait for the work as long as there is activity. Raises Stalled."""
    task = asyncio.ensure_future(work)
    try:
        while not task.done():
            timer = asyncio.ensure_future(watch.clock.sleep(watch.stall_s - pulse.quiet_s()))
            try:
                await asyncio.wait({task, timer}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                timer.cancel()
            if not task.done() and pulse.quiet_s() >= watch.stall_s:
                raise Stalled
        return task.result()
    finally:
        if not task.done():
            task.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await task


async def _read(request: ProviderRequest, watch: CallWatch, pulse: Pulse) -> ModelResponse:
    parameters = ModelRequestParameters(function_tools=list(request.tools))
    shown_at: float | None = None
    async with model_request_stream(
        request.model, request.messages, model_settings=request.settings, model_request_parameters=parameters
    ) as stream:
        async for _ in stream:
            pulse.beat()
            watch.active()
            if shown_at is None or pulse.at - shown_at >= watch.every_s:
                text = stream.get().text
                if text:
                    shown_at = pulse.at
                    watch.show(text)
        return stream.get()


def judged(response: ModelResponse) -> CallOutcome:
    """The outcome of a call that raised nothing. The library calls a stream without a finish reason a normal stop."""
    has_calls = any(isinstance(part, ToolCallPart) for part in response.parts)
    details = response.provider_details or {}
    if response.finish_reason == "content_filter" or details.get("refusal"):
        return CallOutcome.REFUSED
    if "finish_reason" not in details or response.state != "complete":
        return CallOutcome.CUT
    if has_calls:
        return CallOutcome.ANSWERED
    if response.finish_reason == "length":
        return CallOutcome.LENGTH
    return CallOutcome.ANSWERED if (response.text or "").strip() else CallOutcome.EMPTY


def usage_of(response: ModelResponse) -> Usage:
    """The usage that the provider reports, and its cost where the price is known."""
    used = response.usage
    return Usage(
        requests=1,
        input_tokens=used.input_tokens,
        output_tokens=used.output_tokens,
        cached_tokens=used.cache_read_tokens,
        cost=_cost(response),
    )


def _cost(response: ModelResponse) -> float | None:
    try:
        return float(response.cost().total_price)
    except (LookupError, ValueError, AssertionError):
        return None  # no price is known for this model
