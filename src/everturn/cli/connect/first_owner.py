"""Names the first owner while a platform is connected, so that no pairing code is needed."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from everturn.cli.connect.shared import add_table, settings_in
from everturn.cli.rules import connect_texts as texts
from everturn.cli.rules.connect_texts import DirectSender


def has_terminal() -> bool:
    """Whether standard input is a terminal, so that a person can answer prompts."""
    return sys.stdin.isatty()


def choose(newest_first: list[DirectSender]) -> str | None:
    """Ask for each person who wrote to the bot whether they are the owner; returns the first, or None."""
    for each in newest_first:
        if click.confirm(texts.is_it_you(each), default=True, err=True):
            return each.id
    if not newest_first:
        click.echo(texts.NOBODY_WROTE, err=True)
    return None


def make_owner(file: Path, person: str) -> str:
    """Add the owner to the settings, unless these have owners already; returns what was done, as text."""
    rights = settings_in(file)[1].get("rights")
    owners = rights.get("owners") if isinstance(rights, dict) else None
    if isinstance(owners, list) and person in owners:
        return texts.is_owner(person)
    if rights is not None or not add_table(file, f"[rights]\nowners = [{json.dumps(person)}]\n"):
        return texts.add_owner(person, str(file))
    return texts.is_owner(person)
