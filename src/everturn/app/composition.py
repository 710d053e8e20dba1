"""Composes the gateway of its parts, and the web application in front of it."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import structlog

from everturn import __version__
from everturn.agent.cache import Cache, CacheLimits
from everturn.agent.interface import TurnContext
from everturn.app.agents import AgentParts, Agents
from everturn.app.gateway_settings import settings_of
from everturn.app.platforms import chat_platforms, close_all
from everturn.app.supervisor import watch_supervisor
from everturn.app.toolsets import ToolParts, Toolsets
from everturn.clock import SystemClock
from everturn.commands.rules.registry import REGISTRY
from everturn.errors import ConfigError, InstanceClosed
from everturn.home.files import MEGABYTE, Media
from everturn.home.folder import Home, HomeLock, credentials_folder, reachable
from everturn.lifecycle.gateway import Gateway, PlannedStop
from everturn.lifecycle.settings import Settings
from everturn.model import Json, SessionSource
from everturn.people.directory import Channels
from everturn.people.rules.rights import GatewayAddress
from everturn.platform.interface import Platform
from everturn.platform.posted import ApiPlatform, V1Platform, WebPlatform
from everturn.settings import MAIN, Config, ServerConfig
from everturn.settings.config import Loaded
from everturn.store.interface import Store
from everturn.store.open import open_store
from everturn.telemetry.observing import watch_delay
from everturn.telemetry.spans import Tracer, open_tracer
from everturn.web import texts as web_texts
from everturn.web.app import Hooks, WebApp
from everturn.web.conversations import About
from everturn.web.keys import LOGIN_S
from everturn.web.messages import BYTES_PER_CHAR, ROOM_FOR_THE_REST, FileEndpoints
from everturn.web.v1.endpoints import V1Parts
from everturn.web.wire.limits import Bounds
from everturn.web.wire.server import FrontSettings, Operations, PageParts, Serving, bind, make_app
from everturn.web.wire.server import serve as serve_http

log = structlog.get_logger()
EXIT_PLANNED, EXIT_RESTART, EXIT_FAILED = 0, 75, 1
SECOND_SIGNAL_S = 0.5  # a supervisor and a terminal may both pass on the same signal
SWITCH_INTERVAL_S = 0.001  # the writer thread and the event loop hand over often; five milliseconds would stall both
COLLECT_AFTER = (
    10_000  # new objects: a turn's values go without the collector, which looked at what stays for a tenth of its time
)
SPARE_DRAIN_S = 15.0  # beyond the drain limit: after that the process ends, whatever does not let go


def serve(loaded: Loaded, home: Home) -> int:
    """Run the gateway until a stop is requested; returns the process's exit code."""
    set_up_logs()
    tune_interpreter()
    home.create()
    with HomeLock(home) as lock, asyncio.Runner(loop_factory=_loop_factory()) as runner:
        process = runner.run(_make(loaded.config, home, lock))
        code = runner.run(process.run())
    if code == EXIT_RESTART and not process.supervised:
        os.execv(sys.executable, [sys.executable, "-P", "-m", "everturn", *sys.argv[1:]])  # noqa: S606  ourselves again
    return code


def set_up_logs() -> None:
    """Configure logging. The log has events of the process; the timeline of each message is in the database."""
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(levelname)s %(name)s %(message)s")
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.format_exc_info,
            structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty()),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )


