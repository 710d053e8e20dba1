"""The settings of agents, their tools and routes, and the checks of settings that need or contradict each other."""
# ruff: noqa: RUF009  `setting`, `section` and `named` make dataclass fields

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from everturn.settings.core import CHAT_TYPES
from everturn.settings.rules import CHAT_NAME, PLATFORM_NAME, named, nearest, section, setting, shown

if TYPE_CHECKING:
    from everturn.settings import Config

MAIN = "main"
KINDS = ("auto", "demo", "llm", "local", "python", "process", "http")
AGENT_NAME = r"[a-z][a-z0-9_-]{0,31}"
BUILT_IN = ("files", "shell", "fetch", "memory", "search", "send")
EVERY = "*"
NEEDS = {"llm": "model", "python": "object", "process": "command", "http": "url"}


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


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesConfig:
    """`[tools.files]`."""

    enabled: bool = setting(False, "Let the agent work with the files of one folder, and of no other.")
    folder: str = setting(
        "workspace",
        "The folder; a relative path starts at the home. Not the home itself, nor its folder files, which holds files that"
        " people sent.",
        form="a folder",
    )
    write: bool = setting(True, "Whether the agent may also change files.")
    file_bytes: int = setting(1_000_000, "The largest file that tools read or write.", between=(1, 1_000_000_000))


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellConfig:
    """`[tools.shell]`."""

    enabled: bool = setting(False, "Let the agent run commands on this machine, as the user that the gateway runs as.")
    folder: str = setting("workspace", "Where commands run; a relative path starts at the home.", form="a folder")
    approval: str = setting(
        "ask", "Whether a person must approve each command. never: no approval is needed.", choices=("ask", "never")
    )
    time_s: float = setting(120.0, "The gateway ends a command after so many seconds.", between=(1, 86_400))
    output_bytes: int = setting(200_000, "How much of a command's output is kept.", between=(1_000, 100_000_000))
    environment: tuple[str, ...] = setting(
        (), "Variables that commands may see, besides a few harmless ones.", form="a list of names of variables"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchConfig:
    """`[tools.fetch]`."""

    enabled: bool = setting(False, "Let the agent read web pages at public addresses.")
    page_bytes: int = setting(2_000_000, "The largest page that the agent may read.", between=(1_000, 1_000_000_000))
    time_s: float = setting(30.0, "How many seconds a page may take.", between=(1, 3_600))
    redirects: int = setting(5, "How many redirects the gateway follows; it checks each.", between=(0, 20))
    allow_private: tuple[str, ...] = setting(
        (), "Hosts that the agent may read though their addresses are not public.", form="a list of host names"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryConfig:
    """`[tools.memory]`."""

    enabled: bool = setting(False, "Let the agent remember things about a person or a chat.")
    memories: int = setting(200, "How many memories a person or a chat may have.", between=(1, 100_000))
    text_chars: int = setting(2_000, "How long one memory may be, in characters.", between=(10, 100_000))


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchConfig:
    """`[tools.search]`."""

    enabled: bool = setting(False, "Let the agent search earlier messages of the same chat.")
    results: int = setting(10, "How many results the agent gets at most.", between=(1, 100))


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetConfig:
    """`[tools.send.target.NAME]`."""

    platform: str = setting("", "The chat's platform.", form="a platform's name")
    chat: str = setting("", "The chat.", form="the platform's id of the chat")
    chat_type: str = setting("dm", "The chat's type.", choices=CHAT_TYPES)
    thread: str = setting("", "The thread in the chat, if it is one.", form="empty, or the platform's id of the thread")


@dataclass(frozen=True, slots=True, kw_only=True)
class SendConfig:
    """`[tools.send]`."""

    enabled: bool = setting(
        False, "Let the agent send messages besides its answer, to its own chat and to the chats named below."
    )
    own_chat: bool = setting(True, "Whether the agent may send to the chat it is in.")
    text_chars: int = setting(8_000, "The longest message, in characters.", between=(1, 100_000))
    directory: bool = setting(
        False,
        "Whether the agent may also send to chats of the directory (`everturn channels`): for owners to all of them, for"
        " others to the chat they write in and to their own direct chat.",
    )
    files: bool = setting(False, "Whether the agent may also send files of the folder below.")
    folder: str = setting(
        "workspace",
        "The folder whose files may be sent; a relative path starts at the home. Not the home itself, nor its folder files."
        " Hidden files, keys and the gateway's own files are never sent.",
        form="a folder",
    )
    target: Mapping[str, TargetConfig] = named(
        TargetConfig,
        "A chat that the agent may send to, under the name that the agent uses.",
        placeholder="NAME",
        name=r"[A-Za-z][A-Za-z0-9_-]{0,63}",
        name_form="a name has letters, digits, - and _",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolsConfig:
    """`[tools]`."""

    output_chars: int = setting(
        20_000, "How much of a tool's output enters the transcript; the agent can read the rest on request.",
        between=(1_000, 1_000_000),
    )  # fmt: skip
    output_kept_chars: int = setting(
        1_000_000, "How much of a tool's output is kept for reading on request.", between=(1_000, 100_000_000)
    )
    files: FilesConfig = section(FilesConfig, "Files of one folder.")
    shell: ShellConfig = section(ShellConfig, "Commands on this machine.")
    fetch: FetchConfig = section(FetchConfig, "Web pages.")
    memory: MemoryConfig = section(MemoryConfig, "Memories of people and chats.")
    search: SearchConfig = section(SearchConfig, "Earlier messages of the chat.")
    send: SendConfig = section(SendConfig, "Messages to chats.")


@dataclass(frozen=True, slots=True, kw_only=True)
class McpConfig:
    """`[mcp.NAME]`."""

    command: tuple[str, ...] = setting(
        (), "The server's program and its arguments; it runs in the home.",
        form='a list of words such as ["npx", "some-server"]',
    )  # fmt: skip
    url: str = setting(
        "", "Or the server's address.", form='empty, or "https://HOST/..."', check=url_problem, secret=True
    )
    environment: dict[str, str] = setting(
        {}, "Environment variables for the program, besides a few harmless ones. They are never shown.", form="a table of texts",
        hide=True,
    )  # fmt: skip
    pass_environment: tuple[str, ...] = setting(
        (), "Variables of the gateway that the program may see, by name.", form="a list of names of variables"
    )
    headers: dict[str, str] = setting(
        {}, "HTTP headers for the address. They are never shown.", form="a table of texts", hide=True
    )
    api_key_env: str = setting(
        "", "The NAME of the environment variable with the key for the address.",
        form="the name of an environment variable in capitals, such as SHOP_API_KEY", check=variable_problem, hide=True,
    )  # fmt: skip
    effects: dict[str, str] = setting(
        {}, "How a tool's calls are treated after a crash, by the tool's name, or * for all others. Not named: once.",
        choices=("pure", "idempotent", "once"), form='a table such as { look_up = "pure" }',
    )  # fmt: skip
    approval: tuple[str, ...] = setting(
        (), "Tools whose every call a person must approve, by name; * for all.", form="a list of names"
    )
    context: bool = setting(
        False, "Tell the server with each call who wrote and where: their id, name, chat and session."
    )
    trust_hints: bool = setting(False, "Trust what the server says about the effects of its own tools.")
    start_s: float = setting(20.0, "How many seconds the server may take to start.", between=(1, 3_600))
    call_s: float = setting(120.0, "How many seconds a call may take.", between=(1, 86_400))


def problems_of(config: Config) -> Iterator[str]:
    """Everything that is wrong with a configuration as a whole. Each begins with the place it is about."""
    tools = (*BUILT_IN, *config.mcp, EVERY)
    yield from _agent_problems("agent", config.agent, tools)
    for name, agent in config.agents.items():
        if name == MAIN:
            yield f"agents.{MAIN} is not allowed: the agent {shown(MAIN)} is that of [agent]; give this one another name"
        yield from _agent_problems(f"agents.{name}", agent, tools)
    yield from _route_problems(config.routes, (MAIN, *config.agents))
    yield from _target_problems(config)
    yield from _server_problems(config)


def _agent_problems(table: str, agent: AgentConfig, tools: tuple[str, ...]) -> Iterator[str]:
    wanted = NEEDS.get(agent.kind)
    if wanted and not getattr(agent, wanted):
        yield f"{table}.kind is {shown(agent.kind)}, which needs {table}.{wanted}"
    for each in agent.tools:
        if each not in tools:
            near = shown(nearest(each, tools))
            yield f"{table}.tools names {shown(each)}, an unknown tool; the nearest known one is {near}"


def _server_problems(config: Config) -> Iterator[str]:
    for name, server in config.mcp.items():
        if bool(server.command) == bool(server.url):
            yield f"mcp.{name} needs a command or a url, and not both"
        if name in BUILT_IN:
            yield f"mcp.{name} is not allowed: {shown(name)} is the name of a built-in tool; give the server another name"


def _target_problems(config: Config) -> Iterator[str]:
    for name, target in config.tools.send.target.items():
        if not target.platform or not target.chat:
            yield f"tools.send.target.{name} needs a platform and a chat"


def _route_problems(routes: tuple[RouteConfig, ...], agents: tuple[str, ...]) -> Iterator[str]:
    seen: dict[tuple[str, ...], int] = {}
    for number, route in enumerate(routes, 1):
        if not route.agent:
            yield f"routes.{number}.agent is missing: name the agent that answers there"
        elif route.agent not in agents:
            near = nearest(route.agent, agents)
            yield f"routes.{number}.agent is {shown(route.agent)}, an unknown agent; the nearest known one is {shown(near)}"
        place = astuple(route)[1:]
        if place in seen:
            yield f"routes.{number} is for the same place as routes.{seen[place]}: remove one of them"
        seen.setdefault(place, number)
