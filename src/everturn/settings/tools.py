"""`[tools]` and its tables, `[mcp.NAME]`: what the agent can do. Everything is off unless it is switched on."""
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
        "The folder; a relative path begins at the home. Not the home itself, nor its folder files, which holds what people"
        " sent.",
        form="a folder",
    )
    write: bool = setting(True, "Whether it may change files, too.")
    file_bytes: int = setting(1_000_000, "The largest file that is read or written.", between=(1, 1_000_000_000))


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellConfig:
    """`[tools.shell]`."""

    enabled: bool = setting(False, "Let the agent run commands on this machine, as the user that the gateway runs as.")
    folder: str = setting("workspace", "Where commands run; a relative path begins at the home.", form="a folder")
    approval: str = setting(
        "ask", "Whether a person must allow each command. never: nobody is asked.", choices=("ask", "never")
    )
    time_s: float = setting(120.0, "A command that takes longer is ended.", between=(1, 86_400))
    output_bytes: int = setting(200_000, "How much of what it says is kept.", between=(1_000, 100_000_000))
    environment: tuple[str, ...] = setting(
        (), "Variables that commands may see, beside a few harmless ones.", form="a list of names of variables"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchConfig:
    """`[tools.fetch]`."""

    enabled: bool = setting(False, "Let the agent read web pages at public addresses.")
    page_bytes: int = setting(2_000_000, "The largest page.", between=(1_000, 1_000_000_000))
    time_s: float = setting(30.0, "How long a page may take.", between=(1, 3_600))
    redirects: int = setting(5, "How many redirects are followed; each is checked.", between=(0, 20))
    allow_private: tuple[str, ...] = setting(
        (), "Hosts that may be read though their addresses are not public.", form="a list of host names"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryConfig:
    """`[tools.memory]`."""

    enabled: bool = setting(False, "Let the agent remember things about a person or a chat.")
    memories: int = setting(200, "How many memories a person or a chat may have.", between=(1, 100_000))
    text_chars: int = setting(2_000, "How long one may be, in characters.", between=(10, 100_000))


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchConfig:
    """`[tools.search]`."""

    enabled: bool = setting(False, "Let the agent search what was said before in the same chat.")
    results: int = setting(10, "How many places are shown at most.", between=(1, 100))


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetConfig:
    """`[tools.send.target.NAME]`."""

    platform: str = setting("", "The chat's platform.", form="a platform's name")
    chat: str = setting("", "The chat.", form="the platform's id of the chat")
    chat_type: str = setting("dm", "What kind of chat it is.", choices=CHAT_TYPES)
    thread: str = setting("", "The thread in the chat, if it is one.", form="empty, or the platform's id of the thread")


@dataclass(frozen=True, slots=True, kw_only=True)
class SendConfig:
    """`[tools.send]`."""

    enabled: bool = setting(
        False, "Let the agent send messages besides its answer, to its own chat and to those named below."
    )
    own_chat: bool = setting(True, "Whether it may send to the chat it is in.")
    text_chars: int = setting(8_000, "The longest message, in characters.", between=(1, 100_000))
    directory: bool = setting(
        False,
        "Whether it may also send to chats of the directory (`everturn channels`): for owners to all of them, for others"
        " to the chat they write in and to their own direct chat.",
    )
    files: bool = setting(False, "Whether it may send files of the folder below, too.")
    folder: str = setting(
        "workspace",
        "The folder whose files may be sent; a relative path begins at the home. Not the home itself, nor its folder files."
        " Hidden files, keys and the gateway's own files are never sent.",
        form="a folder",
    )
    target: Mapping[str, TargetConfig] = named(
        TargetConfig,
        "A chat that the agent may send to, under the name that it uses for it.",
        placeholder="NAME",
        name=r"[A-Za-z][A-Za-z0-9_-]{0,63}",
        name_form="a name has letters, digits, - and _",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolsConfig:
    """`[tools]`."""

    output_chars: int = setting(
        20_000, "How much of a tool's output enters the transcript; the rest can be read on request.",
        between=(1_000, 1_000_000),
    )  # fmt: skip
    output_kept_chars: int = setting(
        1_000_000, "How much of a tool's output is kept to be read on request.", between=(1_000, 100_000_000)
    )
    files: FilesConfig = section(FilesConfig, "Files of one folder.")
    shell: ShellConfig = section(ShellConfig, "Commands on this machine.")
    fetch: FetchConfig = section(FetchConfig, "Web pages.")
    memory: MemoryConfig = section(MemoryConfig, "Memories of people and chats.")
    search: SearchConfig = section(SearchConfig, "What was said before.")
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
        {}, "Variables for the program, beside a few harmless ones. They are never shown.", form="a table of texts",
        hide=True,
    )  # fmt: skip
    pass_environment: tuple[str, ...] = setting(
        (), "Variables of the gateway that the program may see, by name.", form="a list of names of variables"
    )
    headers: dict[str, str] = setting(
        {}, "Headers for the address. They are never shown.", form="a table of texts", hide=True
    )
    api_key_env: str = setting(
        "", "The NAME of the environment variable with the key for the address.",
        form="the name of an environment variable, in capitals", check=variable_problem, hide=True,
    )  # fmt: skip
    effects: dict[str, str] = setting(
        {}, "What may happen to a tool's calls after a crash, by the tool's name, or * for all others. Not named: once.",
        choices=("pure", "idempotent", "once"), form='a table such as { look_up = "pure" }',
    )  # fmt: skip
    approval: tuple[str, ...] = setting(
        (), "Tools that a person must allow each time, by name; * for all.", form="a list of names"
    )
    context: bool = setting(
        False, "Tell the server with each call who asks and where: their id, name, chat and session."
    )
    trust_hints: bool = setting(False, "Believe what the server says about the effects of its own tools.")
    start_s: float = setting(20.0, "How long the server may take to start.", between=(1, 3_600))
    call_s: float = setting(120.0, "How long a call may take.", between=(1, 86_400))