def tune_interpreter() -> None:
    """Make threads switch often, and garbage collection rare and without the modules that stay loaded."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    gc.set_threshold(COLLECT_AFTER, *gc.get_threshold()[1:])
    gc.freeze()


async def _make(config: Config, home: Home, lock: HomeLock) -> Process:
    return Process(config, home, lock)


def _end_within(seconds: float, code: int) -> None:
    """End the process after so many seconds: an agent, a tool or an adapter may block the event loop itself."""

    def end() -> None:
        log.error("stop timed out: the process ends now, the next one continues its work")
        os._exit(code)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop  # noqa: PLC0415  only where it exists
    except ModuleNotFoundError:
        return None
    return uvloop.new_event_loop


class Process:
    """One gateway process: its signals, its server, its planned end."""

    def __init__(self, config: Config, home: Home, lock: HomeLock) -> None:
        self._config = config
        self._home = home
        self._lock = lock
        self._stop: asyncio.Future[PlannedStop] = asyncio.get_running_loop().create_future()
        self._asked_at = 0.0
        self._clock = SystemClock()
        self._gateway: Gateway | None = None
        self._media = media_of(home, config)
        self._started_at = time.time()
        self._draining = False
        self._url = ""
        self.supervised = False

    async def run(self) -> int:
        """Open the store, recover, serve, drain, close; returns the exit code."""
        with bind(self._config.server.host, self._config.server.port) as self._listener:
            return await self._run()

    async def _run(self) -> int:
        self._listen_to_signals()
        self.supervised = watch_supervisor(grace_s=self._config.drain.timeout_s + SPARE_DRAIN_S)
        settings = replace(
            settings_of(self._config), home=str(self._home.path), credentials=credentials_folder(os.environ)
        )
        tracer = await asyncio.to_thread(open_tracer, self._config.telemetry, os.environ)
        store = await open_store(self._config.store.url or f"sqlite:///{self._home.database}")
        tools = Toolsets(self._config, self._tool_parts(store))
        agents = Agents(self._config, self._agent_parts(tools))
        try:
            await asyncio.to_thread(tools.make)
            await agents.open()
            return await self._serve(store, agents, settings, tracer)
        finally:
            await agents.close()
            await tools.close()
            await store.close()
            if tracer is not None:
                await tracer.close()

    def _agent_parts(self, tools: Toolsets) -> AgentParts:
        bounds = self._config.cache
        limits = CacheLimits(bounds.entries, bounds.megabytes * 1_000_000, bounds.idle_s)
        return AgentParts(
            home=self._home.path,
            env=os.environ,
            clock=self._clock,
            tools=tools.named,
            compaction=self._config.compaction,
            cache=Cache(limits, self._clock),
        )

    def _tool_parts(self, store: Store) -> ToolParts:
        return ToolParts(
            home=self._home.path,
            env=os.environ,
            clock=self._clock,
            store=store,
            send=self._send,
            places=self._places,
            files=lambda: self._gateway.sending if self._gateway is not None else None,
        )

    def _places(self) -> Channels | None:
        return self._gateway.channels if self._gateway is not None else None

    async def _send(self, turn: TurnContext, call_id: str, to: SessionSource | None, text: str, /) -> bool:
        """Send a tool's message through the gateway, which exists only after its agents and tools."""
        return self._gateway is not None and await self._gateway.sending.send(turn, call_id, to, text)

    async def _serve(self, store: Store, agents: Agents, settings: Settings, tracer: Tracer | None) -> int:
        platform, page, programs = ApiPlatform(), WebPlatform(), V1Platform()
        chats = chat_platforms(self._config, self._home.path, self._clock, store)
        every: list[Platform] = [platform, page, programs, *chats]
        platforms = {each.name: each for each in every}
        self._gateway = gateway = Gateway(store, agents, platforms, self._clock, settings, tracer, media=self._media)
        gateway.stop_requested.add_done_callback(self._stop_as_requested)
        watch_delay(gateway.observing.meters.loop_delay)
        await gateway.start()
        try:
            serving = await self._start_server(gateway, platform, page, programs)
        except ConfigError:
            await gateway.stop(PlannedStop("stop", "the address is in use"))
            await close_all(chats)
            raise
        ends: set[asyncio.Future[Any]] = {self._stop, gateway.failed, serving.ended}
        done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if self._stop not in done:
            return await self._failed(done, gateway, serving)
        stop = self._stop.result()
        code = EXIT_RESTART if stop.kind == "restart" else EXIT_PLANNED
        self._draining = True
        _end_within(self._config.drain.timeout_s + SPARE_DRAIN_S, code)
        await gateway.drain(stop)
        await serving.close()
        await gateway.stop(stop)
        await close_all(chats)
        log.info("ended", kind=stop.kind, reason=stop.reason)
        return code

    async def _start_server(
        self, gateway: Gateway, platform: ApiPlatform, page: WebPlatform, programs: V1Platform
    ) -> Serving:
        server = self._config.server
        app = make_app(
            accept=gateway.intake.accept,
            chats=platform,
            hub=gateway.hub,
            store=gateway.store,
            key_of=gateway.settings.key_of,
            message_chars=self._config.limits.message_chars,
            token=self._home.api_token(),
            control=self,
            people=gateway.people,
            page=page_of(page, self._media, self._config),
            programs=programs_of(programs, self._config),
            hooks=Hooks(gateway.platforms.adapters.values(), gateway.intake.take),
            front=front_of(server),
            meters=gateway.observing.meters,
            operations=Operations(operator=gateway.operator, moves=gateway.hub.changes, people=gateway.people),
        )
        serving = await serve_http(app, server.host, server.port, bounds=bounds_of(server), listener=self._listener)
        self._url = serving.url
        self._lock.update(serving.url)
        if app.access.place.exposed:
            log.warning("listening without encryption", address=serving.url, warning=web_texts.EXPOSED)
        log.info("ready", address=serving.url, home=str(self._home.path), version=__version__)
        again = (
            self.supervised and gateway.report is not None and gateway.report.previous_exit in {"unclean", "restart"}
        )
        await print_login_link(app, server, serving.url, again=again)
        return serving

    async def _failed(self, done: set[asyncio.Future[Any]], gateway: Gateway, serving: Serving) -> int:
        """Log which part failed, and end; the next process finds everything in the database. If other instances closed this
        one, restart under a new instance number.
        """
        if gateway.failed in done and isinstance(closed := gateway.failed.exception(), InstanceClosed):
            log.error("restarting the gateway", error=str(closed))
            await serving.close()
            await gateway.stop(None)
            return EXIT_RESTART
        for future in done:
            with suppress(asyncio.CancelledError):
                log.error("part of the gateway failed", error=repr(future.exception()))
        return EXIT_FAILED

    # -- the control API (web/control.py) ------------------------------------------------------------------------------

    def request_stop(self, kind: str, reason: str) -> None:
        """Begin a planned stop or restart; further requests change nothing."""
        if not self._stop.done():
            self._stop.set_result(PlannedStop(kind, reason))

    def _stop_as_requested(self, asked: asyncio.Future[PlannedStop]) -> None:
        if not asked.cancelled():
            self.request_stop(asked.result().kind, asked.result().reason)

    def ready(self) -> str | None:
        """None when the gateway accepts and answers messages, else why not."""
        if self._gateway is None or not self._url:
            return "the gateway is starting"
        if self._draining:
            return "the gateway is stopping; messages are kept and answered after the next start"
        return None

    def status(self) -> Json:
        """The state of this process, its platforms and its last start."""
        gateway, report = self._gateway, self._gateway.report if self._gateway else None
        return {
            "version": __version__,
            "pid": os.getpid(),
            "url": self._url,
            "started_at": self._started_at,
            "state": "draining" if self._draining else "running",
            "trouble": gateway.store.trouble() if gateway else None,
            "warning": web_texts.EXPOSED if front_of(self._config.server).place.exposed else None,
            "running_turns": len(gateway.turns.running()) if gateway else 0,
            "denied": dict(gateway.intake.strangers.denied) if gateway else {},
            "platforms": gateway.contacts.listed() if gateway else [],
            "resumes_delayed": gateway.turns.lanes.delayed_resumes() if gateway else 0,
            "last_start": {name: getattr(report, name) for name in report.__slots__} if report else None,
        }

    # -- signals -------------------------------------------------------------------------------------------------------

    def _listen_to_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            with suppress(NotImplementedError):  # Windows: the console's own handler ends us, which is safe
                loop.add_signal_handler(number, self._signalled, number)

    def _signalled(self, number: int) -> None:
        """Begin a planned stop; a second signal ends the process at once, which is safe."""
        now = time.monotonic()
        if self._asked_at and now - self._asked_at > SECOND_SIGNAL_S:
            os._exit(EXIT_FAILED)
        self._asked_at = self._asked_at or now
        self.request_stop("stop", f"signal {signal.Signals(number).name}")


