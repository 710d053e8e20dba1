"""The configuration in force: command line over environment over file over default, each value checked.

The only reader of everturn.toml and of the EVERTURN_ variables; every other part is given values.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from everturn.errors import ConfigError
from everturn.settings import (
    CHAT_TYPES,
    OVERRIDABLE,
    OVERRIDE_TABLES,
    PREFIX,
    SECTIONS,
    SETTINGS,
    AgentConfig,
    Config,
    DrainConfig,
    Keys,
    LimitsConfig,
    RecoveryConfig,
    ResetConfig,
    ResetOverride,
    ServerConfig,
    SessionsConfig,
    Setting,
    StoreConfig,
    find_setting,
    is_table,
    nearest,
    shown,
    value_of,
    variable_of,
)

__all__ = [
    "ALIASES",
    "FILE_NAME",
    "AgentConfig",
    "Config",
    "DrainConfig",
    "LimitsConfig",
    "Loaded",
    "RecoveryConfig",
    "ResetConfig",
    "ResetOverride",
    "ServerConfig",
    "SessionsConfig",
    "StoreConfig",
    "nearest_setting",
    "parsed",
    "problem_of",
    "read_config",
    "shown",
]

FILE_NAME = "everturn.toml"
NOT_SETTINGS = frozenset({"EVERTURN_HOME", "EVERTURN_SUPERVISOR_FD"})
NOT_SETTINGS_PREFIX = "EVERTURN_TEST_"
# Old name -> new name. The old one works and warns.
ALIASES = {"gateway.host": "server.host", "gateway.port": "server.port"}
_VARIABLES: Mapping[str, Keys] = {
    variable_of(keys): keys for keys in (tuple(name.split(".")) for name in (*SETTINGS, *ALIASES))
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A configuration, with where each of its values came from."""

    config: Config
    file: Path | None
    origins: Mapping[str, str]
    warnings: tuple[str, ...]

    def lines(self) -> Iterator[tuple[str, str, str]]:
        """Each setting in force: its key, its value as it may be shown, its origin."""
        for key, origin in self.origins.items():
            yield key, shown(value_of(self.config, key)), origin


def _unknown(keys: Keys, value: object) -> str:
    """What to say about a place of the file that means nothing to us."""
    name = ".".join(keys)
    match keys:
        case ("sessions", "platform" | "chat_type" as table, who, *_) if not OVERRIDE_TABLES[table].fullmatch(who):
            if table == "chat_type":
                return f"unknown chat type {shown(who)} in {name}; the nearest of {CHAT_TYPES} is {nearest(who, CHAT_TYPES)}"
            return f"{shown(who)} in {name} is no platform: a name has small letters, digits and _"
        case ("sessions", "platform" | "chat_type", _, last):
            near = nearest(last, OVERRIDABLE)
            return f"unknown setting {name}; the nearest known one is {'.'.join(keys[:3])}.{near}"
    if is_table(keys):
        return f"{name} is {shown(value)}, but it is a table: write [{name}] and its settings below"
    if isinstance(value, dict):
        return f"unknown table [{name}]; the nearest known one is [{nearest(name, SECTIONS)}]"
    return f"unknown setting {name}; the nearest known one is {nearest_setting(keys)}"


def nearest_setting(keys: Keys) -> str:
    """The key that was probably meant: by its name in the same table, in another table, or as a whole."""
    beside = {each.name: each.key for each in SETTINGS.values() if each.section == keys[0]}
    anywhere = {each.name: each.key for each in SETTINGS.values()}
    for names in (beside, anywhere):
        if near := nearest(keys[-1], names, cutoff=0.6):
            return names[near]
    return nearest(".".join(keys), SETTINGS) or ""


def problem_of(what: Setting, value: object) -> str | None:
    """Why the setting can not have this value; None when it can."""
    rule = what.rule
    kind = type(what.default)
    if kind is float and type(value) is int:
        kind = int
    if type(value) is not kind:
        return "it has the wrong type"
    if isinstance(value, str):
        if value in rule.later:
            return "that mode comes with the real agent"
        if rule.choices and value not in rule.choices:
            return f"the nearest is {shown(nearest(value, rule.choices))}"
        return rule.check(value) if rule.check else None
    if rule.between and isinstance(value, (int, float)) and not rule.between[0] <= value <= rule.between[1]:
        return "it is out of range"
    return None


def parsed(what: Setting, text: str) -> object:
    """A variable's text as a value of the setting's type; the text itself when it is none."""
    words = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
    if isinstance(what.default, bool):
        return words.get(text.strip().lower(), text)
    if isinstance(what.default, str):
        return text
    try:
        return int(text) if isinstance(what.default, int) else float(text)
    except ValueError:
        return text


