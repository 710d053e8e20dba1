"""What connecting any platform needs: a secret that is not shown, a file that only its owner reads, a table in the settings."""

from __future__ import annotations

import os
import stat
import sys
import tomllib
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from everturn.decide.connect_words import nobody_to_ask
from everturn.errors import ConfigError, EverturnError
from everturn.home import Home

PATIENCE_S = 15.0


def secret(file: Path | None, variable: str, question: str) -> str:
    """From the file, the environment, or the person; never from an argument, which others on the machine can see."""
    if file is not None:
        return secret_in(file)
    found = os.environ.get(variable, "").strip() if variable else ""
    return found or asked(question, hidden=True)


def secret_in(file: Path) -> str:
    """What a file says, or standard input."""
    try:
        return (sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")).strip()
    except (OSError, UnicodeError) as error:
        raise EverturnError(f"{file} can not be read: {_why(error)}") from None


def asked(question: str, *, hidden: bool = False, default: str | None = None) -> str:
    """What a person answers, or a pipe. Where nobody is, that is said."""
    try:
        told = click.prompt(question, hide_input=hidden, default=default, show_default=False, err=True)
    except click.Abort:
        if sys.stdin.isatty():
            raise
        raise EverturnError(nobody_to_ask(question)) from None
    return str(told).strip()


def keep(home: Home, name: str, text: str) -> Path:
    """Replace a file of the home, whole or not at all, readable by its owner alone from its first byte."""
    file = home.path / name
    _replace(file, f"{text}\n", 0o600)
    return file


def settings_in(file: Path) -> tuple[str, dict[str, Any]]:
    """What the settings say, as words and as values. Raises ConfigError."""
    try:
        text = file.read_text(encoding="utf-8") if file.exists() else ""
        return text, tomllib.loads(text)
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"{file} can not be read: {_why(error)}") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{file} is not valid TOML: {error}") from None


def enable(file: Path, platform: str, table: str) -> bool:
    """Add the platform's table to the settings; False where that can not be: there is one, which is the owner's to change."""
    platforms = settings_in(file)[1].get("platforms", {})
    return isinstance(platforms, dict) and platform not in platforms and add_table(file, table)


def add_table(file: Path, table: str) -> bool:
    """Put a table behind what the settings say, whole or not at all; False where they can not be read with it."""
    text, _ = settings_in(file)
    whole = f"{text.rstrip()}\n\n{table}".lstrip("\n")
    try:
        tomllib.loads(whole)
    except tomllib.TOMLDecodeError:  # they have it, written in one line
        return False
    file = file.resolve()  # of a link, what it leads to is changed
    # It may hold secrets: who may not read it does not read the new one.
    _replace(file, whole, stat.S_IMODE(file.stat().st_mode) if file.exists() else None)
    return True


def _replace(file: Path, text: str, mode: int | None) -> None:
    """Write a draft, bring it to the disk, put it in the file's place: a power cut leaves the old one or the new one."""
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
        raise ConfigError(f"{file} can not be written: {_why(error)}") from None


def _why(error: OSError | UnicodeError) -> str:
    return error.strerror or type(error).__name__ if isinstance(error, OSError) else "it is not text"
