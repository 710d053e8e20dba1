"""`[tools]` and its tables, `[mcp.NAME]`: the agent's tools. Each is off unless it is switched on."""
# ruff: noqa: RUF009  `setting` and `section` make dataclass fields

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from everturn.settings.agent import url_problem, variable_problem
from everturn.settings.core import CHAT_TYPES
from everturn.settings.rules import named, section, setting

BUILT_IN = ("files", "shell", "fetch", "memory", "search", "send")


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