def media_of(home: Home, config: Config) -> Media:
    """The store of files in the home, with its limits."""
    limits = config.limits
    return Media(home.files, int(limits.file_megabytes * MEGABYTE), int(limits.files_megabytes * MEGABYTE))


def page_of(platform: WebPlatform, media: Media, config: Config) -> PageParts:
    """The parts of the page."""
    commands: tuple[Json, ...] = tuple(
        {"name": each.name, "arguments": each.arguments, "line": each.line} for each in REGISTRY
    )
    return PageParts(
        chats=platform,
        files=FileEndpoints(media),
        about=About(
            version=__version__,
            commands=commands,
            message_chars=config.limits.message_chars,
            file_bytes=media.most,
        ),
    )


def programs_of(platform: V1Platform, config: Config) -> V1Parts:
    """The parts of the OpenAI API: its models are our agents."""
    return V1Parts(
        clients=platform,
        models=(MAIN, *config.agents),
        most_body=config.limits.message_chars * BYTES_PER_CHAR + ROOM_FOR_THE_REST,
    )


def front_of(server: ServerConfig) -> FrontSettings:
    """The gateway's address, and how many requests a client may make."""
    return FrontSettings(place=GatewayAddress(server.host, server.public_url), per_minute=server.requests_per_minute)


def bounds_of(server: ServerConfig) -> Bounds:
    """The limits for connections without a credential."""
    return Bounds(of_address=server.connections_per_address)


async def print_login_link(app: WebApp, server: ServerConfig, url: str, *, again: bool) -> None:
    """Print a one-time login link on a terminal; never to a log, and not after a restart."""
    if sys.stdout.isatty() and not again:
        login = await app.visits.make()
        print(web_texts.one_login(login.link(server.public_url or reachable(url)), LOGIN_S / 60), flush=True)  # noqa: T201
