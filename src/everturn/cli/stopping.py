"""`everturn stop` and `everturn restart`: send the request to the gateway, then wait until it is done."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click

from everturn.cli.looking.asking import Unreachable, answers, ask
from everturn.cli.options import config_option, home_option
from everturn.errors import ConfigError, EverturnError
from everturn.home.folder import Holder, Home, holder, supervisor
from everturn.settings.config import DrainConfig, read_config

T = TypeVar("T")
LOOK_S = 0.1
STARTING_S = 5.0
ENDING_S = 1.0  # a supervisor ends by itself when its gateway has ended as planned
TELL_EVERY_S = 5.0
MARGIN_S = 30.0

timeout_option = click.option(
    "--timeout",
    "timeout_s",
    metavar="SECONDS",
    type=click.FloatRange(0),
    help="How many seconds to wait [default: drain.timeout_s plus 30].",
)


class TookTooLong(EverturnError):
    """The gateway did not stop or restart in time."""


@click.command
@home_option
@config_option
@timeout_option
def stop(home: Home, config_file: Path | None, timeout_s: float | None) -> int:
    """Stop the gateway and wait until it has ended.

    Running turns have drain.timeout_s to finish; turns that still run then are saved and resume at the next start.
    """
    process, patience_s = _running(home), _patience_s(home, config_file, timeout_s)
    if process is None and supervisor(home) is None:
        print(f"No gateway runs on {home.path}.")
        return 0
    if process is not None:
        _end_gateway(home, process, patience_s)
    _end_supervisor(home, patience_s, ENDING_S if process else 0.0)
    print("The gateway is stopped.")
    return 0


def _end_gateway(home: Home, process: Holder, patience_s: float) -> None:
    if _request(home, process, "stop"):
        _say(f"asked process {process.pid} to stop; waiting for running turns and deliveries")
    else:
        _terminate(process)
    _wait(lambda: _left(home, process), patience_s, f"{process} did not stop")


def _end_supervisor(home: Home, patience_s: float, grace_s: float) -> None:
    """Wait for the supervisor, which ends with a gateway that stopped as planned; one that would start the next is stopped."""
    until = time.monotonic() + grace_s
    while (process := supervisor(home)) is not None and time.monotonic() < until:
        time.sleep(LOOK_S)
    if process is not None:
        _say(f"stopping the supervisor (process {process.pid}), so that it does not start the gateway again")
        _signal(process)
        _wait(lambda: supervisor(home) is None or None, patience_s, f"the supervisor, {process}, did not stop")


@click.command
@home_option
@config_option
@timeout_option
def restart(home: Home, config_file: Path | None, timeout_s: float | None) -> int:
    """Restart the gateway and wait until it is ready again.

    Running turns have drain.timeout_s to finish; turns that still run then resume after the restart.
    """
    read_config(home.path, config_file, os.environ, {})  # with wrong settings the gateway would not start again
    process = _running(home)
    if process is None:
        hint = "its supervisor is about to start it" if supervisor(home) else "start it with: everturn run"
        _say(f"no gateway runs on {home.path}; {hint}")
        return 1
    if not _request(home, process, "restart"):
        raise Unreachable(f"{process} does not answer and cannot restart; to end it: everturn stop")
    _say(f"asked process {process.pid} to restart; waiting for running turns and deliveries")
    patience_s = _patience_s(home, config_file, timeout_s)
    now = _wait(lambda: _successor(home, process), patience_s, f"{process} did not become ready after its restart")
    print(f"The gateway is ready again: {now}.")
    return 0


def _patience_s(home: Home, config_file: Path | None, given: float | None) -> float:
    """How long to wait. Wrong settings do not prevent a stop."""
    if given is not None:
        return given
    try:
        drain = read_config(home.path, config_file, os.environ, {}).config.drain
    except ConfigError:
        drain = DrainConfig()
    return drain.timeout_s + MARGIN_S


def _running(home: Home) -> Holder | None:
    """The gateway that holds the home. Waits a moment for one that is starting to publish its address."""
    until = time.monotonic() + STARTING_S
    while (process := holder(home)) is not None and not process.url and time.monotonic() < until:
        time.sleep(LOOK_S)
    return process


def _request(home: Home, process: Holder, kind: str) -> bool:
    """Send the stop request to the gateway; False when it does not answer."""
    if not process.url:
        return False
    try:
        ask(home, process, "POST", "/control/stop", {"kind": kind, "reason": f"everturn {kind}"})
    except Unreachable:
        return False
    return True


def _terminate(process: Holder) -> None:
    """Send SIGTERM to the process that holds the lock, unless it runs on another machine."""
    if not process.pid or process.host != socket.gethostname():
        raise EverturnError(f"{process} does not answer, and this machine cannot signal it; end it on its own machine")
    _say(f"{process} does not answer; sending it SIGTERM")
    _signal(process)


def _signal(process: Holder) -> None:
    try:
        os.kill(process.pid, signal.SIGTERM)
    except ProcessLookupError:
        return
    except OSError as error:
        raise EverturnError(f"{process} cannot be ended: {error.strerror}") from error


def _wait(done: Callable[[], T | None], patience_s: float, failure: str) -> T:
    """Poll until `done` has a result; print now and then that the command still waits."""
    begun = told = time.monotonic()
    while (result := done()) is None:
        now = time.monotonic()
        if now - begun > patience_s:
            raise TookTooLong(f"{failure} within {patience_s:g} s; look at its log, or wait longer with --timeout")
        if now - told > TELL_EVERY_S:
            told = now
            _say(f"still waiting ({now - begun:.0f} s)")
        time.sleep(LOOK_S)
    return result


def _same(process: Holder, other: Holder) -> bool:
    """Whether both are the same start of a process: one that executes itself anew keeps its pid."""
    return (process.pid, process.started_at) == (other.pid, other.started_at)


def _left(home: Home, process: Holder) -> bool | None:
    now = holder(home)
    return True if now is None or (now.pid and not _same(now, process)) else None


def _successor(home: Home, process: Holder) -> Holder | None:
    now = holder(home)
    if now is None or not now.url or _same(now, process):
        return None
    return now if answers(now, "/ready") else None


def _say(text: str) -> None:
    print(f"everturn: {text}", file=sys.stderr, flush=True)
