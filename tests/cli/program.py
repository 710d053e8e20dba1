"""The `everturn` program as real processes: commands that run to their end, and gateways that keep running."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from everturn.home import Holder, Home, holder

PROGRAM = [sys.executable, "-P", "-m", "everturn"]
LONGEST_S = 120


def environment(**more: str) -> dict[str, str]:
    """Ours without any setting of a gateway; the scripted demo answers unless a test wants another agent."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("EVERTURN_")}
    return ours | {"EVERTURN_AGENT_KIND": "demo"} | more


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended and what it wrote."""

    code: int
    out: str
    err: str


def everturn(*arguments: str, home: Path | None = None, text: str = "", **env: str) -> Ended:
    """Run one command to its end, with this text as its input."""
    command = [*PROGRAM, *arguments, *(["--home", str(home)] if home else [])]
    done = subprocess.run(
        command, input=text, capture_output=True, text=True, env=environment(**env), timeout=LONGEST_S, check=False
    )
    assert "Traceback" not in done.stderr, done.stderr
    return Ended(done.returncode, done.stdout, done.stderr)


class Program:
    """A process that keeps running; its output is collected, and can be waited for."""

    def __init__(self, *arguments: str, home: Path, before: Sequence[str] = (), **env: str) -> None:
        self._process = subprocess.Popen(
            [*before, *PROGRAM, *arguments, "--home", str(home)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment(**env),
        )  # fmt: skip
        self._lines: list[str] = []
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def output(self) -> str:
        """What it wrote so far."""
        return "".join(self._lines)

    def until(self, true: Callable[[str], bool]) -> str:
        """Wait until this is true of its output."""
        with self._changed:
            assert self._changed.wait_for(lambda: true(self.output), LONGEST_S), self.output
        return self.output

    def shows(self, text: str) -> str:
        """Wait until it wrote this."""
        return self.until(lambda output: text in output)

    def enter(self, text: str) -> None:
        """Write to its input."""
        assert self._process.stdin is not None
        self._process.stdin.write(text)
        self._process.stdin.flush()

    def kill(self, number: int = signal.SIGKILL) -> int:
        """Send it a signal and wait for its end."""
        self._process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        """Wait for its end; the exit code."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        code = self._process.wait(LONGEST_S)
        self._reader.join(LONGEST_S)
        return code

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as stream:
            for line in stream:
                with self._changed:
                    self._lines.append(line)
                    self._changed.notify_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()


class GatewayProgram(Program):
    """`everturn run` on a free port."""

    def __init__(self, home: Path, *arguments: str, before: Sequence[str] = (), **env: str) -> None:
        super().__init__("run", "--port", "0", *arguments, home=home, before=before, **env)
        self._home = Home(home)

    def ready(self, times: int = 1) -> Holder:
        """Wait until it has said so many times where it listens."""
        self.until(lambda output: output.count("http://127.0.0.1:") >= times)
        return self.holder()

    def holder(self) -> Holder:
        """Who holds the home, as everybody can see."""
        who = holder(Home(self._home.path))
        assert who is not None
        return who
