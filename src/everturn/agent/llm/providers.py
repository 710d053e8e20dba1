"""The models of one agent, built when they are first used: our own client for OpenAI's API, and a library for every other one."""

from __future__ import annotations

import asyncio
import importlib.util
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from everturn.agent.cache import Cache, CachedValue
from everturn.agent.llm.chat.client import ChatModel
from everturn.agent.llm.replies import ModelClient
from everturn.agent.llm.settings import LlmSettings
from everturn.agent.rules import provider_of, providers_of
from everturn.errors import ConfigError
from everturn.http_stream import HttpStreams

CLIENT_BYTES = 1_000_000  # a client with its connections, about
NO_KEY = "no-key-needed"  # a server of one's own may want none, the libraries insist on one
_CHAT = ("openai", "openai-chat")


class AgentModels:
    """The models of one agent, each with its client. Those of its settings are kept as long as the agent; one that a session
    chose is in the cache, where there is one: there may be many of them.
    """

    def __init__(self, settings: LlmSettings, cache: Cache[ModelClient] | None = None) -> None:
        self._settings = settings
        self._cache = cache
        self._models: dict[str, ModelClient] = {}

    def get(self, name: str) -> ModelClient:
        """The model of this name. Raises ConfigError when it cannot be used."""
        model = self._models.get(name)
        if model is None:
            model = self._models[name] = build_model(name, self._settings)
        return model

    @asynccontextmanager
    async def using(self, name: str, session_id: str) -> AsyncIterator[ModelClient]:
        """The model of this name for one call of a session. Raises ConfigError when it cannot be used."""
        if self._cache is None or name in (self._settings.model, *self._settings.fallback):
            model = self._models.get(name)
            if model is None:  # a fallback: its library takes seconds to load
                model = self._models.setdefault(name, await asyncio.to_thread(build_model, name, self._settings))
            yield model
            return

        async def build() -> CachedValue[ModelClient]:
            model = await asyncio.to_thread(build_model, name, self._settings)  # it may load a library
            return CachedValue(model, CLIENT_BYTES, model.close)

        async with self._cache.borrow(session_id, f"{name} {self._settings!r}", build) as model:
            yield model

    async def close(self) -> None:
        """Close the connections."""
        models, self._models = list(self._models.values()), {}
        for model in models:
            await model.close()


def build_model(name: str, settings: LlmSettings) -> ModelClient:
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
    key = key or (NO_KEY if base_url else None)  # a key in a variable belongs to the provider's own address
    if provider in _CHAT:
        try:
            env = {} if settings.on_this_machine else os.environ  # no proxy leads there
            return ChatModel(model, base_url, key, settings.max_output_tokens, HttpStreams(), env)
        except ValueError as error:
            raise ConfigError(f"the model {name!r} cannot be used: {error}") from None
    if importlib.util.find_spec("pydantic_ai") is None:
        raise ConfigError(
            f"the model {name!r} needs a library that is not installed; install everturn[llm], or name a model of a server"
            " that speaks OpenAI's API: openai:name, with its agent.base_url"
        )
    try:
        from everturn.agent.llm.library import library_model

        return library_model(name, settings, base_url, key)
    except Exception as error:  # noqa: BLE001  whatever a library rejects in the settings is the owner's to correct
        raise ConfigError(
            f"the model {name!r} cannot be used ({type(error).__name__}); check agent.model,"
            " agent.base_url and agent.api_key_env, and that the provider's library is installed"
        ) from None
