"""MCP servers: their tools, their connections, and what a server writes to its standard error."""

from __future__ import annotations

import asyncio
import importlib
import re
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import structlog

from everturn.agent.rules import scrub
from everturn.agent.toolbox import Ask, Run, Tool, ToolError, ToolPlace, no_approval, within
from everturn.agent.tools.shell import scrubbed
from everturn.clock import Clock
from everturn.model import Effect, Json
from everturn.pauses import grown_s
from everturn.turns.rules.approvals import exact, exact_json, fits
from everturn.turns.rules.turn_texts import TOO_LONG

if TYPE_CHECKING:
    from everturn.agent.tools.mcp_link import McpConnection

log = structlog.get_logger()
LINE_CHARS = 1_000
BUFFERED_BYTES = 8_000  # more than a logged line may have: a secret is removed before its line is cut
WINDOW_S = 60.0
WINDOW_LINES = 200  # a program that writes without end must not fill the disk with our log
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
MOST_TOOLS = 128
DESCRIPTION_CHARS = 2_000
SCHEMA_BYTES = 20_000
CHECK_S = 10.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 300.0
ALL = "*"


class ErrorLog:
    """Logs each line of a program's standard error as one event: bounded in length and number, without secrets."""

    def __init__(self, server: str, secrets: Iterable[str], clock: Clock) -> None:
        self._server = server
        self._secrets = sorted({line for secret in secrets for line in secret.splitlines()}, key=len, reverse=True)
        self._clock = clock
        self._line = bytearray()
        self._window_began = clock.monotonic()
        self._logged = 0
        self._left_out = 0

    def add(self, data: bytes) -> None:
        """Take what the program wrote; complete lines are logged."""
        *complete, rest = data.split(b"\n")
        for piece in complete:
            self._keep(piece)
            self._log_line()
        self._keep(rest)

    def close(self) -> None:
        """Log a last line that has no end, and how many lines were left out."""
        self._log_line()
        self._begin_window()

    def _keep(self, piece: bytes) -> None:
        self._line += piece[: BUFFERED_BYTES - len(self._line)]

    def _log_line(self) -> None:
        text = self._line.decode(errors="replace").strip()
        self._line.clear()
        if not text:
            return
        if self._clock.monotonic() - self._window_began >= WINDOW_S:
            self._begin_window()
        if self._logged == WINDOW_LINES:
            self._left_out += 1
            return
        self._logged += 1
        log.info("mcp_server_stderr", server=self._server, line=exact(scrub(text, self._secrets))[:LINE_CHARS])

    def _begin_window(self) -> None:
        if self._left_out:
            log.warning("mcp_server_stderr_left_out", server=self._server, lines=self._left_out)
        self._window_began, self._logged, self._left_out = self._clock.monotonic(), 0, 0


class LinkLost(Exception):
    """The connection to the server broke, or the server broke the protocol; the outcome of the call is unknown."""


@dataclass(frozen=True, slots=True)
class McpTool:
    """A tool as the server describes it. The hints are only the server's own claims."""

    name: str
    description: str
    schema: Json
    read_only: bool
    idempotent: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class McpSettings:
    """One server: a program or a URL, the effects of its tools, and the time limits."""

    name: str
    command: tuple[str, ...] = ()  # the program and its arguments
    environment: Mapping[str, str] = field(default_factory=dict)  # for the program, besides the harmless variables
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    folder: Path = Path()
    effects: Mapping[str, Effect] = field(default_factory=dict)  # by the server's own names; `*` for all others
    approval: tuple[str, ...] = ()  # tools whose calls need an approval; `*` for all
    context: bool = False  # send the sender and the chat with each call
    trust_hints: bool = False  # believe the server's claims about its own tools
    start_s: float = 20.0
    call_s: float = 120.0

    def effect_of(self, offer: McpTool) -> Effect:
        """The effect of a tool: as the owner declares it, else as a trusted server claims, else the strictest."""
        declared = self.effects.get(offer.name) or self.effects.get(ALL)
        if declared is not None:
            return declared
        if self.trust_hints and (offer.read_only or offer.idempotent):
            return Effect.PURE if offer.read_only else Effect.IDEMPOTENT
        return Effect.ONCE

    def asks(self, tool: str) -> bool:
        """Whether a person must approve a call to this tool."""
        return bool({tool, ALL} & set(self.approval))

    def scrubbed(self, error: Exception) -> str:
        """An error for the log, without the server's secrets."""
        return scrub(repr(error), self.secrets)[:500]

    @property
    def secrets(self) -> tuple[str, ...]:
        """The secrets that must not appear in the log."""
        return (*self.environment.values(), *self.headers.values())


