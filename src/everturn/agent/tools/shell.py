"""The tool `run_command`, and the child processes of tools: in a group of their own, and never outliving the gateway.

A command needs an approval, unless the owner switched that off. A child gets a scrubbed environment. A guard in each group reads
a pipe that only the gateway holds open. When the gateway closes it, or dies in whatever way, the guard kills the whole group: no
signal handler of ours has to run for that.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Literal, cast

from everturn.agent.toolbox import Arguments, Text, Tool, ToolError, ToolPlace, says, tool, within
from everturn.clock import Clock
from everturn.errors import ToolFailed
from everturn.model import Effect
from everturn.turns.rules.approvals import exact, fits
from everturn.turns.rules.turn_texts import TOO_LONG
from everturn.turns.rules.turns import as_variables

# The guard's pipe comes as standard error: only the numbers 0 to 2 can be given to every shell.
_GUARD = '( read -r end <&2; kill -KILL 0 ) </dev/null >/dev/null & exec 2>{errors}; exec "$@"'
LAST_OUTPUT_S = 5.0  # for what is still in the pipe when everything was killed
_PASSED = frozenset({"HOME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER"})


def scrubbed(environ: Mapping[str, str], more: Sequence[str] = ()) -> dict[str, str]:
    """The part of our environment that a child may see: a few harmless variables, and those the owner named."""
    names = _PASSED | set(more)
    kept = {name: value for name, value in environ.items() if name in names or name.startswith("LC_")}
    return {"PATH": os.defpath, **kept}


class _Watcher(asyncio.SubprocessProtocol):
    """Passes on the program's output. Its exit is noticed at once, whoever still holds its pipes."""

    def __init__(self, said: Callable[[bytes], None]) -> None:
        self._said = said
        self.ended = asyncio.Event()
        self.silent = asyncio.Event()

    def pipe_data_received(self, fd: int, data: bytes) -> None:  # noqa: ARG002  there is only one
        self._said(data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:  # noqa: ARG002  the end is what counts
        if fd == 1:
            self.silent.set()

    def process_exited(self) -> None:
        self.ended.set()


class _ErrorOutput(asyncio.Protocol):
    """Passes on what the program writes to its standard error."""

    def __init__(self, heard: Callable[[bytes], None]) -> None:
        self._heard = heard
        self.silent = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        self._heard(data)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  the end is what counts
        self.silent.set()


class Child:
    """A child process, with all that it started."""

    def __init__(
        self,
        transport: asyncio.SubprocessTransport,
        watcher: _Watcher,
        guard: int,
        error_output: tuple[asyncio.BaseTransport, _ErrorOutput] | None,
    ) -> None:
        self._transport = transport
        self._watcher = watcher
        self._guard = guard
        self._error_output = error_output

    @classmethod
    async def start(
        cls,
        command: Sequence[str],
        said: Callable[[bytes], None],
        *,
        folder: Path,
        environment: Mapping[str, str],
        errors: Callable[[bytes], None] | None = None,
        talks: bool = False,
    ) -> Child:
        """Start a program. `errors` gets its standard error, otherwise `said` does; with `talks` its input is a pipe."""
        if os.name != "posix":
            raise ToolError("programs cannot be run on this system.")
        loop = asyncio.get_running_loop()
        watch, guard = os.pipe()
        passed, target = [watch], "&1"
        error_output: tuple[asyncio.BaseTransport, _ErrorOutput] | None = None
        try:
            if errors is not None:
                heard, written = os.pipe()
                passed.append(written)
                target = f"/dev/fd/{written}"
                error_output = await loop.connect_read_pipe(partial(_ErrorOutput, errors), os.fdopen(heard, "rb", 0))
            transport, watcher = await loop.subprocess_exec(
                lambda: _Watcher(said),
                "/bin/sh", "-c", _GUARD.format(errors=target), "sh", *command,
                stdin=asyncio.subprocess.PIPE if talks else asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=watch,
                pass_fds=passed[1:],
                cwd=folder,
                env=dict(environment),
                start_new_session=True,
            )  # fmt: skip
        except BaseException:  # also when we are cancelled: the guard sees the pipe closed
            os.close(guard)
            if error_output is not None:
                error_output[0].close()
            raise
        finally:
            for each in passed:
                os.close(each)
        return cls(transport, watcher, guard, error_output)

    @property
    def code(self) -> int | None:
        """The exit code; None while it runs."""
        return self._transport.get_returncode()

    async def ended(self) -> None:
        """Wait for its exit, but not for what it left running."""
        await self._watcher.ended.wait()

    def write(self, data: bytes) -> None:
        """Write to its standard input."""
        pipe = self._input()
        if pipe is not None and not pipe.is_closing():
            pipe.write(data)

    def unread(self) -> int:
        """How many written bytes it has not read yet."""
        pipe = self._input()
        return pipe.get_write_buffer_size() if pipe is not None else 0

    def _input(self) -> asyncio.WriteTransport | None:
        """The pipe to its standard input. Cast, not checked: uvloop's transports are none of asyncio's classes."""
        return cast("asyncio.WriteTransport | None", self._transport.get_pipe_transport(0))

    def kill(self) -> None:
        """Kill the whole process group. The guard is in the group, so the id is still the group's."""
        if self._guard < 0:
            return
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._transport.get_pid(), signal.SIGKILL)
        os.close(self._guard)
        self._guard = -1

    async def close(self) -> None:
        """Kill it, read its last output, and close its pipes; bounded in time, should something have left the group."""
        self.kill()
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(LAST_OUTPUT_S):
                    await self._watcher.ended.wait()
                    await self._watcher.silent.wait()
                    if self._error_output is not None:
                        await self._error_output[1].silent.wait()
        finally:
            with suppress(ProcessLookupError, PermissionError):
                self._transport.close()
            if self._error_output is not None:
                self._error_output[0].close()


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellSettings:
    """Where commands run, whether they need an approval, and their limits of time and output."""

    folder: Path
    approval: Literal["ask", "never"] = "ask"
    time_s: float = 120.0
    output_bytes: int = 200_000
    environment: tuple[str, ...] = ()  # more variables that commands may see


