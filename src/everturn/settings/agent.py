"""`[agent]`, `[agents.NAME]` and `[[routes]]`: which agent answers where."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from everturn.settings.names import CHAT_NAME, PLATFORM_NAME
from everturn.settings.rules import named, setting

MAIN = "main"
KINDS = ("auto", "demo", "llm", "local", "python", "process", "http")
AGENT_NAME = r"[a-z][a-z0-9_-]{0,31}"


def _model_problem(model: str) -> str | None:
    if not model or re.fullmatch(r"[a-z][a-z0-9_-]*:\S+", model):
        return None
    return "write the provider, a colon and the model's name"


def _models_problem(model: str) -> str | None:
    return _model_problem(model) if model else "an entry is empty"


def url_problem(url: str) -> str | None:
    """What is wrong with the address of a web server; None when nothing is."""
    return None if not url or re.match(r"https?://[^\s/]+", url) else "it is not an http or https address"


def variable_problem(name: str) -> str | None:
    """What is wrong with the name of an environment variable that holds a key; None when nothing is."""
    # Capitals only: a key that was pasted here by mistake is refused, and not shown.
    return None if not name or re.fullmatch(r"[A-Z_][A-Z0-9_]*", name) else "this looks like the key itself"


def object_problem(name: str) -> str | None:
    """What is wrong with the place of a Python object; None when nothing is."""
    return None if not name or re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*", name) else "it has another form"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentOverride:
    """The settings of an agent on one platform or in one chat; None means as everywhere."""

    model: str | None = None
    base_url: str | None = None
    api_key_env: str | None = None
    instructions: str | None = None
    instructions_file: str | None = None
    max_steps: int | None = None
    max_output_tokens: int | None = None
    context_tokens: int | None = None
    fallback: tuple[str, ...] | None = None
    tools: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentConfig:
    """`[agent]`, and each of `[agents.NAME]`."""

    kind: str = setting(
        "auto",
        "Which agent answers. auto: the one that the other settings of this table name (model: llm; object: python; command: process;"
        " url: http); else the local model where its packages are installed; else the demo. The demo is scripted and"
        " needs nothing.",
        choices=KINDS,
    )
    model: str = setting(
        "",
        "The model: its provider, and its name there.",
        form='empty, or "PROVIDER:NAME" such as "openai:gpt-5" or "anthropic:claude-sonnet-4-5"',
        check=_model_problem,
    )
    base_url: str = setting(
        "",
        "The address of the provider's API, if it is not the usual one: any server that speaks its protocol.",
        form='empty, or "https://HOST/..."',
        check=url_problem,
        secret=True,
    )
    api_key_env: str = setting(
        "",
        "The NAME of the environment variable that holds the key; the key itself is never in this file. Empty: the"
        " provider's usual variable.",
        form="the name of an environment variable in capitals, such as OPENAI_API_KEY",
        check=variable_problem,
        hide=True,
    )
    instructions: str = setting("", "Instructions for the model, put before every conversation.")
    instructions_file: str = setting(
        "", "A text file with more instructions; a relative path starts at the home.", form="a file"
    )
    max_steps: int = setting(50, "How often one turn may call the model.", between=(1, 10_000))
    max_output_tokens: int = setting(
        0, "The longest single response, in tokens. 0: as long as the provider allows.", between=(0, 10_000_000)
    )
    context_tokens: int = setting(
        128_000, "The model's context window, in tokens; compaction goes by it.", between=(1_000, 100_000_000)
    )
    fallback: tuple[str, ...] = setting(
        (), "Models to try, in order, when the model does not answer.", form="a list of models",
        check=_models_problem,
    )  # fmt: skip
    images: str = setting(
        "auto",
        "Whether the model gets the pictures that people drop into a conversation. auto: if its name says that it sees"
        " pictures; a model that does not gets only their address.",
        choices=("auto", "yes", "no"),
    )
    stall_s: float = setting(
        120.0, "When a model sends nothing for so many seconds, the call is retried.", between=(1, 86_400)
    )
    retries: int = setting(5, "How often a failed model call is retried.", between=(0, 100))
    models: tuple[str, ...] = setting(
        (),
        "Models that /model may choose. None named: any model of the providers that model and fallback name.",
        form="a list of models",
        check=_models_problem,
    )
    tools: tuple[str, ...] = setting(
        ("*",),
        'Which of the tools that are switched on in [tools] and [mcp] this agent may use, by name; "*": all of them (the'
        " local model, which is small, gets only those that are named).",
        form='a list of names such as ["files", "memory"]',
    )
    object: str = setting("", "For python: the agent object.", form='empty, or "MODULE:OBJECT"', check=object_problem)
    command: tuple[str, ...] = setting(
        (), "For process: the program that speaks the agent protocol on its input and output, and its arguments.",
        form='a list of words such as ["python3", "agent.py"]',
    )  # fmt: skip
    url: str = setting(
        "", "For http: the endpoint that speaks the agent protocol.", form='empty, or "https://HOST/..."',
        check=url_problem, secret=True,
    )  # fmt: skip
    platform: Mapping[str, AgentOverride] = named(
        AgentOverride,
        "What is different for the agent on one platform.",
        placeholder="PLATFORM",
        name=PLATFORM_NAME,
        name_form="a platform's name has small letters, digits and _",
        overrides=True,
    )
    chat: Mapping[str, AgentOverride] = named(
        AgentOverride,
        "What is different for the agent in one chat. This table overrides the platform's.",
        placeholder='"PLATFORM:CHAT"',
        name=CHAT_NAME,
        name_form='a chat is written "PLATFORM:CHAT"',
        overrides=True,
    )

    def at(self, platform: str, *chats: str | None) -> AgentConfig:
        """The agent's settings on this platform and in this chat (whose other ids may follow)."""
        own = self.platform.get(platform)
        names = (f"{platform}:{chat}" for chat in chats if chat)
        overrides = (own, next((self.chat[name] for name in names if name in self.chat), None))
        changed: dict[str, Any] = {}
        for override in filter(None, overrides):
            given = {each.name: getattr(override, each.name) for each in fields(AgentOverride)}
            changed |= {name: value for name, value in given.items() if value is not None}
        return replace(self, platform={}, chat={}, **changed)


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteConfig:
    """One of `[[routes]]`."""

    agent: str = setting("", "The agent that answers there: a name of [agents.NAME], or main.", form="an agent's name")
    platform: str = setting("", "Only on this platform. Empty: on all.", form="a platform's name")
    chat: str = setting("", "Only in this chat. Empty: in all.", form="the platform's id of the chat")
    thread: str = setting("", "Only in this thread. Empty: in all.", form="the platform's id of the thread")
    person: str = setting("", "Only for this person. Empty: for everybody.", form="the platform's id of the person")
