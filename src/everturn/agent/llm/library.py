"""Models of every provider that pydantic-ai knows, through it. Loaded only when a model of such a provider is named.

The library's own retries are off: ours are journaled. Its messages are the stored form of parts, so nothing is lost on the way.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

import httpx2
from pydantic import ValidationError
from pydantic_ai import exceptions as library
from pydantic_ai.direct import model_request_stream
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    SystemPromptPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import Model, ModelRequestParameters, infer_model
from pydantic_ai.providers import Provider, infer_provider, infer_provider_class
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.usage import RequestUsage

from everturn.agent.llm.failures import CallFailed, of_status, too_long
from everturn.agent.llm.freezing import FrozenTool
from everturn.agent.llm.rendering import ModelSaid, Said, SystemSaid, ToolSaid
from everturn.agent.llm.replies import Heard, ModelAnswer, ModelInput, Part, judged, plain_parts
from everturn.agent.llm.settings import LlmSettings
from everturn.agent.rules import CallOutcome, provider_of
from everturn.errors import EverturnError
from everturn.model import Usage

CONNECT_S = 10.0
WRITE_S = 60.0
SPARE_S = 30.0  # our own watch over stalls comes first
KEPT_CONNECTIONS = 100
# The first that fits decides: the exact before the general.
_KINDS: tuple[tuple[type[Exception], CallOutcome], ...] = (
    (library.ModelContextWindowExceededError, CallOutcome.OVERFLOW),
    (library.ModelAuthenticationError, CallOutcome.DENIED),
    (library.ModelNotFoundError, CallOutcome.MISSING),
    (library.ModelQuotaExceededError, CallOutcome.QUOTA),
    (library.ModelRateLimitError, CallOutcome.LIMITED),
    (library.ModelRequestRejectedError, CallOutcome.REJECTED),
    (library.ModelUnavailableError, CallOutcome.SERVER),
    (library.ModelServerError, CallOutcome.SERVER),
    (library.ModelRequestTimeout, CallOutcome.STALLED),
    (library.ModelConnectionError, CallOutcome.CONNECTION),
    (library.ContentFilterError, CallOutcome.REFUSED),
    (library.UnexpectedModelBehavior, CallOutcome.UNREADABLE),
    (ValidationError, CallOutcome.UNREADABLE),
    (library.ModelAPIError, CallOutcome.SERVER),
    (OSError, CallOutcome.CONNECTION),
    (ValueError, CallOutcome.UNREADABLE),
)
_NETWORK_LIBRARIES = ("httpx", "httpx2", "httpcore", "httpcore2", "h11", "anyio")


class LibraryModel:
    """A model of pydantic-ai."""

    takes_encoded = False

    def __init__(self, model: Model[Any], settings: ModelSettings) -> None:
        self.model = model
        self._settings = settings

    @property
    def provider(self) -> str:
        """The provider whose own parts it is sent back."""
        return self.model.system

    def start(self) -> None:
        """The library is loaded already."""

    async def plan(self, input_tokens: int, output_tokens: int) -> Usage:
        """What a call with so many tokens would use."""
        used = RequestUsage(input_tokens=input_tokens, output_tokens=output_tokens)
        return usage_of(
            ModelResponse(parts=[], usage=used, model_name=self.model.model_name, provider_name=self.provider)
        )

    async def ask(self, asked: ModelInput, heard: Heard) -> ModelAnswer:
        """Ask once."""
        parameters = ModelRequestParameters(function_tools=[_definition(tool) for tool in asked.tools])
        try:
            async with model_request_stream(
                self.model,
                library_messages(asked.messages),
                model_settings=self._settings,
                model_request_parameters=parameters,
            ) as stream:
                async for _ in stream:
                    heard(lambda: stream.get().text or "")
                response = stream.get()
        except EverturnError:
            raise
        except Exception as error:
            raise failed(error) from error
        return answer_of(response)

    async def close(self) -> None:
        """Close its connections."""
        client: Any = getattr(self.model, "client", None)
        if client is not None and hasattr(client, "close"):
            await client.close()


def library_model(name: str, settings: LlmSettings, base_url: str | None, key: str | None) -> LibraryModel:
    """A model by `provider:name`. Raises whatever the library rejects."""
    provider, _, model = name.partition(":")
    made = (
        _anthropic(model, base_url, key, settings.stall_s) if provider == "anthropic" else _other(name, base_url, key)
    )
    return LibraryModel(made, call_settings(name, settings))


def _anthropic(model: str, base_url: str | None, key: str | None, stall_s: float) -> Model[Any]:
    from anthropic import AsyncAnthropic, DefaultAsyncHttpxClient
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.providers.anthropic import AnthropicProvider

    timeout = httpx2.Timeout(connect=CONNECT_S, read=stall_s + SPARE_S, write=WRITE_S, pool=None)
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=KEPT_CONNECTIONS)
    client = AsyncAnthropic(
        base_url=base_url,
        api_key=key,
        max_retries=0,
        http_client=DefaultAsyncHttpxClient(timeout=timeout, limits=limits),
    )
    return AnthropicModel(model, provider=AnthropicProvider(anthropic_client=client))


def _other(name: str, base_url: str | None, key: str | None) -> Model[Any]:
    """Any other provider; without a key of ours the library reads its usual variable."""
    given = {name: value for name, value in (("base_url", base_url), ("api_key", key)) if value}

    def provided(provider: str) -> Provider[Any]:
        make: Any = infer_provider_class(provider)
        return make(**given) if given else infer_provider(provider)

    return infer_model(name, provided)


def call_settings(name: str, settings: LlmSettings) -> ModelSettings:
    """The settings of each request to the provider, besides the conversation."""
    provider = name.partition(":")[0]
    own_server = settings.base_url is not None and provider_of(name) == provider_of(settings.model)
    said: dict[str, Any] = {"max_retries": 0}
    if settings.max_output_tokens:
        said["max_tokens"] = settings.max_output_tokens
    if provider == "anthropic":
        said |= {"anthropic_cache_instructions": True, "anthropic_cache_tool_definitions": True}
        said["anthropic_cache_messages" if own_server else "anthropic_cache"] = True
    return said  # type: ignore[return-value]


def _definition(tool: FrozenTool) -> ToolDefinition:
    return ToolDefinition(name=tool.name, description=tool.description, parameters_json_schema=tool.parameters)


def library_messages(said: Sequence[Said]) -> list[ModelMessage]:
    """The library's messages: what stands between two answers is one request."""
    messages: list[ModelMessage] = []
    for is_answer, group in groupby(said, key=lambda each: isinstance(each, ModelSaid)):
        if is_answer:
            messages += [ModelResponse(parts=_parts(each)) for each in group if isinstance(each, ModelSaid)]
        else:
            messages.append(ModelRequest(parts=list(_request_parts(group))))
    return messages


