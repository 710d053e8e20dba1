"""The tables of the file as a tree of dataclasses: finds settings by their keys, and builds a configuration from values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import Field, dataclass, fields, is_dataclass
from typing import Any

from everturn.settings.rules import ListedTables, NamedTables, Rule, dotted, shown

Keys = tuple[str, ...]
PREFIX = "EVERTURN_"
PRESENT = ""  # the last key of a table that was written down with nothing in it


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting, as documents and messages need it."""

    table: Keys
    name: str
    default: Any
    rule: Rule

    @property
    def keys(self) -> Keys:
        """Its place in the file."""
        return (*self.table, self.name)

    @property
    def key(self) -> str:
        """Its dotted name."""
        return dotted(self.keys)

    @property
    def variable(self) -> str | None:
        """The environment variable that sets it; lists and maps have none."""
        return variable_of(self.keys) if isinstance(self.default, (str, bool, int, float)) else None

    @property
    def allowed(self) -> str:
        """As text, which values it takes."""
        several = "a list of " if isinstance(self.default, tuple) else ""
        if isinstance(self.default, dict):
            return self.rule.form + (f" of {', '.join(map(shown, self.rule.choices))}" if self.rule.choices else "")
        if self.rule.choices:
            one = "one of " if len(self.rule.choices) > 1 and not several else ""
            return several + one + ", ".join(map(shown, self.rule.choices))
        if isinstance(self.default, bool):
            return "true or false"
        if self.rule.between:
            number = "a whole number" if isinstance(self.default, int) else "a number"
            return f"{number} from {self.rule.between[0]} to {self.rule.between[1]}"
        return self.rule.form


@dataclass(frozen=True, slots=True)
class Table:
    """A table of the file, with its placeholders, as documents need it."""

    keys: Keys
    kind: type
    text: str
    rules_of: type
    listed: bool = False

    @property
    def head(self) -> str:
        """Its header in the file."""
        name = ".".join(self.keys)
        return f"[[{name}]]" if self.listed else f"[{name}]"

    @property
    def open(self) -> bool:
        """Whether the owner chooses a part of its name."""
        return self.listed or any(each.isupper() for each in self.keys)

    def settings(self) -> list[Setting]:
        """Its settings."""
        return settings_of(self.kind, self.rules_of, self.keys)


def variable_of(keys: Keys) -> str:
    """The environment variable of a setting."""
    return PREFIX + "_".join(keys).upper()


def settings_of(kind: type, rules_of: type | None = None, table: Keys = ()) -> list[Setting]:
    """The settings of one table, without those below it."""
    own = {each.name for each in fields(kind)}
    rules = {each.name: each.metadata for each in fields(rules_of or kind) if "rule" in each.metadata}
    return [Setting(table, name, about["default"], about["rule"]) for name, about in rules.items() if name in own]


def tables_below(kind: type, above: Keys = ()) -> Iterator[Table]:
    """Every table below a kind, in the order of the file; placeholders stand for the names that the owner chooses."""
    for each in fields(kind):
        keys = (*above, each.name)
        match each.metadata:
            case {"section": inner, "text": text}:
                yield Table(keys, inner, text, inner)
                yield from tables_below(inner, keys)
            case {"named": NamedTables() as tables}:
                keys = (*keys, tables.placeholder)
                yield Table(keys, tables.kind, tables.text, kind if tables.overrides else tables.kind)
                yield from tables_below(tables.kind, keys)
            case {"listed": ListedTables() as tables}:
                yield Table(keys, tables.kind, tables.text, tables.kind, listed=True)


@dataclass(frozen=True, slots=True)
class SettingPlace:
    """Where keys lead: a table (its kind and whose rules it takes), or as far as they are known."""

    kind: type | None  # None: tables with names of the owner's choice stand here
    rules_of: type | None
    known: Keys
    rest: Keys
    named: NamedTables | None = None
    listed: bool = False

    @property
    def is_table(self) -> bool:
        """Whether the file may have a table here."""
        return not self.rest


def place_of(root: type, keys: Keys) -> SettingPlace:
    """Follow keys down the tree as far as they are tables."""
    place = SettingPlace(root, root, (), keys)
    while place.rest and (further := _further(place)):
        place = further
    return place


def _further(place: SettingPlace) -> SettingPlace | None:
    first, rest = place.rest[0], place.rest[1:]
    known = (*place.known, first)
    if place.named:
        tables = place.named
        if not tables.name.fullmatch(first):
            return None
        return SettingPlace(tables.kind, place.rules_of if tables.overrides else tables.kind, known, rest)
    if place.listed:
        return SettingPlace(place.kind, place.rules_of, known, rest) if first.isdigit() else None
    about: Mapping[str, Any] = next((each.metadata for each in fields(place.kind or Table) if each.name == first), {})
    match about:
        case {"section": inner}:
            return SettingPlace(inner, inner, known, rest)
        case {"named": NamedTables() as tables}:
            return SettingPlace(None, place.kind, known, rest, named=tables)
        case {"listed": ListedTables(kind=inner)}:
            return SettingPlace(inner, inner, known, rest, listed=True)
    return None


def setting_at(root: type, keys: Keys) -> Setting | None:
    """The setting at these keys; None when there is none."""
    place = place_of(root, keys)
    if place.kind is None or place.listed or len(place.rest) != 1:
        return None
    found = settings_of(place.kind, place.rules_of, place.known)
    return next((each for each in found if each.name == place.rest[0]), None)


def built(kind: type, values: Mapping[Keys, object]) -> Any:
    """The configuration, or a part of it, from its values by place; what is not given has its default."""
    return kind(**{each.name: _value(each, values) for each in fields(kind) if _given(each, values)})


def _given(each: Field[Any], values: Mapping[Keys, object]) -> bool:
    return any(keys[0] == each.name for keys in values)


def _value(each: Field[Any], values: Mapping[Keys, object]) -> Any:
    below = {keys[1:]: value for keys, value in values.items() if keys[0] == each.name}
    match each.metadata:
        case {"section": inner}:
            return built(inner, below)
        case {"named": NamedTables() as tables}:
            return {name: built(tables.kind, own) for name, own in _by_first(below).items()}
        case {"listed": ListedTables() as tables}:
            return tuple(
                built(tables.kind, own) for _, own in sorted(_by_first(below).items(), key=lambda item: int(item[0]))
            )
    return below[()]


def _by_first(values: Mapping[Keys, object]) -> dict[str, dict[Keys, object]]:
    groups: dict[str, dict[Keys, object]] = {}
    for keys, value in values.items():
        if keys == (PRESENT,):
            continue
        group = groups.setdefault(keys[0], {})
        if keys[1:] != (PRESENT,):
            group[keys[1:]] = value
    return groups


def value_at(config: object, keys: Keys) -> object:
    """The value at these keys."""
    value: Any = config
    for name in keys:
        if is_dataclass(value):
            value = getattr(value, name)
        else:
            value = value[name] if isinstance(value, Mapping) else value[int(name) - 1]
    return value
