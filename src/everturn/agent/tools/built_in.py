"""All tools of one gateway, as its settings switch them on: each is off unless it has settings."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from everturn.agent.toolbox import Tool
from everturn.agent.tools.fetch import FetchSettings, fetch_tools
from everturn.agent.tools.files import FilesSettings, files_tools
from everturn.agent.tools.mcp import McpServer, McpSettings
from everturn.agent.tools.memory import MemorySettings, memory_tools
from everturn.agent.tools.output import OutputSettings, output_tools
from everturn.agent.tools.search import SearchSettings, search_tools
from everturn.agent.tools.send import Sender, SendSettings, send_tools
from everturn.agent.tools.shell import ShellSettings, shell_tools
from everturn.clock import Clock
from everturn.search_index import SearchIndex
from everturn.store.interface import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSettings:
    """The settings of every tool; None: it is off."""

    files: FilesSettings | None = None
    shell: ShellSettings | None = None
    fetch: FetchSettings | None = None
    memory: MemorySettings | None = None
    search: SearchSettings | None = None
    send: SendSettings | None = None
    output: OutputSettings = OutputSettings()  # noqa: RUF009  frozen
    mcp: tuple[McpSettings, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolParts:
    """What tools work with."""

    store: Store
    clock: Clock
    environ: Mapping[str, str]
    search_file: Path
    sender: Sender


class Tools:
    """One source of all tools: the built-in ones first, so that no server can take the name of one of them."""

    def __init__(self, settings: ToolSettings, parts: ToolParts) -> None:
        self._index = SearchIndex(parts.search_file)
        self._servers = [McpServer(each, parts.environ, parts.clock) for each in settings.mcp]
        self._built_in = _built_in(settings, parts, self._index)

    async def tools(self) -> Sequence[Tool]:
        """What can be used now. Servers that start are waited for together."""
        offered = await asyncio.gather(*(server.tools() for server in self._servers))
        tools: dict[str, Tool] = {}
        for tool in (*self._built_in, *(tool for each in offered for tool in each)):
            tools.setdefault(tool.name, tool)
        return tuple(tools.values())

    async def close(self) -> None:
        """End the servers and let go of files."""
        await asyncio.gather(*(server.close() for server in self._servers))
        await self._index.close()


def _built_in(settings: ToolSettings, parts: ToolParts, index: SearchIndex) -> list[Tool]:
    """The built-in tools that are on, always in the same order; with any tool comes the one that reads long outputs."""
    tools: list[Tool] = []
    if settings.files:
        tools += files_tools(settings.files)
    if settings.shell:
        tools += shell_tools(settings.shell, parts.environ, parts.clock)
    if settings.fetch:
        tools += fetch_tools(settings.fetch, parts.clock)
    if settings.memory:
        tools += memory_tools(settings.memory, parts.store, parts.clock)
    if settings.search:
        tools += search_tools(settings.search, parts.store, index)
    if settings.send:
        tools += send_tools(settings.send, parts.sender)
    return [*tools, *output_tools(settings.output, parts.store)] if tools or settings.mcp else []
