"""A person at a terminal that runs `everturn`."""

import os
import pty
import select
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Self

from tests.cli.program import LONGEST_S, PROGRAM, environment


class Typist:
    """A person at a terminal."""

    def __init__(self, *arguments: str, home: Path) -> None:
        self._ours, theirs = pty.openpty()
        command = [*PROGRAM, *arguments, "--home", str(home)]
        self._process = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment(TERM="xterm"), start_new_session=True
        )
        os.close(theirs)
        self._seen = b""

    def enter(self, text: str) -> None:
        """Type."""
        os.write(self._ours, text.encode())

    def shows(self, text: str) -> str:
        """Wait until this stands on the screen; all that stands there."""
        while text.encode() not in self._seen:
            ready, _, _ = select.select([self._ours], [], [], LONGEST_S)
            assert ready, self._seen.decode()
            self._seen += os.read(self._ours, 4096)
        return self._seen.decode()

    def ends(self) -> int:
        """Wait for its end; the exit code."""
        return self._process.wait(LONGEST_S)

    def interrupts(self) -> int:
        """Ctrl-C, again if it was too early to be heard."""
        while True:
            self._process.send_signal(signal.SIGINT)
            try:
                return self._process.wait(15)
            except subprocess.TimeoutExpired:
                continue

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.wait(LONGEST_S)
        os.close(self._ours)


def at_a_terminal(home: Path, arguments: list[str], story: list[tuple[str, Callable[[], object], str]]) -> str:
    """What is shown, what happens then, and what is typed; all that stood on the screen in the end."""
    seen = ""
    with Typist(*arguments, home=home) as typist:
        for shown, happens, typed in story:
            seen = typist.shows(shown)
            happens()
            typist.enter(typed)
        assert typist.ends() == 0
    return seen
