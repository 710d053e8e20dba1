"""The provider of a model: a key goes to its own provider only, or to the address that was set together with the key."""

from __future__ import annotations

# One provider's protocols, each under a name of its own: they share its address and its key.
_PROTOCOLS = dict.fromkeys(("openai-chat", "openai-responses", "openai-decisions"), "openai")


def provider_of(model: str) -> str:
    """The provider of `provider:name`."""
    name = model.partition(":")[0]
    return _PROTOCOLS.get(name, name)


def providers_of(*models: str) -> tuple[str, ...]:
    """The providers of these models, each once."""
    return tuple(dict.fromkeys(provider_of(model) for model in models if model))
