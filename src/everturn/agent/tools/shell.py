"""The tool `run_command`. Each command needs an approval, unless the owner switched that off."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from everturn.agent.toolbox import Tool, ToolError, ToolPlace
from everturn.agent.tools.arguments import Arguments, Text, says, tool, within
from everturn.agent.tools.children import Child, scrubbed
from everturn.clock import Clock
from everturn.errors import ToolFailed
from everturn.model import Effect
from everturn.turns.rules.approvals import exact, fits
from everturn.turns.rules.turn_texts import TOO_LONG
from everturn.turns.rules.turns import as_variables


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
