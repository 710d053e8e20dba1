"""Declares a setting: what it means, which values and names it takes, and how a value may be shown."""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

PLATFORM_NAME = r"[a-z][a-z0-9_]*"
CHAT_NAME = rf"{PLATFORM_NAME}:.+"
_FORMS = {"telegram": re.compile(r"-?[0-9]+"), "matrix": re.compile(r"@[^:\s]+:\S+")}
T = TypeVar("T")
Check = Callable[[str], str | None]
"""Why a text cannot be the value of a setting; None when it can."""
HIDDEN = "***"


def is_name(platform: str, name: str) -> bool:
    """Whether a person or chat can have this id on the platform; on any other platform every text is one."""
    form = _FORMS.get(platform)
    return form is None or form.fullmatch(name) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What a setting means and which values it takes."""

    text: str
    choices: tuple[str, ...] = ()
    between: tuple[float, float] | None = None
    form: str = "text"
    check: Check | None = None
    hide: bool = False  # the value is, or may by mistake be, a secret: it is never shown


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedTables:
    """Tables below this place whose names the owner chooses: `[agents.NAME]`."""

    kind: type
    text: str
    placeholder: str  # how documents call the name
    name: re.Pattern[str]
    name_form: str  # as text, which names are allowed
    overrides: bool = False  # it takes the rules of the settings of the table above it, which it overrides


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedTables:
    """Tables that are written several times: `[[routes]]`."""

    kind: type
    text: str


def setting(
    default: T,
    text: str,
    *,
    choices: tuple[str, ...] = (),
    between: tuple[float, float] | None = None,
    form: str = "text",
    check: Check | None = None,
    secret: bool = False,
    hide: bool = False,
) -> T:
    """Declare a field of a table. Lists are tuples of texts, maps are of texts, too."""
    rule = Rule(text=text, choices=choices, between=between, form=form, check=check, hide=hide)
    if isinstance(default, dict):
        return field(default_factory=lambda: default, metadata={"rule": rule, "default": {}}, repr=not (secret or hide))
    return field(default=default, metadata={"rule": rule, "default": default}, repr=not (secret or hide))


def section(kind: Callable[[], T], text: str) -> T:
    """Declare a table of the file."""
    return field(default_factory=kind, metadata={"section": kind, "text": text})


def named(
    kind: type[T], text: str, *, placeholder: str, name: str, name_form: str, overrides: bool = False
) -> Mapping[str, T]:
    """Declare tables whose names the owner chooses."""
    tables = NamedTables(
        kind=kind, text=text, placeholder=placeholder, name=re.compile(name), name_form=name_form, overrides=overrides
    )
    return field(default_factory=dict, metadata={"named": tables})


def listed(kind: type[T], text: str) -> tuple[T, ...]:
    """Declare tables that are written several times."""
    return field(default=(), metadata={"listed": ListedTables(kind=kind, text=text)})


def nearest(word: str, known: Iterable[str], cutoff: float = 0.0) -> str | None:
    """The known word most like this one, if any is like it at all."""
    by_lower = {name.lower(): name for name in known}
    found = difflib.get_close_matches(word.lower(), by_lower, 1, cutoff)
    return by_lower[found[0]] if found else None


def masked(value: object) -> object:
    """A value without its passwords, as JSON has it."""
    if isinstance(value, str):
        text = re.sub(r"(://[^:/@\s]*):.*@", rf"\1:{HIDDEN}@", value)
        return re.sub(r"(?i)(password\s*=\s*)[^&\s]+", rf"\1{HIDDEN}", text)
    if isinstance(value, (list, tuple)):
        return [masked(each) for each in value]
    if isinstance(value, Mapping):
        return {str(name): masked(each) for name, each in value.items()}
    if isinstance(value, float) and math.isfinite(value) and value.is_integer():
        return int(value)
    return value


def shown(value: object) -> str:
    """A value as TOML would write it, without its passwords."""
    return _toml(masked(value))


def _toml(value: object) -> str:
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, dict):
        inner = ", ".join(f"{_name(name)} = {_toml(each)}" for name, each in value.items())
        return f"{{ {inner} }}" if inner else "{}"
    return str(value)


def _name(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name, ensure_ascii=False)


def dotted(keys: Iterable[str]) -> str:
    """Keys as a dotted name, as TOML writes it."""
    return ".".join(map(_name, keys))