class RunCommand(Arguments, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which command to run."""

    command: Annotated[Text, says("A command for the shell. It has no input and no terminal.")]


class HeadAndTail:
    """Keeps the beginning and the end of an output, in bounded memory."""

    def __init__(self, most: int) -> None:
        self._half = max(1, most // 2)
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._kept = 0
        self._left_out = 0

    def add(self, data: bytes) -> None:
        """Take more output."""
        room = self._half - len(self._head)
        self._head += data[:room]
        rest = data[room:]
        if rest:
            self._tail.append(rest)
            self._kept += len(rest)
        while self._kept > self._half:
            first = self._tail.popleft()
            over = min(self._kept - self._half, len(first))
            self._left_out += over
            self._kept -= over
            if len(first) > over:
                self._tail.appendleft(first[over:])

    def text(self) -> str:
        """The output, with a note where something was left out."""
        gap = f"\n[... {self._left_out} bytes were not kept ...]\n" if self._left_out else ""
        tail = b"".join(self._tail)
        if not gap:
            return (bytes(self._head) + tail).decode(errors="replace")
        return self._head.decode(errors="replace") + gap + tail.decode(errors="replace")


class Shell:
    """The tool `run_command`."""

    def __init__(self, settings: ShellSettings, environ: Mapping[str, str], clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._environment = scrubbed(environ, settings.environment)

    def tools(self) -> list[Tool]:
        """The one tool."""
        return [
            tool(
                RunCommand,
                self._run,
                name="run_command",
                description=f"Run a shell command; it is ended after {self._settings.time_s:g} seconds.",
                effect=Effect.ONCE,
                ask=self._approval_request if self._settings.approval == "ask" else None,
            )
        ]

    def _approval_request(self, what: RunCommand) -> str | None:
        """The approval request: the whole command in one line. A command that is too long to be shown is not run at all."""
        call = exact(what.command)
        return f"Run this command? {call}" if fits(call) else None

    async def _run(self, what: RunCommand, place: ToolPlace) -> str:
        if self._settings.approval == "ask" and not fits(exact(what.command)):
            raise ToolError(TOO_LONG)
        output = HeadAndTail(self._settings.output_bytes)

        def said(data: bytes) -> None:
            output.add(data)
            place.turn.active()

        try:
            code = await within(self._clock, self._settings.time_s, self._code_of(what.command, place, said))
            ended = f"ended with code {code}"
        except TimeoutError:
            code, ended = None, f"was killed after {self._settings.time_s:g} seconds"
        result = f"The command {ended}. Its output:\n{output.text()}"
        if code != 0:
            raise ToolFailed(result)
        return result

    async def _code_of(self, command: str, place: ToolPlace, said: Callable[[bytes], None]) -> int | None:
        """Run a command to its end; a cancellation kills it."""
        try:
            child = await Child.start(
                ("/bin/sh", "-c", command),
                said,
                folder=self._settings.folder,
                environment=self._environment | as_variables(place.turn_info()),
            )
        except (OSError, ValueError) as error:
            raise ToolError(f"the command could not be started ({type(error).__name__}).") from error
        try:
            await child.ended()
            return child.code
        finally:
            await child.close()  # what it left running ends with it


def shell_tools(settings: ShellSettings, environ: Mapping[str, str], clock: Clock) -> list[Tool]:
    """The tool that runs commands."""
    return Shell(settings, environ, clock).tools()
