"""`everturn config show`: the settings in force and where each came from."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import click

from everturn.cli.options import config_option, home_option, json_option
from everturn.config import Loaded, read_config
from everturn.home import Home


@click.group
def config() -> None:
    """Look at the settings."""


@config.command
@home_option
@config_option
@json_option
def show(home: Home, config_file: Path | None, as_json: bool) -> None:  # noqa: FBT001
    """Print every setting in force and where it came from; passwords are hidden.

    The environment beats the file, the file beats the default. Options of `everturn run` beat them all.
    """
    loaded = read_config(home.path, config_file, os.environ, {})
    for warning in loaded.warnings:
        print(f"everturn: {warning}", file=sys.stderr)
    if as_json:
        print(json.dumps(_for_programs(loaded, home), ensure_ascii=False, indent=2))
    else:
        _for_people(loaded, home)


def _for_programs(loaded: Loaded, home: Home) -> dict[str, object]:
    settings = {key: {"value": value, "origin": origin} for key, value, origin in loaded.entries()}
    return {"home": str(home.path), "file": str(loaded.file) if loaded.file else None, "settings": settings}


def _for_people(loaded: Loaded, home: Home) -> None:
    from everturn.cli.tables import show_table

    print(f"home  {home.path}\nfile  {loaded.file or 'none (every setting may be left out)'}\n")
    show_table(("setting", "value", "from"), loaded.lines())
