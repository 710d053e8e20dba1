"""`everturn version`."""

from __future__ import annotations

import click

from everturn import __version__
from everturn.cli.looking.options import home_option
from everturn.home.folder import Home


@click.command
@home_option
def version(home: Home) -> None:  # noqa: ARG001  every command takes it
    """Print the version of this program."""
    print(f"everturn {__version__}")
