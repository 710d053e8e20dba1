"""`everturn run`, `stop` and `restart`: start the gateway, or send it a request and wait until that is done."""

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

from everturn.app.supervisor import supervise as keep_alive
from everturn.cli import texts
from everturn.cli.shared import Unreachable, answers, ask, config_option, home_option, say
from everturn.errors import ConfigError, EverturnError, HomeLocked
from everturn.home.folder import Holder, Home, HomeLock, holder, supervisor
from everturn.settings.config import DrainConfig, Loaded, read_config

T = TypeVar("T")
LOOK_S = 0.1
BRIEF_S = 5.0  # how long another command may lock a stopped home
STARTING_S = 5.0
ENDING_S = 1.0  # a supervisor ends by itself when its gateway has ended as planned
TELL_EVERY_S = 5.0
MARGIN_S = 30.0


@click.command
@home_option
@config_option
@click.option("--host", metavar="H", help="Listen on this address [default: 127.0.0.1, this machine only].")
@click.option("--port", metavar="N", type=int, help="Listen on this port [default: 8484; 0: any free port].")
@click.option("--supervise", is_flag=True, help="Supervise the gateway: start it again after a crash or a restart.")
def run(home: Home, config_file: Path | None, host: str | None, port: int | None, supervise: bool) -> int:  # noqa: FBT001
    """Start the gateway and log one line with its address when it is ready.

    The exit code is 0 after a planned stop, 78 when the settings or the home cannot be used (also when another gateway
    runs on the home), and 1 otherwise. A restart starts the gateway again in the same process; under `--supervise` it
    exits with 75 instead, and the supervisor starts it again.
    """
    loaded = read_config(home.path, config_file, os.environ, {"server.host": host, "server.port": port})
    if supervise:
        with HomeLock(home, home.supervisor_file):  # by which `everturn stop` finds us while no gateway runs
            # The same command without --supervise; -P: a module of the current directory must not replace ours.
            command = [sys.executable, "-P", "-m", "everturn", "run", "--home", str(home.path)]
            given = {"--config": config_file.absolute() if config_file else None, "--host": host, "--port": port}
            words = [str(word) for name, value in given.items() if value is not None for word in (name, value)]
            return keep_alive(command + words)
    for warning in loaded.warnings:
        say(warning)
    return _serve(loaded, home)


def _serve(loaded: Loaded, home: Home) -> int:
    """Run the gateway. Waits for a command that briefly locks a stopped home, but not for another gateway."""
    from everturn.app.composition import serve

    until = time.monotonic() + BRIEF_S
    while True:
        try:
            return serve(loaded, home)
        except HomeLocked:
            gateway = holder(home)
            if (gateway and gateway.url) or time.monotonic() > until:
                raise
        time.sleep(LOOK_S)


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
        print(texts.no_gateway(home.path))
        return 0
    if process is not None:
        _end_gateway(home, process, patience_s)
    _end_supervisor(home, patience_s, ENDING_S if process else 0.0)
    print(texts.STOPPED)
    return 0


def _end_gateway(home: Home, process: Holder, patience_s: float) -> None:
    if _request(home, process, "stop"):
        say(texts.asked_to("stop", process.pid))
    else:
        _terminate(process)
    _wait(lambda: _left(home, process), patience_s, texts.did_not_stop(process))


def _end_supervisor(home: Home, patience_s: float, grace_s: float) -> None:
    """Wait for the supervisor, which ends with a gateway that stopped as planned; one that would start the next is stopped."""
    until = time.monotonic() + grace_s
    while (process := supervisor(home)) is not None and time.monotonic() < until:
        time.sleep(LOOK_S)
    if process is not None:
        say(texts.stopping_supervisor(process.pid))
        _signal(process)
        _wait(lambda: supervisor(home) is None or None, patience_s, texts.supervisor_did_not_stop(process))


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
        say(texts.not_running(home.path, texts.SUPERVISOR_STARTS_IT if supervisor(home) else texts.START_IT))
        return 1
    if not _request(home, process, "restart"):
        raise Unreachable(texts.cannot_restart(process))
    say(texts.asked_to("restart", process.pid))
    patience_s = _patience_s(home, config_file, timeout_s)
    now = _wait(lambda: _successor(home, process), patience_s, texts.not_ready_again(process))
    print(texts.ready_again(now))
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
        raise EverturnError(texts.on_another_machine(process))
    say(texts.sending_sigterm(process))
    _signal(process)


def _signal(process: Holder) -> None:
    try:
        os.kill(process.pid, signal.SIGTERM)
    except ProcessLookupError:
        return
    except OSError as error:
        raise EverturnError(texts.cannot_be_ended(process, error.strerror)) from error


def _wait(done: Callable[[], T | None], patience_s: float, failure: str) -> T:
    """Poll until `done` has a result; print now and then that the command still waits."""
    begun = told = time.monotonic()
    while (result := done()) is None:
        now = time.monotonic()
        if now - begun > patience_s:
            raise TookTooLong(texts.took_too_long(failure, patience_s))
        if now - told > TELL_EVERY_S:
            told = now
            say(texts.still_waiting(now - begun))
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
