"""The settings of a language model agent. Loads no model library."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

DEFAULT_INSTRUCTIONS = "You are a helpful assistant in a chat. Answer in the language of the person who writes to you."


@dataclass(frozen=True, slots=True, kw_only=True)
class LlmSettings:
    """One language model agent. `base_url` and `api_key` are for every model of the first one's provider."""

    model: str  # "provider:name"
    base_url: str | None = None
    api_key: str | None = field(default=None, repr=False)
    api_key_env: str | None = None  # the variable it was read from, for the text about a refused key
    instructions: str = DEFAULT_INSTRUCTIONS
    tell_place: bool = True  # the system prompt says where the conversation takes place; it confuses very small models
    max_steps: int = 50
    max_output_tokens: int | None = None
    context_tokens: int = 128_000
    fallback: tuple[str, ...] = ()
    models: tuple[str, ...] = ()  # others that a session may choose
    stall_s: float = 120.0
    retries: int = 5  # how often one model is asked again
    longest_wait_s: float = 300.0  # a server that asks for a longer wait is not retried
    compact_at: float = 0.7  # the share of the context window at which a compaction is made
    compact_keep: float = 0.2  # the share of it that stays word for word
    on_this_machine: bool = False  # the server of `base_url` is a process of ours
    images: str = "auto"  # whether the model is given pictures: auto (by its name), yes or no
    uploads: Path | None = None  # the folder that has them
