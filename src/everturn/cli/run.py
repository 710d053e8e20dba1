"""`everturn run`: start the gateway, alone or under its supervisor."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import click

from everturn.app.supervisor import supervise as keep_alive
from everturn.cli.options import config_option, home_option
from everturn.errors import HomeLocked
from everturn.home.folder import Home, HomeLock, holder
from everturn.settings.config import Loaded, read_config

BRIEF_S = 5.0
LOOK_S = 0.05


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
            return keep_alive(_child_command(home, config_file, host, port))
    for warning in loaded.warnings:
        print(f"everturn: {warning}", file=sys.stderr)
    return _serve(loaded, home)


def _child_command(home: Home, config_file: Path | None, host: str | None, port: int | None) -> list[str]:
    """The same command without --supervise; -P: a module of the current directory must not replace ours."""
    command = [sys.executable, "-P", "-m", "everturn", "run", "--home", str(home.path)]
    given = {"--config": config_file.absolute() if config_file else None, "--host": host, "--port": port}
    return command + [str(word) for name, value in given.items() if value is not None for word in (name, value)]


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
