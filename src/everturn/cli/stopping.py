"""`everturn stop` and `everturn restart`: ask the gateway, then wait until it did what it was asked for."""

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

from everturn.cli.client import Unreachable, answers, ask
from everturn.cli.options import config_option, home_option
from everturn.config import DrainConfig, read_config
from everturn.errors import ConfigError, EverturnError
from everturn.home import Holder, Home, holder, supervisor

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
    help="How long to wait for it [default: drain.timeout_s and 30 more].",
)


class TookTooLong(EverturnError):
    """The gateway did not do in time what it was asked for."""


@click.command
@home_option
@config_option
@timeout_option
def stop(home: Home, config_file: Path | None, timeout_s: float | None) -> int:
    """Stop the gateway and wait until it is gone.

    Running turns get until drain.timeout_s; what still runs then is kept and goes on at the next start.
    """
    who, patience_s = _running(home), _patience_s(home, config_file, timeout_s)
    if who is None and supervisor(home) is None:
        print(f"No gateway runs on {home.path}.")
        return 0
    if who is not None:
        _end_gateway(home, who, patience_s)
    _end_supervisor(home, patience_s, ENDING_S if who else 0.0)
    print("The gateway is stopped.")
    return 0


def _end_gateway(home: Home, who: Holder, patience_s: float) -> None:
    if _request(home, who, "stop"):
        _say(f"asked process {who.pid} to stop; waiting for running turns and deliveries")
    else:
        _terminate(who)
    _wait(lambda: _left(home, who), patience_s, f"{who} did not stop")


def _end_supervisor(home: Home, patience_s: float, grace_s: float) -> None:
    """It ends with a gateway that stopped as planned; one whose gateway had died would start the next, and is told not to."""
    until = time.monotonic() + grace_s
    while (who := supervisor(home)) is not None and time.monotonic() < until:
        time.sleep(LOOK_S)
    if who is not None:
        _say(f"telling the supervisor (process {who.pid}) not to start it again")
        _signal(who)
        _wait(lambda: supervisor(home) is None or None, patience_s, f"the supervisor, {who}, did not stop")


@click.command
@home_option
@config_option
@timeout_option
def restart(home: Home, config_file: Path | None, timeout_s: float | None) -> int:
    """Restart the gateway and wait until it is ready again.

    Running turns get until drain.timeout_s; what still runs then goes on after the restart.
    """
    read_config(home.path, config_file, os.environ, {})  # with wrong settings it would not come back
    who = _running(home)
    if who is None:
        coming = "its supervisor is about to start it" if supervisor(home) else "start it with: everturn run"
        _say(f"no gateway runs on {home.path}; {coming}")
        return 1
    if not _request(home, who, "restart"):
        raise Unreachable(f"{who} does not answer, so it cannot be asked to restart; everturn stop ends it")
    _say(f"asked process {who.pid} to restart; waiting for running turns and deliveries")
    patience_s = _patience_s(home, config_file, timeout_s)
    now = _wait(lambda: _successor(home, who), patience_s, f"{who} did not come back after its restart")
    print(f"The gateway is ready again: {now}.")
    return 0


def _patience_s(home: Home, config_file: Path | None, given: float | None) -> float:
    """Settings that are wrong by now do not keep anybody from stopping."""
    if given is not None:
        return given
    try:
        drain = read_config(home.path, config_file, os.environ, {}).config.drain
    except ConfigError:
        drain = DrainConfig()
    return drain.timeout_s + MARGIN_S


def _running(home: Home) -> Holder | None:
    """The gateway that holds the home. One that is just starting is given a moment to say where it listens."""
    until = time.monotonic() + STARTING_S
    while (who := holder(home)) is not None and not who.url and time.monotonic() < until:
        time.sleep(LOOK_S)
    return who


def _request(home: Home, who: Holder, kind: str) -> bool:
    """Ask the gateway itself; False when it does not answer."""
    if not who.url:
        return False
    try:
        ask(home, who, "POST", "/control/stop", {"kind": kind, "reason": f"everturn {kind}"})
    except Unreachable:
        return False
    return True


def _terminate(who: Holder) -> None:
    """The process that holds the lock; on another machine its number means nothing here."""
    if not who.pid or who.host != socket.gethostname():
        raise EverturnError(f"{who} does not answer and cannot be reached from here; end it where it runs")
    _say(f"{who} does not answer; sending it SIGTERM")
    _signal(who)


def _signal(who: Holder) -> None:
    try:
        os.kill(who.pid, signal.SIGTERM)
    except ProcessLookupError:
        return
    except OSError as error:
        raise EverturnError(f"{who} cannot be ended: {error.strerror}") from error


def _wait(done: Callable[[], T | None], patience_s: float, failure: str) -> T:
    """Look until it is done; say now and then that we still wait."""
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


def _same(who: Holder, other: Holder) -> bool:
    """Whether it is the same life: a process that executes itself anew keeps its number."""
    return (who.pid, who.started_at) == (other.pid, other.started_at)


def _left(home: Home, who: Holder) -> bool | None:
    now = holder(home)
    return True if now is None or (now.pid and not _same(now, who)) else None


def _successor(home: Home, who: Holder) -> Holder | None:
    now = holder(home)
    if now is None or not now.url or _same(now, who):
        return None
    return now if answers(now, "/ready") else None


def _say(text: str) -> None:
    print(f"everturn: {text}", file=sys.stderr, flush=True)
