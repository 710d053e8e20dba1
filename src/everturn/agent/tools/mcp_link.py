"""One connection to an MCP server, through the official client library. Only this file imports it, and is itself loaded late.

Over standard streams the program runs as our child (shell.py), so it ends with the gateway; its lines are bounded.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import mcp_types as types
import msgspec
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage

from everturn.agent.toolbox import ToolError
from everturn.agent.tools.mcp import ErrorLog, LinkLost, McpTool
from everturn.agent.tools.shell import Child
from everturn.http_client import HttpClient
from everturn.model import Json

LONGEST_LINE = 8_000_000
UNREAD = 8_000_000  # bytes that a server may leave unread
WAITING_LINES = 1_000
MOST_PAGES = 20
KEPT_ALIVE = frozenset({types.INVALID_PARAMS, types.METHOD_NOT_FOUND, types.INTERNAL_ERROR})
"""Errors of a healthy server that rejected this call."""


class McpConnection:
    """An open connection."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def offers(self) -> list[McpTool]:
        """The tools that the server offers now."""
        found: list[types.Tool] = []
        cursor: str | None = None
        for _ in range(MOST_PAGES):
            page = await self._client.list_tools(cursor=cursor, cache_mode="bypass")
            found += page.tools
            cursor = page.next_cursor
            if not cursor:
                break
        return [_offer(each) for each in found]

    async def call(self, name: str, given: Json, meta: Json, active: Callable[[], None]) -> str:
        """Call a tool; returns its result as text. Raises ToolError if it failed, LinkLost if the outcome is unknown."""

        async def moves(progress: float, total: float | None, message: str | None) -> None:  # noqa: ARG001
            active()

        about: Any = meta
        try:
            result = await self._client.call_tool(name, given, progress_callback=moves, meta=about)
        except MCPError as error:
            if error.code in KEPT_ALIVE:
                raise ToolError(error.message[:1_000]) from error
            raise LinkLost(error.message) from error
        except (anyio.ClosedResourceError, anyio.BrokenResourceError, anyio.EndOfStream, httpx2.HTTPError) as error:
            raise LinkLost(repr(error)) from error
        text = _text(result)
        if result.is_error:
            raise ToolError(text[:20_000] or "the tool failed without a message.")
        return text


def _offer(each: types.Tool) -> McpTool:
    hints = each.annotations
    return McpTool(
        each.name,
        each.description or each.title or "",
        dict(each.input_schema),
        bool(hints and hints.read_only_hint),
        bool(hints and hints.idempotent_hint),
    )


def _text(result: types.CallToolResult) -> str:
    pieces = [_piece(each) for each in result.content]
    if not pieces and result.structured_content is not None:
        return msgspec.json.encode(result.structured_content).decode()
    return "\n".join(pieces)


def _piece(block: types.ContentBlock) -> str:
    match block:
        case types.TextContent():
            return block.text
        case types.EmbeddedResource(resource=types.TextResourceContents() as resource):
            return resource.text
        case types.ResourceLink():
            return f"[a link: {block.uri}]"
        case types.ImageContent() | types.AudioContent():
            return f"[{block.mime_type}, {len(base64.b64decode(block.data, validate=False))} bytes, not shown]"
        case _:
            return f"[{block.type}, not shown]"


@asynccontextmanager
async def linked(
    command: tuple[str, ...],
    url: str,
    headers: Mapping[str, str],
    *,
    folder: Path,
    environment: Mapping[str, str],
    errors: ErrorLog,
    ended: Callable[[], None],
) -> AsyncGenerator[McpConnection, None]:
    """Connect to a program's standard streams or to a URL; `ended` is called when the program ends."""
    async with AsyncExitStack() as stack:
        if command:
            stack.callback(errors.close)
            transport = _program(command, folder, environment, errors, ended)
        else:
            limits = httpx2.Timeout(30.0, read=300.0)
            client = await stack.enter_async_context(HttpClient(headers=dict(headers), timeout=limits))
            transport = streamable_http_client(url, http_client=client, terminate_on_close=False)
        yield McpConnection(await stack.enter_async_context(Client(transport)))


@asynccontextmanager
async def _program(
    command: tuple[str, ...],
    folder: Path,
    environment: Mapping[str, str],
    errors: ErrorLog,
    ended: Callable[[], None],
) -> AsyncGenerator[Any, None]:
    """The library's transport over a child process."""
    heard, hears = anyio.create_memory_object_stream[SessionMessage | Exception](WAITING_LINES)
    says, said = anyio.create_memory_object_stream[SessionMessage](0)
    with heard, hears, says, said:
        lines = _Lines(heard)
        child = await Child.start(
            command, lines.add, folder=folder, environment=environment, errors=errors.add, talks=True
        )
        tasks = [asyncio.ensure_future(_pass_on(said, child)), asyncio.ensure_future(_watch(lines, child, ended))]
        try:
            yield hears, says
        finally:
            for task in tasks:
                task.cancel()
            await child.close()


async def _pass_on(said: MemoryObjectReceiveStream[SessionMessage], child: Child) -> None:
    """Write our messages to the program; a program that reads nothing is killed."""
    async for message in said:
        child.write(message.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
        if child.unread() > UNREAD:
            child.kill()


async def _watch(lines: _Lines, child: Child, ended: Callable[[], None]) -> None:
    """Wait for the program's exit or an invalid line; then end the connection, so that waiting calls fail."""
    over = [asyncio.ensure_future(child.ended()), asyncio.ensure_future(lines.spoilt.wait())]
    try:
        await asyncio.wait(over, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in over:
            each.cancel()
    child.kill()
    lines.close()
    ended()


class _Lines:
    """Splits bytes into messages; bounded, whatever the program writes."""

    def __init__(self, heard: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
        self._heard = heard
        self._rest = bytearray()
        self.spoilt = asyncio.Event()

    def close(self) -> None:
        """End the stream of messages."""
        self._heard.close()

    def add(self, data: bytes) -> None:
        """Take output of the program; complete lines become messages."""
        if self.spoilt.is_set():
            return
        self._rest += data
        *lines, rest = self._rest.split(b"\n") if b"\n" in data else [self._rest]
        self._rest = bytearray(rest)
        try:
            for line in lines:
                self._heard.send_nowait(_message(bytes(line)))
        except (anyio.WouldBlock, anyio.ClosedResourceError, anyio.BrokenResourceError):
            self.spoilt.set()
        if len(self._rest) > LONGEST_LINE:
            self._rest.clear()
            self.spoilt.set()


def _message(line: bytes) -> SessionMessage | Exception:
    try:
        return SessionMessage(types.jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError as error:
        return error
