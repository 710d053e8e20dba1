"""Makes the tools of one gateway from its settings: each exists only when its table switches it on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, cast

import structlog

from everturn.agent.toolbox import Tool, ToolSource
from everturn.clock import Clock
from everturn.errors import ConfigError
from everturn.home.files import MEGABYTE
from everturn.home.rules import is_stored
from everturn.model import Effect, SessionSource
from everturn.settings import Config, McpConfig, ToolsConfig
from everturn.settings.agent import EVERY
from everturn.store.interface import Store

if TYPE_CHECKING:
    from typing import Literal

    from everturn.agent.tools.mcp import McpServer
    from everturn.agent.tools.send import FileSender, Places, Sender
    from everturn.home.search_index import SearchIndex

SEARCH_FILE = "search.db"
WORKSPACE = "workspace"  # the default of the folders that tools work in
log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class FixedTools:
    """Tools that stay the same while the gateway runs."""

    offered: Sequence[Tool]

    def tools(self) -> Sequence[Tool]:
        """All of them."""
        return self.offered


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolParts:
    """What tools are made with."""

    home: Path
    env: Mapping[str, str] = field(repr=False)
    clock: Clock
    store: Store
    send: Sender
    places: Callable[[], Places | None] = lambda: None
    files: Callable[[], FileSender | None] = lambda: None


class Toolsets:
    """The tools that are switched on, by the names that agents' settings use."""

    def __init__(self, config: Config, parts: ToolParts) -> None:
        self._tools = config.tools
        self._file_megabytes = config.limits.file_megabytes
        self._parts = parts
        self._uploads = parts.home / "files"
        self._index: SearchIndex | None = None
        self._sources: dict[str, ToolSource] = {}
        self._mcp = config.mcp
        self._servers: list[McpServer] = []

    def make(self) -> None:
        """Make the tools that are switched on; loads their libraries. Raises ConfigError."""
        makers: dict[str, Callable[[ToolsConfig], list[Tool]]] = {
            "files": self._files,
            "shell": self._shell,
            "fetch": self._fetch,
            "memory": self._memory,
            "search": self._search,
            "send": self._send,
        }
        for name, make in makers.items():
            if getattr(self._tools, name).enabled:
                self._sources[name] = FixedTools(make(self._tools))
        for name, server in self._mcp.items():
            self._sources[name] = self._server(name, server)

    def named(self, names: Sequence[str], *, every: bool = True) -> tuple[ToolSource, ...]:
        """The tools of an agent: the named ones, or all for `*`; with them the tool that reads long outputs."""
        all_of_them = every and EVERY in names
        chosen = tuple(source for name, source in self._sources.items() if all_of_them or name in names)
        return (*chosen, self._read_output()) if chosen else ()

    async def close(self) -> None:
        """Close files and connections."""
        for server in self._servers:
            await server.close()
        if self._index is not None:
            await self._index.close()

    def _files(self, tools: ToolsConfig) -> list[Tool]:
        from everturn.agent.tools.files import FilesSettings, files_tools

        own = tools.files
        folder = self._folder("tools.files.folder", self._checked_apart("tools.files.folder", own.folder))
        settings = FilesSettings(folder=folder, uploads=self._uploads, write=own.write, file_bytes=own.file_bytes)
        return files_tools(settings)

    def _shell(self, tools: ToolsConfig) -> list[Tool]:
        from everturn.agent.tools.shell import ShellSettings, shell_tools

        own = tools.shell
        settings = ShellSettings(
            folder=self._folder("tools.shell.folder", own.folder),
            approval=cast("Literal['ask', 'never']", own.approval),
            time_s=own.time_s,
            output_bytes=own.output_bytes,
            environment=own.environment,
        )
        return shell_tools(settings, self._parts.env, self._parts.clock)

    def _fetch(self, tools: ToolsConfig) -> list[Tool]:
        from everturn.agent.tools.fetch import FetchSettings, fetch_tools

        own = tools.fetch
        settings = FetchSettings(
            page_bytes=own.page_bytes, time_s=own.time_s, redirects=own.redirects, allow_private=own.allow_private
        )
        return fetch_tools(settings, self._parts.clock)

    def _memory(self, tools: ToolsConfig) -> list[Tool]:
        from everturn.agent.tools.memory import MemorySettings, memory_tools

        settings = MemorySettings(memories=tools.memory.memories, text_chars=tools.memory.text_chars)
        return memory_tools(settings, self._parts.store, self._parts.clock)

    def _search(self, tools: ToolsConfig) -> list[Tool]:
        from everturn.agent.tools.memory import SearchSettings, search_tools
        from everturn.home.search_index import SearchIndex

        self._index = SearchIndex(self._parts.home / SEARCH_FILE)
        return search_tools(SearchSettings(results=tools.search.results), self._parts.store, self._index)

    def _send(self, tools: ToolsConfig) -> list[Tool]:
        from everturn.agent.tools.send import SendSettings, send_tools

        own = tools.send
        targets = {
            name: SessionSource(
                platform=each.platform, chat_id=each.chat, chat_type=each.chat_type, thread_id=each.thread or None
            )
            for name, each in own.target.items()
        }
        settings = SendSettings(
            targets=targets,
            own_chat=own.own_chat,
            text_chars=own.text_chars,
            directory=own.directory,
            folder=self._folder("tools.send.folder", self._checked_apart("tools.send.folder", own.folder))
            if own.files
            else None,
            uploads=self._uploads,
            file_bytes=int(self._file_megabytes * MEGABYTE),
        )
        return send_tools(settings, self._parts.send, self._parts.places, self._parts.files)

    def _server(self, name: str, own: McpConfig) -> ToolSource:
        from everturn.agent.tools.mcp import McpServer, McpSettings

        if find_spec("mcp") is None:
            raise ConfigError(f"mcp.{name} needs the package mcp, which is not installed: install everturn[mcp]")
        passed = {each: self._variable(each, f"mcp.{name}.pass_environment") for each in own.pass_environment}
        key = own.api_key_env and self._variable(own.api_key_env, f"mcp.{name}.api_key_env")
        settings = McpSettings(
            name=name,
            command=own.command,
            environment=passed | own.environment,
            url=own.url,
            headers=own.headers | ({"Authorization": f"Bearer {key}"} if key else {}),
            folder=self._parts.home,
            effects={tool: Effect(effect) for tool, effect in own.effects.items()},
            approval=own.approval,
            context=own.context,
            trust_hints=own.trust_hints,
            start_s=own.start_s,
            call_s=own.call_s,
        )
        server = McpServer(settings, self._parts.env, self._parts.clock)
        self._servers.append(server)
        return server

    def _variable(self, name: str, key: str) -> str:
        if value := self._parts.env.get(name, ""):
            return value
        raise ConfigError(f"{key} names the environment variable {name}, which is not set")

    def _read_output(self) -> ToolSource:
        from everturn.agent.toolbox import OutputSettings, output_tools

        # Below what the transcript takes: a page is never shortened again.
        settings = OutputSettings(page_chars=min(15_000, self._tools.output_chars * 3 // 4))
        return FixedTools(output_tools(settings, self._parts.store))

    def _checked_apart(self, key: str, name: str) -> str:
        """The same folder. Raises ConfigError if other people's uploads or the gateway's own files are in it."""
        folder, uploads = (self._parts.home / name).resolve(), self._uploads.resolve()
        if folder.is_relative_to(uploads) or uploads.is_relative_to(folder):
            raise ConfigError(
                f'{key}: {folder} is, contains or lies in the folder of files that people sent; choose another one, such as "{WORKSPACE}".'
                f" The gateway moves what the agent wrote to {uploads} to {WORKSPACE} when that folder is first used"
            )
        return name

    def _move_agent_files(self) -> None:
        """Move the agent's files, which lay among the uploads by default, to its own folder, once.

        The folder gets its name last. So a start that crashes meanwhile leaves the rest to the next one.
        """
        workspace, moving = self._parts.home / WORKSPACE, self._parts.home / f"{WORKSPACE}.moving"
        if workspace.exists() or not self._uploads.is_dir():
            return
        own = [path for path in self._uploads.iterdir() if not is_stored(path.name)]
        if own or moving.exists():
            moving.mkdir(mode=0o700, exist_ok=True)
            for path in own:
                path.rename(moving / path.name)
            moving.rename(workspace)
            log.info("agent_files_moved", from_folder=str(self._uploads), to_folder=str(workspace), entries=len(own))

    def _folder(self, key: str, name: str) -> Path:
        folder = self._parts.home / name
        try:
            if folder == self._parts.home / WORKSPACE:
                self._move_agent_files()
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"{key}: {folder} cannot be made or is not a folder: {error.strerror}") from error
        return folder
