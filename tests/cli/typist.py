"""A person at a terminal that runs `everturn`."""

import os
import pty
import select
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Self

from tests.cli.program import PROGRAM, environment
from tests.waiting import WAIT_S, NotSeen

AGAIN_S = WAIT_S / 15  # a person whose key was not heard presses it again


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

    def presses(self, key: str, shown: str) -> str:
        """Press a key until this stands on the screen: Ctrl-D between two prompts, before the line editor has the terminal
        again, means nothing to it.
        """
        until = time.monotonic() + WAIT_S
        while time.monotonic() < until:
            self.enter(key)
            with suppress(NotSeen):
                return self.shows(shown, AGAIN_S)
        return self.shows(shown)

    def shows(self, text: str, within_s: float = WAIT_S) -> str:
        """Wait until this stands on the screen; all that stands there."""
        until = time.monotonic() + within_s
        while text.encode() not in self._seen:
            ready, _, _ = select.select([self._ours], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                raise NotSeen(f"{text!r} not within {within_s:g} s; on the screen instead:\n{self._screen()}")
            self._seen += os.read(self._ours, 4096)
        return self._screen()

    def ends(self) -> int:
        """Wait for its end; the exit code."""
        try:
            return self._process.wait(WAIT_S)
        except subprocess.TimeoutExpired:
            raise NotSeen(f"it did not end within {WAIT_S:g} s; on the screen:\n{self._screen()}") from None

    def interrupts(self) -> int:
        """Ctrl-C, again if it was too early to be heard: the line editor misses one between its prompt and its wait."""
        until = time.monotonic() + WAIT_S
        while time.monotonic() < until:
            self._process.send_signal(signal.SIGINT)
            try:
                return self._process.wait(AGAIN_S)
            except subprocess.TimeoutExpired:
                continue
        return self.ends()

    def _screen(self) -> str:
        return self._seen.decode(errors="replace")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.wait(WAIT_S)
        os.close(self._ours)


def at_a_terminal(home: Path, arguments: list[str], scenario: list[tuple[str, Callable[[], object], str]]) -> str:
    """What is shown, what happens then, and what is typed; all that stood on the screen in the end."""
    seen = ""
    with Typist(*arguments, home=home) as typist:
        for shown, happens, typed in scenario:
            seen = typist.shows(shown)
            happens()
            typist.enter(typed)
        assert typist.ends() == 0
    return seen
