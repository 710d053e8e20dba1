"""What connecting a platform shares: secrets, settings, and its first owner."""

from __future__ import annotations

import json
import os
import stat
import sys
import tomllib
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from everturn.cli.rules import connect_texts as texts
from everturn.cli.rules.connect_texts import DirectSender, nobody_to_ask
from everturn.errors import ConfigError, EverturnError
from everturn.home.folder import Home

PATIENCE_S = 15.0


def secret(file: Path | None, variable: str, question: str) -> str:
    """Read a secret from a file, the environment, or a prompt; never from an argument, which other users can see."""
    if file is not None:
        return secret_in(file)
    found = os.environ.get(variable, "").strip() if variable else ""
    return found or prompt_for(question, hidden=True)


def secret_in(file: Path) -> str:
    """Read a secret from a file, or from standard input."""
    try:
        return (sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")).strip()
    except (OSError, UnicodeError) as error:
        raise EverturnError(f"{file} cannot be read: {_why(error)}") from None


def prompt_for(question: str, *, hidden: bool = False, default: str | None = None) -> str:
    """Prompt a person or read from a pipe. Raises EverturnError when there is nothing to read."""
    try:
        answer = click.prompt(question, hide_input=hidden, default=default, show_default=False, err=True)
    except click.Abort:
        if sys.stdin.isatty():
            raise
        raise EverturnError(nobody_to_ask(question)) from None
    return str(answer).strip()


def keep(home: Home, name: str, text: str) -> Path:
    """Replace a file of the home, whole or not at all, readable by its owner alone from its first byte."""
    file = home.path / name
    _replace(file, f"{text}\n", 0o600)
    return file


def settings_in(file: Path) -> tuple[str, dict[str, Any]]:
    """The settings file as text and as values. Raises ConfigError."""
    try:
        text = file.read_text(encoding="utf-8") if file.exists() else ""
        return text, tomllib.loads(text)
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"{file} cannot be read: {_why(error)}") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{file} is not valid TOML: {error}") from None


def enable(file: Path, platform: str, table: str) -> bool:
    """Add the platform's table to the settings; False if there is one already, which only the owner changes."""
    platforms = settings_in(file)[1].get("platforms", {})
    return isinstance(platforms, dict) and platform not in platforms and add_table(file, table)


def add_table(file: Path, table: str) -> bool:
    """Append a table to the settings, whole or not at all; False if the file would no longer be valid TOML."""
    text, _ = settings_in(file)
    whole = f"{text.rstrip()}\n\n{table}".lstrip("\n")
    try:
        tomllib.loads(whole)
    except tomllib.TOMLDecodeError:  # they have it, written in one line
        return False
    file = file.resolve()  # of a link, what it leads to is changed
    # The file may hold secrets: the new one keeps its mode.
    _replace(file, whole, stat.S_IMODE(file.stat().st_mode) if file.exists() else None)
    return True


def _replace(file: Path, text: str, mode: int | None) -> None:
    """Write a draft, sync it, and rename it to the file: a power cut leaves the old one or the new one."""
    draft = file.with_name(f".{file.name}.new")
    try:
        draft.unlink(missing_ok=True)
        number = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666 if mode is None else 0o600)
        with os.fdopen(number, "w", encoding="utf-8") as stream:
            if mode is not None:
                draft.chmod(mode)
            stream.write(text)
            stream.flush()
            os.fsync(number)
        draft.replace(file)
    except OSError as error:
        with suppress(OSError):
            draft.unlink(missing_ok=True)  # it may hold a secret
        raise ConfigError(f"{file} cannot be written: {_why(error)}") from None


def _why(error: OSError | UnicodeError) -> str:
    return error.strerror or type(error).__name__ if isinstance(error, OSError) else "it is not text"


# Names the first owner while a platform is connected, so that no pairing code is needed.


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
