"""The options that commands share."""

from __future__ import annotations

import os
from pathlib import Path

import click

from everturn.home.folder import Home


def _found(_context: click.Context, _parameter: click.Parameter, given: Path | None) -> Home:
    return Home.find(given, os.environ)


PATH = click.Path(path_type=Path)
home_option = click.option(
    "--home",
    metavar="DIR",
    type=PATH,
    callback=_found,
    help="The gateway's home directory [default: $EVERTURN_HOME or ~/.everturn].",
)
config_option = click.option(
    "--config", "config_file", metavar="FILE", type=PATH, help="The settings file [default: everturn.toml in the home]."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
