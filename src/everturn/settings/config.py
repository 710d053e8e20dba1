"""The configuration in force: command line over environment over file over default, each value checked.

The only reader of everturn.toml and of the EVERTURN_ variables; every other part is given values.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from everturn.errors import ConfigError
from everturn.settings import (
    PREFIX,
    PRESENT,
    SETTINGS,
    TABLES,
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
    build,
    dotted,
    find_place,
    find_setting,
    masked,
    nearest,
    shown,
    value_at,
    variable_of,
)
from everturn.settings.agent import problems_of
from everturn.settings.rules import HIDDEN, NamedTables
from everturn.settings.tree import settings_of

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
# Settings that had another name before the first release. They are refused with the new name; later renames go into ALIASES.
RENAMED = {"on_doubt": "on_unknown_delivery", "calm_s": "crash_loop_delay_s"}
SHOWN_BY: tuple[Keys, ...] = (("streaming",), ("display",))  # per chat, else per platform, else for all
# Old name -> new name. The old one works and warns.
ALIASES = {"gateway.host": "server.host", "gateway.port": "server.port"}
_VARIABLES: Mapping[str, Keys] = {each.variable: each.keys for each in SETTINGS.values() if each.variable} | {
    variable_of(keys): keys for keys in (tuple(name.split(".")) for name in ALIASES)
}
_LISTS = {variable_of(each.keys): each.key for each in SETTINGS.values() if not each.variable}
_HEADS = tuple(".".join(table.keys) for table in TABLES)
# Tables with one name of the owner's choice: EVERTURN_AGENTS_CODER_MODEL. The longest head first.
_NAMED = sorted(
    ((table.keys, each) for table in TABLES if sum(map(str.isupper, table.keys)) == 1 for each in table.settings()),
    key=lambda item: (-len(item[0]), -len(item[1].name)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A configuration, with where each of its values came from."""

    config: Config
    file: Path | None
    origins: Mapping[Keys, str]
    warnings: tuple[str, ...]

    def origin(self, key: str) -> str:
        """Where the value of a setting came from."""
        return self.origins[tuple(key.split("."))]

    def entries(self) -> Iterator[tuple[str, object, str]]:
        """Each setting in force: its key, its value as it may be shown, its origin."""
        for keys, origin in self.origins.items():
            what, value = find_setting(keys), value_at(self.config, keys)
            hidden = what is not None and what.rule.hide and bool(value)
            yield dotted(keys), HIDDEN if hidden else masked(value), origin

    def entries_in(self, platform: str, chat: str | None) -> Iterator[tuple[str, object, str]]:
        """How answers look on a platform, or in one chat of it: each setting, its value there, and the table that sets it."""
        for what in (each for each in SETTINGS.values() if each.table in SHOWN_BY):
            places = [(*what.table, "platform", platform), what.table]
            if chat is not None:
                places.insert(0, (*what.table, "chat", f"{platform}:{chat}"))
            keys = next((*place, what.name) for place in places if (*place, what.name) in self.origins)
            origin = self.origins[keys]
            where = origin if origin == "default" else f"[{dotted(keys[:-1])}], {origin}"
            yield what.key, masked(value_at(self.config, keys)), where


def _unknown(keys: Keys, value: object) -> str:
    """The error for an unknown key or table of the file."""
    name, place = dotted(keys), find_place(keys)
    if (new := (*keys[:-1], RENAMED.get(keys[-1], ""))) and find_setting(new):
        return f"{name} is called {dotted(new)} now: please rename it"
    if place.listed:
        return f"{dotted(place.known)} is a list of tables: write [[{dotted(place.known)}]] above each"
    if place.is_table:
        return f"{name} is {shown(value)}, but it is a table: write [{name}] and its settings below"
    if place.named is not None:
        return _unknown_name(place.named, dotted(place.known), place.rest[0], name)
    if len(place.known) > 1 and place.kind is not None:
        names = [each.name for each in settings_of(place.kind, place.rules_of)]
        return f"unknown setting {name}; the nearest known one is {dotted(place.known)}.{nearest(place.rest[0], names)}"
    if isinstance(value, dict):
        return f"unknown table [{name}]; the nearest known one is [{nearest(name, _HEADS)}]"
    return f"unknown setting {name}; the nearest known one is {nearest_setting(keys)}"


def _unknown_name(tables: NamedTables, above: str, part: str, name: str) -> str:
    if "|" in tables.name.pattern:
        near = nearest(part, tables.name.pattern.split("|"))
        return f"unknown name {shown(part)} in {name}: {tables.name_form}; the nearest is {near}"
    return f"{shown(part)} in {name} is not a valid name: {tables.name_form} in [{above}.{tables.placeholder}]"


def nearest_setting(keys: Keys) -> str:
    """The key that was probably meant: by its name in the same table, in another table, or as a whole."""
    beside = [each for each in SETTINGS.values() if each.table[0] == keys[0]]
    for settings in (beside, list(SETTINGS.values())):
        if near := nearest(keys[-1], (each.name for each in settings), cutoff=0.6):
            return nearest(dotted(keys), (each.key for each in settings if each.name == near)) or ""
    return nearest(".".join(keys), SETTINGS) or ""


