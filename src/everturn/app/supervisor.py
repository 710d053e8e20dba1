"""The supervisor process that starts the gateway again, and the watch that ends a gateway without its supervisor.

The parent holds the write end of a pipe and never writes. The child reads it: its end means that the parent is gone, even
by SIGKILL, and the child can still drain.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from types import TracebackType
from typing import Any, Self

from everturn.pauses import Backoff

PLANNED = 0
FAILED = 1
RESTART = 75
BAD_CONFIG = 78
FD_VARIABLE = "EVERTURN_SUPERVISOR_FD"
_WINDOWS = os.name == "nt"
_POLL_S = 0.2 if _WINDOWS else None  # Windows has no SIGCHLD: look from time to time
_STOP_NAMES = ("SIGTERM", "SIGINT", "SIGHUP", "SIGBREAK")
_STOPS = frozenset(int(getattr(signal, name)) for name in _STOP_NAMES if hasattr(signal, name))
_CHILD = int(getattr(signal, "SIGCHLD", 0))


class _Signals:
    """Receives signals as bytes in a socket, so that no work is done inside a handler and none is missed."""

    def __enter__(self) -> Self:
        self._ours, self._theirs = socket.socketpair()
        self._ours.setblocking(False)
        self._theirs.setblocking(False)
        # What the caller ignores (nohup) stays ignored.
        wanted = [number for number in _STOPS if signal.getsignal(number) is not signal.SIG_IGN]
        self._before = {number: signal.signal(number, _noticed) for number in (*wanted, *filter(None, [_CHILD]))}
        self._wakeup = signal.set_wakeup_fd(self._theirs.fileno(), warn_on_full_buffer=False)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal.set_wakeup_fd(self._wakeup)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._ours.close()
        self._theirs.close()

    def wait(self, timeout_s: float | None) -> bytes:
        """The numbers of the signals that came; empty after the timeout."""
        ready, _, _ = select.select([self._ours], [], [], timeout_s)
        return self._ours.recv(4096) if ready else b""


def _noticed(number: int, frame: object) -> None:
    """Do nothing: Python needs a handler, but the byte in the socket does the work."""


class _Supervisor:
    def __init__(self, command: Sequence[str], env: Mapping[str, str], backoff: Backoff, signals: _Signals) -> None:
        self._command = command
        self._env = env
        self._backoff = backoff
        self._signals = signals
        self._asked: int | None = None
        self._read_end, self._write_end = os.pipe()

    def run(self) -> int:
        delay_s = 0.0
        while True:
            started = time.monotonic()
            code = self._run_child()
            if self._asked is not None:
                return _after_stop(code, self._asked)
            if code in {PLANNED, BAD_CONFIG}:
                return code
            if code == RESTART:
                _say("the gateway asked for a restart; starting it again")
                continue
            delay_s = self._backoff.next_delay_s(delay_s, time.monotonic() - started)
            _say(f"the gateway ended unexpectedly ({_how(code)}); starting it again in {delay_s:g} s")
            if not self._pause(delay_s):
                return PLANNED

    def _run_child(self) -> int:
        """Start the child, pass stop signals on to it, and wait for its end; returns its exit code."""
        try:
            child = self._start()
        except OSError as error:
            _say(f"the gateway cannot be started: {error}")
            return FAILED
        while child.poll() is None:
            for number in self._signals.wait(_POLL_S):
                if number in _STOPS:
                    self._forward(child, number)
        return int(child.returncode)

    def _start(self) -> subprocess.Popen[bytes]:
        # A session of its own: Ctrl-C reaches the child once, through us, and not a second time from the terminal.
        how: dict[str, Any] = {"stdin": subprocess.DEVNULL, "pass_fds": (self._read_end,), "start_new_session": True}
        number = self._read_end
        if _WINDOWS:
            how, number = {"stdin": self._read_end}, 0
        return subprocess.Popen(self._command, env={**self._env, FD_VARIABLE: str(number)}, **how)  # noqa: S603

    def _forward(self, child: subprocess.Popen[bytes], number: int) -> None:
        if self._asked is not None:
            child.kill()
        elif _WINDOWS:
            self.close()  # there a signal would kill; the end of the pipe asks
        else:
            child.send_signal(number)
        self._asked = number

    def _pause(self, delay_s: float) -> bool:
        """Wait before the next start; False when a stop signal came."""
        until = time.monotonic() + delay_s
        while (left_s := until - time.monotonic()) > 0:
            if _STOPS.intersection(self._signals.wait(left_s)):
                return False
        return True

    def close(self) -> None:
        for number in (self._read_end, self._write_end):
            if number >= 0:
                os.close(number)
        self._read_end = self._write_end = -1


def _after_stop(code: int, asked: int) -> int:
    """Our exit code after a stop: planned, also when the signal ended the child before it could handle it."""
    if code in {PLANNED, RESTART, -asked}:
        return PLANNED
    return code if code > 0 else FAILED


def _how(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def _say(text: str) -> None:
    print(f"everturn: {text}", file=sys.stderr, flush=True)  # noqa: T201  no log is set up in the parent


def supervise(command: Sequence[str], *, env: Mapping[str, str] | None = None, backoff: Backoff | None = None) -> int:
    """Keep `command` running until it exits with 0 or 78, or a stop signal comes; returns our exit code.

    Starts it again at once after 75, and with growing pauses after any other exit. Passes SIGTERM, SIGINT and SIGHUP on and
    waits for its end; a second signal kills it. Call this in the main thread.
    """
    with _Signals() as signals:
        supervisor = _Supervisor(command, os.environ if env is None else env, backoff or Backoff(), signals)
        try:
            return supervisor.run()
        finally:
            supervisor.close()


def end_this_process(grace_s: float) -> None:
    """Send SIGTERM to this process, which drains; end it at once after the grace."""
    if _WINDOWS:
        signal.raise_signal(signal.SIGTERM)
    else:
        os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(grace_s)
    os._exit(FAILED)


def watch_supervisor(
    on_gone: Callable[[], None] | None = None, *, grace_s: float = 60.0, env: MutableMapping[str, str] | None = None
) -> bool:
    """In the child: call `on_gone` in a thread when the supervisor is gone. False when there is no supervisor.

    By default `end_this_process`.
    """
    variables = os.environ if env is None else env
    number = _pipe_number(variables.pop(FD_VARIABLE, ""))
    if number is None:
        return False
    if number > 0:
        os.set_inheritable(number, False)
    gone = on_gone or (lambda: end_this_process(grace_s))
    threading.Thread(target=_watch, args=(number, gone), name="supervisor-watch", daemon=True).start()
    return True


def _pipe_number(text: str) -> int | None:
    try:
        number = int(text)
        return number if stat.S_ISFIFO(os.fstat(number).st_mode) else None
    except (ValueError, OSError):
        return None


def _watch(number: int, gone: Callable[[], None]) -> None:
    while os.read(number, 1):
        pass
    gone()
