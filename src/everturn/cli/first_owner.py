"""The first person who may speak: offered to who connects a platform, so that no code has to be carried around."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from everturn.cli.connecting import add_table, settings_in
from everturn.decide import connect_words as words
from everturn.decide.connect_words import Writer


def is_asked() -> bool:
    """Whether somebody sits there who can be asked."""
    return sys.stdin.isatty()


def choose(newest_first: list[Writer]) -> str | None:
    """Who of those that wrote to the bot is the owner: the first who is said to be; None when nobody is."""
    for each in newest_first:
        if click.confirm(words.is_it_you(each), default=True, err=True):
            return each.id
    if not newest_first:
        click.echo(words.NOBODY_WROTE, err=True)
    return None


def make_owner(file: Path, person: str) -> str:
    """Name the owner in the settings, unless these have owners already; what was done, in words."""
    rights = settings_in(file)[1].get("rights")
    owners = rights.get("owners") if isinstance(rights, dict) else None
    if isinstance(owners, list) and person in owners:
        return words.is_owner(person)
    if rights is not None or not add_table(file, f"[rights]\nowners = [{json.dumps(person)}]\n"):
        return words.add_owner(person, str(file))
    return words.is_owner(person)
