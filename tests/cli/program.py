"""The `everturn` program as real processes: commands that run to their end, and gateways that keep running.

Where the process is not the point, `called` runs a command in our own: the same function, without the start of an interpreter.
"""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from click.testing import CliRunner

from everturn.cli.commands import main
from everturn.home.folder import Holder, Home, holder
from tests.waiting import WAIT_S, NotSeen

PROGRAM = [sys.executable, "-P", "-m", "everturn"]
DEMO = {"EVERTURN_AGENT_KIND": "demo"}


def environment(**more: str) -> dict[str, str]:
    """Ours without any setting of a gateway; the scripted demo answers unless a test wants another agent. Its bytecode is kept:
    hundreds of starts pay for it once.
    """
    ours = {name: value for name, value in os.environ.items() if not name.startswith("EVERTURN_")}
    ours.pop("PYTHONDONTWRITEBYTECODE", None)
    return ours | DEMO | more


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended and what it wrote."""

    code: int
    out: str
    err: str


def everturn(*arguments: str, home: Path | None = None, text: str = "", **env: str) -> Ended:
    """Run one command to its end, with this text as its input."""
    command = [*PROGRAM, *with_home(arguments, home)]
    try:
        done = subprocess.run(
            command, input=text, capture_output=True, text=True, env=environment(**env), timeout=WAIT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise NotSeen(
            f"{arguments} did not end within {WAIT_S:g} s; it wrote {error.output!r} {error.stderr!r}"
        ) from None
    assert "Traceback" not in done.stderr, done.stderr
    return Ended(done.returncode, done.stdout, done.stderr)


def called(*arguments: str, home: Path | None = None, text: str = "", **env: str) -> Ended:
    """The same without a process of its own; in a thread, as a loop may run in ours."""
    none = {name: None for name in os.environ if name.startswith("EVERTURN_")}
    ended: Future[int] = Future()
    with CliRunner().isolation(text, none | DEMO | env) as (out, err, _):
        threading.Thread(target=end, args=(ended, with_home(arguments, home)), daemon=True).start()
        try:
            code = ended.result(WAIT_S)
        except TimeoutError:
            seen = out.getvalue() + err.getvalue()
            raise NotSeen(f"{arguments} did not end within {WAIT_S:g} s; it wrote {seen!r}") from None
        sys.stdout.flush()
        sys.stderr.flush()
    return Ended(code, out.getvalue().decode(), err.getvalue().decode())


def end(ended: Future[int], arguments: list[str]) -> None:
    """What `everturn` does, and how that ended."""
    try:
        ended.set_result(main(arguments))
    except BaseException as error:  # noqa: BLE001  the caller gets it
        ended.set_exception(error)


def with_home(arguments: Sequence[str], home: Path | None) -> list[str]:
    return [*arguments, *(["--home", str(home)] if home else [])]


class Program:
    """A process that keeps running; its output is collected, and can be waited for."""

    def __init__(self, *arguments: str, home: Path, before: Sequence[str] = (), **env: str) -> None:
        self._process = subprocess.Popen(
            [*before, *PROGRAM, *with_home(arguments, home)],
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
            if not self._changed.wait_for(lambda: true(self.output), WAIT_S):
                raise NotSeen(f"not within {WAIT_S:g} s; it wrote instead:\n{self.output}")
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
        try:
            code = self._process.wait(WAIT_S)
        except subprocess.TimeoutExpired:
            raise NotSeen(f"it did not end within {WAIT_S:g} s; it wrote:\n{self.output}") from None
        self._reader.join(WAIT_S)
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
        self.home = home

    def ready(self, times: int = 1) -> Holder:
        """Wait until it has said so many times where it listens."""
        self.until(lambda output: output.count("http://127.0.0.1:") >= times)
        return self.holder()

    def holder(self) -> Holder:
        """Who holds the home, as everybody can see."""
        process = holder(Home(self.home))
        assert process is not None
        return process