def _request_parts(group: Iterable[Said]) -> Iterator[ModelRequestPart]:
    for each in group:
        if isinstance(each, SystemSaid):
            yield SystemPromptPart(content=each.text)
        elif isinstance(each, ToolSaid):
            yield ToolReturnPart(tool_name=each.name, content=each.text, tool_call_id=each.call_id)
        elif not isinstance(each, ModelSaid):
            seen = [BinaryContent(data=one.data, media_type=one.media_type) for one in each.pictures]
            yield UserPromptPart(content=[each.text, *seen] if seen else each.text)


def _parts(said: ModelSaid) -> Sequence[ModelResponsePart]:
    """The provider's own parts, if they can be read and call what the row says; else what the row itself says."""
    try:
        parts = _loaded(said.parts)
    except (ValidationError, ValueError, TypeError):
        parts = ()
    ids = [part.tool_call_id for part in parts if isinstance(part, ToolCallPart)]
    fits = parts and ids == [call.id for call in said.calls]
    return parts if fits else _loaded(plain_parts(said.text, said.calls))


def _loaded(parts: Sequence[Any]) -> Sequence[ModelResponsePart]:
    (message,) = ModelMessagesTypeAdapter.validate_python([{"kind": "response", "parts": parts}])
    return message.parts if isinstance(message, ModelResponse) else ()


def answer_of(response: ModelResponse) -> ModelAnswer:
    """The library's response as an answer. It calls a stream without a finish reason a normal stop, and so says nothing of it."""
    details = response.provider_details or {}
    ended = "finish_reason" in details and response.state == "complete"
    parts = dumped(response.parts)
    refused = response.finish_reason == "content_filter" or bool(details.get("refusal"))
    outcome = judged(parts, (response.finish_reason or "") if ended else None, refused=refused)
    return ModelAnswer(parts, response.provider_name or "", outcome, usage_of(response))


def dumped(parts: Sequence[ModelResponsePart]) -> list[Part]:
    """The stored form of parts."""
    (message,) = json.loads(ModelMessagesTypeAdapter.dump_json([ModelResponse(parts=parts)]))
    return [{name: value for name, value in part.items() if value is not None} for part in message["parts"]]


def usage_of(response: ModelResponse) -> Usage:
    """The usage that the provider reports, and its cost where the price is known."""
    used = response.usage
    try:
        cost = float(response.cost().total_price)
    except (LookupError, ValueError, AssertionError):
        cost = None  # no price is known for this model
    return Usage(1, used.input_tokens, used.output_tokens, used.cache_read_tokens, cost)


def failed(error: Exception) -> CallFailed:
    """The outcome, delay and message of an error of the library."""
    body = getattr(error, "body", None)
    inner = body.get("error", body) if isinstance(body, dict) else body
    message = inner.get("message") if isinstance(inner, dict) else inner
    detail = str(message) if message else type(error).__name__
    return CallFailed(_kind(error, detail), detail, getattr(error, "retry_after", None))


def _kind(error: Exception, detail: str) -> CallOutcome:
    if isinstance(error, library.ModelAPIError) and isinstance(error.__cause__, ValueError):
        return CallOutcome.UNREADABLE  # a chunk that is not JSON
    kind = next((kind for type_, kind in _KINDS if isinstance(error, type_)), None)
    status = getattr(error, "status_code", 0)
    if kind in {None, CallOutcome.SERVER} and 400 <= status < 500:
        kind = of_status(status)
    if kind in {CallOutcome.REJECTED, CallOutcome.SERVER} and too_long(detail):
        return CallOutcome.OVERFLOW
    if kind is None and type(error).__module__.partition(".")[0] in _NETWORK_LIBRARIES:
        return CallOutcome.CONNECTION
    return kind or CallOutcome.UNKNOWN
