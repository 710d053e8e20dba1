"""`everturn run`: start the gateway, alone or under its supervisor."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import click

from everturn.cli.options import config_option, home_option
from everturn.config import Loaded, read_config
from everturn.errors import HomeHeld
from everturn.home import Home, HomeLock, holder
from everturn.supervise import supervise as keep_alive

BRIEF_S = 5.0
LOOK_S = 0.05


@click.command
@home_option
@config_option
@click.option("--host", metavar="H", help="Listen on this address [default: 127.0.0.1, this machine only].")
@click.option("--port", metavar="N", type=int, help="Listen on this port [default: 8484; 0 takes a free one].")
@click.option("--supervise", is_flag=True, help="Keep the gateway alive: start it again after a crash or a restart.")
def run(home: Home, config_file: Path | None, host: str | None, port: int | None, supervise: bool) -> int:  # noqa: FBT001
    """Start the gateway and log one line with its address when it is ready.

    It ends with 0 after a planned stop, 78 when the settings or the home cannot be used (also when another gateway runs
    on the home), and 1 otherwise. A restart starts it again in the same process; below `--supervise` it ends with 75
    instead, and the supervisor starts it again.
    """
    loaded = read_config(home.path, config_file, os.environ, {"server.host": host, "server.port": port})
    if supervise:
        with HomeLock(home, home.supervisor_file):  # by which `everturn stop` finds us while no gateway runs
            return keep_alive(_child_command(home, config_file, host, port))
    for warning in loaded.warnings:
        print(f"everturn: {warning}", file=sys.stderr)
    return _serve(loaded, home)


def _child_command(home: Home, config_file: Path | None, host: str | None, port: int | None) -> list[str]:
    """Ourselves without --supervise; -P: a module of the current directory must not take the place of ours."""
    command = [sys.executable, "-P", "-m", "everturn", "run", "--home", str(home.path)]
    given = {"--config": config_file.absolute() if config_file else None, "--host": host, "--port": port}
    return command + [str(word) for name, value in given.items() if value is not None for word in (name, value)]


def _serve(loaded: Loaded, home: Home) -> int:
    """A command that looks into a stopped home holds its lock for a moment: that is waited for, a gateway is not."""
    from everturn.app import serve

    until = time.monotonic() + BRIEF_S
    while True:
        try:
            return serve(loaded, home)
        except HomeHeld:
            who = holder(home)
            if (who and who.url) or time.monotonic() > until:
                raise
        time.sleep(LOOK_S)