class McpServer:
    """One MCP server and the one connection to it. It starts in the background; only a call to one of its tools waits for it."""

    def __init__(self, settings: McpSettings, environ: Mapping[str, str], clock: Clock) -> None:
        self._settings = settings
        self._environment = scrubbed(environ) | dict(settings.environment)
        self._clock = clock
        self._link: McpConnection | None = None
        self._serving: asyncio.Task[None] | None = None
        self._decided = asyncio.Event()  # the start succeeded or failed
        self._over = asyncio.Event()
        self._known: tuple[Tool, ...] | None = None
        self._failures = 0
        self._not_before = 0.0
        self._watching: set[asyncio.Task[None]] = set()

    def tools(self) -> Sequence[Tool] | None:
        """The tools it offered last; None before its first connection. A server that is down is started in the background."""
        if self._link is None:
            with suppress(ToolError):
                self._start()
        return self._known

    async def close(self) -> None:
        """Close the connection."""
        for task in self._watching:
            task.cancel()
        await self._drop()

    # -- the connection --------------------------------------------------------------------------------------------------

    async def _linked(self) -> McpConnection:
        """Wait for the connection, starting it if necessary. Raises ToolError when the start fails."""
        if self._current() is None:
            while self._serving is not None and self._over.is_set():  # a connection that is over ends first
                await asyncio.wait({self._serving})
            self._start()
            await self._decided.wait()
        if (link := self._current()) is None:
            raise ToolError(f"the MCP server {self._settings.name} is not available now.")
        return link

    def _current(self) -> McpConnection | None:
        return self._link

    def _start(self) -> None:
        """Start the connection, unless it is being started. Raises ToolError after a recent failure."""
        if self._serving is not None:
            return
        pause = self._not_before - self._clock.monotonic()
        if pause > 0:
            name = self._settings.name
            raise ToolError(f"the MCP server {name} is not available; the next start is in {pause:.0f} seconds.")
        self._decided, self._over = asyncio.Event(), asyncio.Event()
        self._serving = asyncio.create_task(self._serve(), name=f"mcp {self._settings.name}")
        self._watch(self._limit_start(self._serving, self._decided))

    async def _limit_start(self, serving: asyncio.Task[None], decided: asyncio.Event) -> None:
        """Cancel a start that takes too long; calls that wait for it fail at once."""
        try:
            await within(self._clock, self._settings.start_s, decided.wait())
        except TimeoutError:
            log.warning("mcp_server_start_timeout", server=self._settings.name, limit_s=self._settings.start_s)
            serving.cancel()
            decided.set()

    def _watch(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._watching.add(task)
        task.add_done_callback(self._watching.discard)

    async def _serve(self) -> None:
        """Hold the connection until it ends. This task alone enters and leaves its contexts."""
        decided, over = self._decided, self._over
        linked = False
        try:
            library = await asyncio.to_thread(importlib.import_module, "everturn.agent.tools.mcp_link")
            async with self._connecting(library) as link:
                self._known = self._tools_of(await link.offers())
                self._link, self._failures, linked = link, 0, True
                log.info("mcp_server_connected", server=self._settings.name, tools=len(self._known))
                decided.set()
                await over.wait()
        except ModuleNotFoundError as error:
            log.error("mcp_package_missing", missing=error.name, remedy="install everturn[mcp]")  # noqa: TRY400
        except Exception as error:  # noqa: BLE001  whatever a server does, it must not end the gateway
            log.warning("mcp_server_failed", server=self._settings.name, error=self._settings.scrubbed(error))
        finally:
            self._ended(linked=linked)
            decided.set()

    def _connecting(self, library: Any) -> Any:
        settings = self._settings
        return library.linked(
            settings.command,
            settings.url,
            settings.headers,
            folder=settings.folder,
            environment=self._environment,
            errors=ErrorLog(settings.name, settings.secrets, self._clock),
            ended=self._lost,
        )

    def _ended(self, *, linked: bool) -> None:
        """Clean up; after a failed start the next one is delayed, after a lost connection it is not."""
        self._link = None
        self._serving = None
        if not linked:
            self._failures += 1
            self._not_before = self._clock.monotonic() + grown_s(self._failures, FIRST_PAUSE_S, LONGEST_PAUSE_S)

    def _lost(self) -> None:
        """Give up the connection."""
        self._link = None
        self._over.set()

    async def _drop(self) -> None:
        self._lost()
        if (task := self._serving) is not None:
            task.cancel()
            await asyncio.wait({task}, timeout=CHECK_S)

    # -- the tools -------------------------------------------------------------------------------------------------------

    def _tools_of(self, offers: Sequence[McpTool]) -> tuple[Tool, ...]:
        tools: dict[str, Tool] = {}
        for offer in offers:
            name = f"{self._settings.name}_{offer.name}"
            fits = _NAME.fullmatch(name) and len(msgspec.json.encode(offer.schema)) <= SCHEMA_BYTES
            if not fits or name in tools or len(tools) == MOST_TOOLS:
                log.warning("mcp_tool_left_out", server=self._settings.name, tool=offer.name[:100])
                continue
            tools[name] = self._tool(name, offer)
        return tuple(tools.values())

    def _tool(self, name: str, offer: McpTool) -> Tool:
        return Tool(
            name=name,
            description="".join(char for char in offer.description if char.isprintable() or char == "\n")[
                :DESCRIPTION_CHARS
            ],
            parameters=offer.schema,
            run=self._runner(offer.name),
            effect=self._settings.effect_of(offer),
            ask=self._asker(name) if self._settings.asks(offer.name) else no_approval,
        )

    def _asker(self, name: str) -> Ask:
        def ask(given: Json) -> str | None:
            call = exact_json(given)
            return f"Use {name} with {call}?" if fits(call) else None

        return ask

    def _runner(self, tool: str) -> Run:
        async def run(given: Json, place: ToolPlace) -> str:
            if self._settings.asks(tool) and not fits(exact_json(given)):
                raise ToolError(TOO_LONG)
            return await self._call(tool, given, place)

        return run

    def _about(self, place: ToolPlace) -> Json:
        """The metadata of a call: its idempotency key, and sender and chat if the owner wants the server to know them."""
        about: Json = {"everturn/key": place.key}
        return about | ({"everturn/turn": place.turn_info()} if self._settings.context else {})

    async def _call(self, tool: str, given: Json, place: ToolPlace) -> str:
        link, name = await self._linked(), self._settings.name
        try:
            calling = link.call(tool, given, self._about(place), place.turn.active)
            return await within(self._clock, self._settings.call_s, calling)
        except TimeoutError:
            self._check(link)
            limit = f"{self._settings.call_s:g} seconds"
            raise ToolError(f"{name} did not answer within {limit}; the outcome of the call is unknown.") from None
        except LinkLost as error:
            log.warning("mcp_server_lost", server=name, error=self._settings.scrubbed(error))
            if self._link is link:
                self._lost()
            raise ToolError(f"the connection to {name} was lost; the outcome of the call is unknown.") from error

    def _check(self, link: McpConnection) -> None:
        """After a call that took too long, restart a server that does not even list its tools."""

        async def check() -> None:
            try:
                await within(self._clock, CHECK_S, link.offers())
            except Exception as error:  # noqa: BLE001  any answer but a list means no
                log.warning("mcp_server_hangs", server=self._settings.name, error=self._settings.scrubbed(error))
                if self._link is link:
                    await self._drop()

        self._watch(check())
