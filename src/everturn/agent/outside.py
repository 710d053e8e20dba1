"""The agents outside the gateway: a program (`kind = "process"`), one for each turn, which speaks the wire protocol on its standard
streams; and an endpoint (`kind = "http"`), with one POST for each request.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import httpx2
import structlog

from everturn.agent.interface import Answer, TurnContext
from everturn.agent.wire import AgentGone, ProtocolViolation, WireAgent, WireSettings
from everturn.clock import Clock
from everturn.errors import Unanswerable
from everturn.http_client import HttpClient
from everturn.turns.rules.turns import PREFIX

log = structlog.get_logger()
GRACE_S = 2.0  # for a program whose input has ended
MOST_LOG_CHARS = 500
CHUNK = 1 << 16
OWN_VARIABLES = ("EVERTURN_", PREFIX)  # settings, and the place of a turn that may have started this gateway
CONNECT_S = 10.0
MOST_CONNECTIONS = 1_000
LATER = frozenset({408, 425, 429, 500, 502, 503, 504})
CONTENT_TYPE = "application/x-ndjson"


class ProcessAgent:
    """Starts the program when a turn begins and ends it with the turn; a program that died is started again."""

    def __init__(
        self, command: Sequence[str], folder: Path, env: Mapping[str, str], clock: Clock, settings: WireSettings
    ) -> None:
        self._command = tuple(command)
        self._folder = folder
        self._env = {name: value for name, value in env.items() if not name.startswith(OWN_VARIABLES)}
        self._settings = settings
        self._wire = WireAgent(self._connect, clock, settings)
        self._ending: set[asyncio.Task[None]] = set()

    async def run(self, turn: TurnContext) -> Answer:
        """Answer one turn."""
        return await self._wire.run(turn)

    async def close(self) -> None:
        """Wait for the programs that are ending; no turn runs any more."""
        while self._ending:
            await asyncio.wait(self._ending)

    def _connect(self) -> _Program:
        return _Program(self)

    async def start_program(self) -> Process:
        """Start the program, in a process group of its own so that it can be ended with its children."""
        try:
            return await asyncio.create_subprocess_exec(
                *self._command, stdin=PIPE, stdout=PIPE, stderr=PIPE, cwd=self._folder, env=self._env,
                limit=self._settings.line_bytes, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            why = f"the agent's program {self._command[0]!r} cannot be started ({error.strerror})"
            raise Unanswerable(why, "agent_not_started") from None

    def end_program(self, process: Process, *, at_once: bool) -> None:
        """End a program in the background; nobody waits for a program that takes its time."""
        if at_once:
            _kill(process)
        task = asyncio.create_task(_end(process))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)


class _Program:
    """The program of one attempt of a turn."""

    def __init__(self, agent: ProcessAgent) -> None:
        self._agent = agent
        self._process: Process | None = None
        self._errors: asyncio.Task[None] | None = None

    async def ask(self, request: bytes) -> AsyncGenerator[bytes, None]:
        """Write the request and yield the lines of the reply."""
        process = await self._running()
        assert process.stdin is not None  # noqa: S101  we asked for pipes
        assert process.stdout is not None  # noqa: S101
        try:
            # It may have ended since its last reply: then there is nothing to write to, and uvloop would raise RuntimeError.
            if not process.stdin.is_closing():
                process.stdin.write(request)
                await process.stdin.drain()
            while line := await process.stdout.readline():
                yield line
        except ValueError:
            raise ProtocolViolation("a line of its reply is too long") from None
        except ConnectionError:
            pass
        raise AgentGone(await self._how_it_ended(process))

    def drop(self) -> None:
        """Kill the program; the next request starts another."""
        process, self._process = self._process, None
        if process is not None:
            self._agent.end_program(process, at_once=True)

    def leave(self) -> None:
        """Let the program end."""
        process, self._process = self._process, None
        if process is not None:
            self._agent.end_program(process, at_once=False)

    async def _running(self) -> Process:
        if self._process is None:
            self._process = await self._agent.start_program()
            self._errors = asyncio.create_task(_log_errors(self._process))
        return self._process

    async def _how_it_ended(self, process: Process) -> str:
        """Say how a program ended that closed its output: it is ending, or as good as dead."""
        self.drop()
        code = await process.wait()
        if code in {-signal.SIGKILL, 0}:
            return "the agent's program ended in the middle of its reply"
        return f"the agent's program ended with code {code} in the middle of its reply"


async def _log_errors(process: Process) -> None:
    """Log what the program writes to standard error, bounded; it never blocks the program."""
    assert process.stderr is not None  # noqa: S101
    while True:
        try:
            line = await process.stderr.readline()
        except ValueError:
            continue  # longer than our buffer: what was read of it is gone
        if not line:
            return
        log.info("agent_program_stderr", pid=process.pid, line=line.decode(errors="replace").rstrip()[:MOST_LOG_CHARS])


async def _end(process: Process) -> None:
    if process.stdin is not None:
        process.stdin.close()
    with suppress(TimeoutError):
        await asyncio.wait_for(process.wait(), GRACE_S)
    _kill(process)  # and what it left behind in its group
    await process.wait()
    with suppress(TimeoutError):
        await asyncio.wait_for(_read_rest(process), GRACE_S)


async def _read_rest(process: Process) -> None:
    """Read the rest of its output: only then the pipe is closed."""
    while process.stdout is not None and await process.stdout.read(CHUNK):
        pass


def _kill(process: Process) -> None:
    with suppress(ProcessLookupError, PermissionError):
        if sys.platform == "win32":
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)


class EndpointAgent:
    """Runs turns through an HTTP endpoint. Its address and key never appear in a text for users."""

    def __init__(self, url: str, key: str | None, clock: Clock, settings: WireSettings) -> None:
        headers = {"Content-Type": CONTENT_TYPE, "Accept": CONTENT_TYPE}
        if key:
            headers["Authorization"] = f"Bearer {key}"
        self._url = url
        self._settings = settings
        # How long the agent may be silent is counted by the gateway's clock, not here.
        self._client = HttpClient(
            headers=headers,
            timeout=httpx2.Timeout(None, connect=CONNECT_S, pool=None),
            limits=httpx2.Limits(max_connections=MOST_CONNECTIONS, max_keepalive_connections=20),
        )
        self._wire = WireAgent(self._connect, clock, settings)

    async def run(self, turn: TurnContext) -> Answer:
        """Answer one turn."""
        return await self._wire.run(turn)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    def _connect(self) -> _Endpoint:
        return _Endpoint(self._client, self._url, self._settings.line_bytes)


class _Endpoint:
    """The endpoint for one attempt. It has nothing to drop or leave: each request has its own connection."""

    def __init__(self, client: HttpClient, url: str, line_bytes: int) -> None:
        self._client = client
        self._url = url
        self._line_bytes = line_bytes

    async def ask(self, request: bytes) -> AsyncGenerator[bytes, None]:
        """POST the request and yield the reply line by line."""
        try:
            async with self._client.stream("POST", self._url, content=request) as response:
                _check(response)
                async for line in _lines(response.aiter_bytes(), self._line_bytes):
                    yield line
        except httpx2.ConnectError:
            raise AgentGone("the agent's endpoint cannot be reached") from None
        except httpx2.TransportError as error:
            raise AgentGone(f"the connection to the agent's endpoint was lost ({type(error).__name__})") from None

    def drop(self) -> None:
        """Do nothing: there is no state."""

    def leave(self) -> None:
        """Do nothing: there is no state."""


def _check(response: httpx2.Response) -> None:
    if response.status_code == httpx2.codes.OK:
        return
    why = f"the agent's endpoint answered with status {response.status_code}"
    if response.status_code in LATER:
        delay = response.headers.get("Retry-After", "")
        raise AgentGone(why, float(delay) if delay.isdigit() else None)
    if response.status_code in {401, 403}:
        why += "; check the key in the variable that api_key_env names"
    raise Unanswerable(why, "agent_refused")


async def _lines(chunks: AsyncIterator[bytes], most: int) -> AsyncIterator[bytes]:
    rest = b""
    async for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line
        if len(rest) > most:
            raise ProtocolViolation("a line of its reply is too long")
    if rest:
        yield rest