class _Reading:
    """The layers, laid over each other from the weakest to the strongest."""

    def __init__(self) -> None:
        self.values: dict[Keys, object] = {(each.section, each.name): each.default for each in SETTINGS.values()}
        self.origins: dict[Keys, str] = dict.fromkeys(self.values, "default")
        self.problems: list[str] = []
        self.warnings: list[str] = []

    def take(self, keys: Keys, value: object, origin: str) -> None:
        what = find_setting(keys)
        if what is None:
            self.problems.append(f"{origin}: {_unknown(keys, value)}")
        elif problem := problem_of(what, value):
            name = ".".join(keys)
            self.problems.append(f"{origin}: {name} is {shown(value)}, it must be {what.allowed} ({problem})")
        else:
            self.values[keys] = type(what.default)(value)  # type: ignore[call-arg]  # a whole number for a float
            self.origins[keys] = origin

    def take_layer(self, given: Iterable[tuple[Keys, object, str]]) -> None:
        """Old names first: where a layer has both, the new one wins."""
        for keys, value, origin in sorted(given, key=lambda each: ".".join(each[0]) not in ALIASES):
            if new := ALIASES.get(".".join(keys)):
                self.warnings.append(f"{origin}: {'.'.join(keys)} is called {new} now; please rename it")
                self.take(tuple(new.split(".")), value, origin)
            else:
                self.take(keys, value, origin)

    def take_environment(self, env: Mapping[str, str]) -> None:
        given: list[tuple[Keys, object, str]] = []
        for name in sorted(env):
            if not name.startswith(PREFIX) or name in NOT_SETTINGS or name.startswith(NOT_SETTINGS_PREFIX):
                continue
            keys, what = _setting_of_variable(name)
            if what is None:
                near = nearest(name, _VARIABLES)
                self.warnings.append(f"environment {name}: not a setting and ignored; the nearest one is {near}")
            elif env[name]:
                given.append((keys, parsed(what, env[name]), f"environment {name}"))
        self.take_layer(given)

    def loaded(self, file: Path | None) -> Loaded:
        if self.problems:
            raise ConfigError("\n".join(self.problems))
        origins = {".".join(keys): self.origins[keys] for keys in self.values}
        return Loaded(config=_built(self.values), file=file, origins=origins, warnings=tuple(self.warnings))


def _setting_of_variable(name: str) -> tuple[Keys, Setting | None]:
    if keys := _VARIABLES.get(name):
        return keys, SETTINGS[ALIASES.get(".".join(keys), ".".join(keys))]
    for table in OVERRIDE_TABLES:
        for last in OVERRIDABLE:
            prefix, suffix = variable_of(("sessions", table, "")), f"_{last.upper()}"
            if name.startswith(prefix) and name.endswith(suffix):
                keys = ("sessions", table, name[len(prefix) : -len(suffix)].lower(), last)
                return keys, find_setting(keys)
    return (), None


def _built(values: Mapping[Keys, object]) -> Config:
    parts: dict[str, dict[str, Any]] = {name: {} for name in SECTIONS}
    overrides: dict[str, dict[str, dict[str, Any]]] = {"platform": {}, "chat_type": {}}
    for keys, value in values.items():
        match keys:
            case (_, table, name, last):
                overrides[table].setdefault(name, {})[last] = value
            case (part, name):
                parts[part][name] = value
    for table, named in overrides.items():
        parts["sessions"][table] = {name: ResetOverride(**own) for name, own in named.items()}
    kinds: dict[str, Any] = {part.name: part.default_factory for part in fields(Config)}
    return Config(**{name: kinds[name](**own) for name, own in parts.items()})


def _flat(table: Mapping[str, object], above: Keys = ()) -> Iterator[tuple[Keys, object]]:
    for name, value in table.items():
        keys = (*above, name)
        if isinstance(value, dict) and value:
            yield from _flat(value, keys)
        elif value != {} or not is_table(keys):
            yield keys, value


def _parsed_file(file: Path) -> dict[str, object]:
    data = b""
    try:
        data = file.read_bytes()
        return tomllib.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise ConfigError(f"file {file}: not UTF-8 text (at line {line})") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"file {file}: not valid TOML: {error}") from error
    except OSError as error:
        raise ConfigError(f"file {file}: it cannot be read: {error.strerror}") from error


def read_config(home: Path, file: Path | None, env: Mapping[str, str], overrides: Mapping[str, object]) -> Loaded:
    """The settings in force: command line over environment over file (`everturn.toml` in the home) over default.

    An override that is None was not given. Raises ConfigError with every problem found, one a line.
    """
    reading = _Reading()
    path = file or home / FILE_NAME
    if present := file is not None or os.path.lexists(path):
        reading.take_layer((keys, value, f"file {path}") for keys, value in _flat(_parsed_file(path)))
    reading.take_environment(env)
    given = ((tuple(key.split(".")), value, "command line") for key, value in overrides.items() if value is not None)
    reading.take_layer(given)
    return reading.loaded(path if present else None)
