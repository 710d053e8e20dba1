"""`everturn config` and `version`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from everturn import __version__
from everturn.cli.options import config_option, home_option, json_option
from everturn.home.folder import Home
from everturn.settings.config import Loaded, read_config, shown

Entry = tuple[str, object, str]  # a setting, its value, where that came from


@click.group
def config() -> None:
    """Show the settings."""


@config.command
@home_option
@config_option
@json_option
@click.option("--platform", metavar="NAME", help="Show only how answers look there, and which table sets it.")
@click.option("--chat", metavar="ID", help="The same for one chat of that platform.")
def show(home: Home, config_file: Path | None, as_json: bool, platform: str | None, chat: str | None) -> None:  # noqa: FBT001
    """Print every setting in force and where it came from; passwords are hidden.

    The environment overrides the file, the file overrides the default. Options of `everturn run` override all of them. With
    --platform, show how answers look there: the chat's table overrides the platform's, which overrides the general one.
    """
    loaded = read_config(home.path, config_file, os.environ, {})
    _check_place(loaded, platform, chat)
    for warning in loaded.warnings:
        print(f"everturn: {warning}", file=sys.stderr)
    entries = list(loaded.entries_in(platform, chat) if platform else loaded.entries())
    if as_json:
        print(json.dumps(_for_programs(entries, loaded, home), ensure_ascii=False, indent=2))
    else:
        _for_people(entries, loaded, home)


def _check_place(loaded: Loaded, platform: str | None, chat: str | None) -> None:
    if chat is not None and platform is None:
        raise click.UsageError("--chat needs --platform")
    known = loaded.config.platforms.by_name()
    if platform is not None and platform not in known:
        raise click.UsageError(f"unknown platform {platform!r}; there are {', '.join(known)}")


def _for_programs(entries: Sequence[Entry], loaded: Loaded, home: Home) -> dict[str, object]:
    settings = {key: {"value": value, "origin": origin} for key, value, origin in entries}
    return {"home": str(home.path), "file": str(loaded.file) if loaded.file else None, "settings": settings}


def _for_people(entries: Sequence[Entry], loaded: Loaded, home: Home) -> None:
    from everturn.cli.looking.asking import show_table

    print(f"home  {home.path}\nfile  {loaded.file or 'none (all settings are optional)'}\n")
    show_table(("setting", "value", "from"), [(key, shown(value), origin) for key, value, origin in entries])


# `everturn version`.


@click.command
@home_option
def version(home: Home) -> None:  # noqa: ARG001  every command takes it
    """Print the version of this program."""
    print(f"everturn {__version__}")
