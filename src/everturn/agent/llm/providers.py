"""Model clients, built when they are first used. The libraries' own retries are off: ours are journaled."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from everturn.agent.cache import Cache, CachedValue
from everturn.agent.llm.settings import LlmSettings
from everturn.agent.rules import provider_of, providers_of
from everturn.errors import ConfigError

if TYPE_CHECKING:
    from pydantic_ai.models import Model
    from pydantic_ai.settings import ModelSettings

CONNECT_S = 10.0
WRITE_S = 60.0
SPARE_S = 30.0  # our own watch over stalls comes first
KEPT_CONNECTIONS = 100
CLIENT_BYTES = 1_000_000  # a client with its connections, about
_NO_KEY = "no-key-needed"  # a server of one's own may want none, the libraries insist on one
_CHAT = ("openai", "openai-chat")


class AgentModels:
    """The models of one agent, each with its client. Those of its settings are kept as long as the agent; one that a session
    chose is in the cache, where there is one: there may be many of them.
    """

    def __init__(self, settings: LlmSettings, cache: Cache[Model[Any]] | None = None) -> None:
        self._settings = settings
        self._cache = cache
        self._models: dict[str, Model[Any]] = {}

    def get(self, name: str) -> Model[Any]:
        """The model of this name. Raises ConfigError when it cannot be used."""
        model = self._models.get(name)
        if model is None:
            model = self._models[name] = build_model(name, self._settings)
        return model

    @asynccontextmanager
    async def using(self, name: str, session_id: str) -> AsyncIterator[Model[Any]]:
        """The model of this name for one call of a session. Raises ConfigError when it cannot be used."""
        if self._cache is None or name in (self._settings.model, *self._settings.fallback):
            yield self.get(name)
            return

        async def build() -> CachedValue[Model[Any]]:
            model = await asyncio.to_thread(build_model, name, self._settings)  # it may load a library
            return CachedValue(model, CLIENT_BYTES, partial(close_model, model))

        async with self._cache.borrow(session_id, f"{name} {self._settings!r}", build) as model:
            yield model

    async def close(self) -> None:
        """Close the connections."""
        models, self._models = list(self._models.values()), {}
        for model in models:
            await close_model(model)


async def close_model(model: Model[Any]) -> None:
    """Close its connections."""
    client: Any = getattr(model, "client", None)
    if client is not None and hasattr(client, "close"):
        await client.close()


def build_model(name: str, settings: LlmSettings) -> Model[Any]:
    """A model by `provider:name`, with the settings' address and key if it is of their provider. One of a provider that the
    settings do not name is refused: nobody set an address and a key for it.
    """
    provider, _, model = name.partition(":")
    if not provider or not model:
        raise ConfigError(f"the model {name!r} is not written as provider:name, for example openai:gpt-5-mini")
    if provider_of(name) not in providers_of(settings.model, *settings.fallback, *settings.models):
        raise ConfigError(
            f"the model {name!r} is of a provider that this agent does not use; the owner can name it in agent.models"
        )
    own = provider_of(name) == provider_of(settings.model)
    base_url, key = (settings.base_url, settings.api_key) if own else (None, None)
    key = key or (_NO_KEY if base_url else None)  # a key in a variable belongs to the provider's own address
    if importlib.util.find_spec("pydantic_ai") is None:
        raise ConfigError("agent.kind is llm, but its library is not installed; install everturn[llm]")
    try:
        if provider in _CHAT:
            return _openai(model, base_url, key, settings.stall_s)
        if provider == "anthropic":
            return _anthropic(model, base_url, key, settings.stall_s)
        return _other(name, base_url, key)
    except ConfigError:
        raise
    except Exception as error:  # noqa: BLE001  whatever a library rejects in the settings is the owner's to correct
        raise ConfigError(
            f"the model {name!r} cannot be used ({type(error).__name__}); check agent.model,"
            " agent.base_url and agent.api_key_env, and that the provider's library is installed"
        ) from None


def _openai(model: str, base_url: str | None, key: str | None, stall_s: float) -> Model[Any]:
    from openai import AsyncOpenAI, DefaultAsyncHttpxClient
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.profiles.openai import OpenAIModelProfile
    from pydantic_ai.providers.openai import OpenAIProvider

    client = AsyncOpenAI(
        base_url=base_url,
        api_key=key,
        max_retries=0,
        http_client=DefaultAsyncHttpxClient(**_limits(stall_s)),
    )
    # Compatible servers know the older names only; OpenAI itself wants the newer ones.
    plain = OpenAIModelProfile(
        openai_supports_strict_tool_definition=False, openai_chat_supports_max_completion_tokens=False
    )
    provider = OpenAIProvider(openai_client=client)
    return OpenAIChatModel(model, provider=provider, profile=plain if base_url else None)


def _anthropic(model: str, base_url: str | None, key: str | None, stall_s: float) -> Model[Any]:
    from anthropic import AsyncAnthropic, DefaultAsyncHttpxClient
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.providers.anthropic import AnthropicProvider

    client = AsyncAnthropic(
        base_url=base_url,
        api_key=key,
        max_retries=0,
        http_client=DefaultAsyncHttpxClient(**_limits(stall_s)),
    )
    return AnthropicModel(model, provider=AnthropicProvider(anthropic_client=client))


def _other(name: str, base_url: str | None, key: str | None) -> Model[Any]:
    """Any other provider that pydantic-ai knows; without a key of ours it reads its usual variable."""
    from pydantic_ai.models import infer_model
    from pydantic_ai.providers import Provider, infer_provider, infer_provider_class

    given = {name: value for name, value in (("base_url", base_url), ("api_key", key)) if value}

    def provider_of(provider: str) -> Provider[Any]:
        make: Any = infer_provider_class(provider)
        return make(**given) if given else infer_provider(provider)

    return infer_model(name, provider_of)


def _limits(stall_s: float) -> dict[str, Any]:
    import httpx2

    return {
        "timeout": httpx2.Timeout(connect=CONNECT_S, read=stall_s + SPARE_S, write=WRITE_S, pool=None),
        "limits": httpx2.Limits(max_connections=None, max_keepalive_connections=KEPT_CONNECTIONS),
    }


def call_settings(name: str, settings: LlmSettings, session_id: str) -> ModelSettings:
    """The settings of each request to the provider, besides the conversation."""
    provider = name.partition(":")[0]
    own_server = settings.base_url is not None and provider_of(name) == provider_of(settings.model)
    said: dict[str, Any] = {"max_retries": 0}
    if settings.max_output_tokens:
        said["max_tokens"] = settings.max_output_tokens
    if provider == "anthropic":
        said |= {"anthropic_cache_instructions": True, "anthropic_cache_tool_definitions": True}
        said["anthropic_cache_messages" if own_server else "anthropic_cache"] = True
    if provider in _CHAT and not own_server:
        said["openai_prompt_cache_key"] = session_id
    return said  # type: ignore[return-value]