def problem_of(what: Setting, value: object) -> str | None:
    """Why the setting cannot have this value; None when it can."""
    if isinstance(what.default, tuple):
        return _list_problem(what, value)
    if isinstance(what.default, dict):
        return _list_problem(what, list(value.values())) if isinstance(value, dict) else "it has the wrong type"
    kind = type(what.default)
    if kind is float and type(value) is int:
        kind = int
    if type(value) is not kind:
        return "it has the wrong type"
    if isinstance(value, str):
        return _text_problem(what, value)
    between = what.rule.between
    if between and isinstance(value, (int, float)) and not between[0] <= value <= between[1]:
        return "it is out of range"
    return None


def _list_problem(what: Setting, value: object) -> str | None:
    if not isinstance(value, (list, tuple)):
        return "it has the wrong type"
    if not all(isinstance(each, str) for each in value):
        return "each of its entries must be a text"
    return next(filter(None, (_text_problem(what, each) for each in value)), None)


def _text_problem(what: Setting, value: str) -> str | None:
    rule = what.rule
    if rule.choices and value not in rule.choices:
        return f"the nearest is {shown(nearest(value, rule.choices))}"
    return rule.check(value) if rule.check else None


def parsed(what: Setting, text: str) -> object:
    """A variable's text as a value of the setting's type; the text itself when it cannot be one."""
    known = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
    if isinstance(what.default, bool):
        return known.get(text.strip().lower(), text)
    if isinstance(what.default, str):
        return text
    try:
        return int(text) if isinstance(what.default, int) else float(text)
    except ValueError:
        return text


class _Reading:
    """Merges the sources of settings, from the weakest to the strongest, and collects their problems."""

    def __init__(self) -> None:
        self.values: dict[Keys, object] = {each.keys: each.default for each in SETTINGS.values()}
        self.origins: dict[Keys, str] = dict.fromkeys(self.values, "default")
        self.problems: list[str] = []
        self.warnings: list[str] = []

    def take(self, keys: Keys, value: object, origin: str) -> None:
        what = find_setting(keys)
        if what is None and value == {} and find_place(keys).is_table:
            self.values[*keys, PRESENT] = None
        elif what is None:
            self.problems.append(f"{origin}: {_unknown(keys, value)}")
        elif problem := problem_of(what, value):
            but = "" if what.rule.hide else f"is {shown(value)} but "
            self.problems.append(f"{origin}: {dotted(keys)} {but}must be {what.allowed}; {problem}")
        else:
            self.values[keys] = type(what.default)(value)  # a whole number for a float, a list as a tuple
            self.origins[keys] = origin

    def take_layer(self, given: Iterable[tuple[Keys, object, str]]) -> None:
        """Take the values of one source, old names first: where it has both, the new one wins."""
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
            if what is not None and env[name]:
                given.append((keys, parsed(what, env[name]), f"environment {name}"))
            elif what is None and (new := _renamed_variable(name)):
                self.problems.append(f"environment {name}: it is called {new} now: please rename it")
            elif what is None:
                self.warnings.append(f"environment {name}: {_no_variable(name)}")
        self.take_layer(given)

    def loaded(self, file: Path | None) -> Loaded:
        if self.problems:
            raise ConfigError("\n".join(self.problems))
        config = build(self.values)
        if problems := [f"{self._origin(each, file)}: {each}" for each in problems_of(config)]:
            raise ConfigError("\n".join(problems))
        return Loaded(config=config, file=file, origins=self.origins, warnings=tuple(self.warnings))

    def _origin(self, problem: str, file: Path | None) -> str:
        """The source of the key that a problem begins with."""
        return self.origins.get(tuple(problem.partition(" ")[0].split(".")), f"file {file}")


def _renamed_variable(name: str) -> str | None:
    for old, new in RENAMED.items():
        if name.endswith(f"_{old.upper()}"):
            current = name.removesuffix(old.upper()) + new.upper()
            return current if _setting_of_variable(current)[1] is not None else None
    return None


def _no_variable(name: str) -> str:
    if key := _LISTS.get(name):
        return f"not a setting and ignored; {key} is a list and can be set in the file only"
    return f"not a setting and ignored; the nearest one is {nearest(name, _VARIABLES)}"


def _setting_of_variable(name: str) -> tuple[Keys, Setting | None]:
    if keys := _VARIABLES.get(name):
        return keys, SETTINGS[ALIASES.get(".".join(keys), ".".join(keys))]
    for table, what in _NAMED:
        place = next(number for number, each in enumerate(table) if each.isupper())
        head, tail = variable_of((*table[:place], "")), "_".join(("", *table[place + 1 :], what.name)).upper()
        if what.variable and name.startswith(head) and name.endswith(tail) and len(name) > len(head) + len(tail):
            keys = (*table[:place], name[len(head) : -len(tail)].lower(), *table[place + 1 :], what.name)
            if found := find_setting(keys):
                return keys, found
    return (), None


def _flat(table: Mapping[str, object], above: Keys = ()) -> Iterator[tuple[Keys, object]]:
    for name, value in table.items():
        yield from _flat_value((*above, name), value)


def _flat_value(keys: Keys, value: object) -> Iterator[tuple[Keys, object]]:
    what = find_setting(keys)
    if isinstance(value, dict) and value and not (what and isinstance(what.default, dict)):
        yield from _flat(value, keys)
    elif isinstance(value, list) and find_place(keys).is_table and find_place(keys).listed:
        for number, each in enumerate(value, 1):
            yield from _flat_value((*keys, str(number)), each)
    else:
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
