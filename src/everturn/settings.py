"""The settings: their tables, what each means and which values it takes. `config` reads them; documents are made from them."""
# ruff: noqa: RUF009  `setting` and `section` make dataclass fields

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypeVar
from zoneinfo import ZoneInfo, available_timezones

T = TypeVar("T")
Reset = Literal["none", "idle", "daily", "both"]
Resume = Literal["auto", "on_message"]
Keys = tuple[str, ...]

PREFIX = "EVERTURN_"
CHAT_TYPES = ("dm", "group", "channel", "thread", "forum")
STORE_SCHEMES = ("sqlite://", "postgresql://", "postgres://")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What a setting means and which values it takes."""

    text: str
    choices: tuple[str, ...] = ()
    later: tuple[str, ...] = ()
    between: tuple[float, float] | None = None
    form: str = "text"
    check: Callable[[str], str | None] | None = None


def nearest(word: str, known: Iterable[str], cutoff: float = 0.0) -> str | None:
    """The known word most like this one, if any is like it at all."""
    by_lower = {name.lower(): name for name in known}
    found = difflib.get_close_matches(word.lower(), by_lower, 1, cutoff)
    return by_lower[found[0]] if found else None


def _url_problem(url: str) -> str | None:
    if not url or url.startswith(STORE_SCHEMES):
        return None
    return "it is none of these"


def _zone_problem(name: str) -> str | None:
    if not name:
        return None
    try:
        ZoneInfo(name)
    except (LookupError, ValueError, OSError):
        near = nearest(name, available_timezones())
        return f"the nearest known one is {shown(near)}" if near else "this machine knows no zones: install tzdata"
    return None


def _host_problem(host: str) -> str | None:
    return None if host and not re.search(r"\s", host) else "it is empty or has a space"


def setting(
    default: T,
    text: str,
    *,
    choices: tuple[str, ...] = (),
    later: tuple[str, ...] = (),
    between: tuple[float, float] | None = None,
    form: str = "text",
    check: Callable[[str], str | None] | None = None,
    secret: bool = False,
) -> T:
    """A field of a section, with what people must know about it."""
    rule = Rule(text=text, choices=choices, later=later, between=between, form=form, check=check)
    return field(default=default, metadata={"rule": rule}, repr=not secret)


def section(kind: Callable[[], T], text: str) -> T:
    """A table of the file."""
    return field(default_factory=kind, metadata={"text": text})


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreConfig:
    """`[store]`."""

    url: str = setting(
        "",
        "The database. Empty: the SQLite file everturn.db in the home. Several machines share a PostgreSQL database.",
        form='empty, "sqlite:///FILE" or "postgresql://USER:PASSWORD@HOST/NAME"',
        check=_url_problem,
        secret=True,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentConfig:
    """`[agent]`."""

    kind: str = setting("demo", "Who answers. The demo agent is scripted and needs nothing.", choices=("demo",))


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetOverride:
    """What one platform or chat type does differently; None means as in `[sessions]`."""

    reset: Reset | None = None
    idle_minutes: float | None = None
    at_hour: int | None = None
    notify: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetConfig:
    """When a conversation starts afresh by itself."""

    reset: Reset
    idle_minutes: float
    at_hour: int
    notify: bool


OVERRIDABLE = tuple(each.name for each in fields(ResetOverride))


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionsConfig:
    """`[sessions]`."""

    reset: Reset = setting(
        "none",
        "When a conversation starts afresh by itself: never, after a pause, every day, or whichever comes first.",
        choices=("none", "idle", "daily", "both"),
    )
    idle_minutes: float = setting(1440.0, "The pause after which `idle` and `both` reset.", between=(0.001, 5_256_000))
    at_hour: int = setting(4, "The hour of the day at which `daily` and `both` reset.", between=(0, 23))
    timezone: str = setting(
        "",
        "The zone of at_hour. Empty: the machine's zone.",
        form='empty, or the name of a zone such as "Europe/Berlin"',
        check=_zone_problem,
    )
    notify: bool = setting(True, "Tell the user when a conversation was reset, and why.")
    group_sessions_per_user: bool = setting(True, "In a group each person has a conversation of their own.")
    thread_sessions_per_user: bool = setting(False, "In a thread each person has a conversation of their own.")
    busy: str = setting(
        "queue",
        "What a message does that arrives while a turn runs. queue: it waits and becomes the next turn.",
        choices=("queue",),
        later=("steer", "interrupt", "collect", "rollback"),
    )
    platform: Mapping[str, ResetOverride] = field(default_factory=dict)
    chat_type: Mapping[str, ResetOverride] = field(default_factory=dict)

    def reset_for(self, platform: str, chat_type: str) -> ResetConfig:
        """The policy of a conversation: its platform's table, else its chat type's, else `[sessions]` itself."""
        override = self.platform.get(platform, self.chat_type.get(chat_type, ResetOverride()))
        own: dict[str, Any] = {name: getattr(override, name) for name in OVERRIDABLE}
        return ResetConfig(**{name: getattr(self, name) if own[name] is None else own[name] for name in own})


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryConfig:
    """`[recovery]`."""

    resume: Resume = setting(
        "auto",
        "An interrupted turn goes on by itself after a restart, or waits for the user's next message.",
        choices=("auto", "on_message"),
    )
    fresh_s: float = setting(
        3600.0,
        "A turn that was interrupted longer ago than this many seconds does not go on by itself.",
        between=(0, 31_536_000),
    )
    stuck_after: int = setting(
        3, "A session that was running at so many unclean ends in a row is suspended. 0: never.", between=(0, 1000)
    )
    unclean_boots: int = setting(
        3,
        "After so many unclean starts within five minutes, resuming waits until the process has been calm. 0: it never waits.",
        between=(0, 1000),
    )
    calm_s: float = setting(60.0, "How many seconds without trouble count as calm.", between=(0, 86_400))


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainConfig:
    """`[drain]`."""

    timeout_s: float = setting(
        30.0,
        "How many seconds a stop or restart waits for running turns. What still runs then is resumed later.",
        between=(0, 86_400),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsConfig:
    """`[limits]`."""

    running_turns: int = setting(
        64, "How many turns run at the same time, over all conversations.", between=(1, 100_000)
    )
    message_chars: int = setting(
        100_000, "The longest message that is accepted, in characters.", between=(1, 10_000_000)
    )
    queue_per_session: int = setting(
        32, "How many messages may wait in one conversation. Who sends more is told to try later.", between=(1, 100_000)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """`[server]`."""

    host: str = setting(
        "127.0.0.1",
        "The address the HTTP server listens on. The default is reachable from this machine only.",
        form="a host name or an IP address",
        check=_host_problem,
    )
    port: int = setting(8484, "The port of the HTTP server. 0: any free one.", between=(0, 65_535))


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Every setting of a gateway, checked."""

    store: StoreConfig = section(StoreConfig, "Where everything is kept.")
    agent: AgentConfig = section(AgentConfig, "The agent.")
    sessions: SessionsConfig = section(SessionsConfig, "Conversations and when they start afresh.")
    recovery: RecoveryConfig = section(RecoveryConfig, "What happens after a crash or a restart.")
    drain: DrainConfig = section(DrainConfig, "How a stop or restart treats running turns.")
    limits: LimitsConfig = section(LimitsConfig, "Bounds. Who hits one is told.")
    server: ServerConfig = section(ServerConfig, "The HTTP server.")


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting, as documents and messages need it."""

    section: str
    name: str
    default: object
    rule: Rule

    @property
    def key(self) -> str:
        """Its dotted name."""
        return f"{self.section}.{self.name}"

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return variable_of((self.section, self.name))

    @property
    def allowed(self) -> str:
        """In words, which values it takes."""
        if self.rule.choices:
            return ("one of " if len(self.rule.choices) > 1 else "") + ", ".join(map(shown, self.rule.choices))
        if isinstance(self.default, bool):
            return "true or false"
        if self.rule.between:
            number = "a whole number" if isinstance(self.default, int) else "a number"
            return f"{number} from {self.rule.between[0]} to {self.rule.between[1]}"
        return self.rule.form


def variable_of(keys: Keys) -> str:
    """The environment variable of a setting."""
    return PREFIX + "_".join(keys).upper()


def value_of(config: Config, key: str) -> object:
    """The value of a dotted key."""
    value: Any = config
    for name in key.split("."):
        value = value[name] if isinstance(value, Mapping) else getattr(value, name)
    return value


def shown(value: object) -> str:
    """A value as TOML would write it, without its passwords."""
    if isinstance(value, str):
        hidden = re.sub(r"(://[^:/@\s]*):.*@", r"\1:***@", value)
        hidden = re.sub(r"(?i)(password\s*=\s*)[^&\s]+", r"\1***", hidden)
        return json.dumps(hidden, ensure_ascii=False)
    if isinstance(value, float) and math.isfinite(value) and value.is_integer():
        return str(int(value))
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


def _settings() -> Iterator[Setting]:
    for part in fields(Config):
        kind: Any = part.default_factory
        for each in fields(kind):
            if rule := each.metadata.get("rule"):
                yield Setting(part.name, each.name, each.default, rule)


SECTIONS: Mapping[str, str] = {part.name: part.metadata["text"] for part in fields(Config)}
SETTINGS: Mapping[str, Setting] = {each.key: each for each in _settings()}
OVERRIDE_TABLES = {"platform": re.compile(r"[a-z][a-z0-9_]*"), "chat_type": re.compile("|".join(CHAT_TYPES))}


def find_setting(keys: Keys) -> Setting | None:
    """The setting at this place of the file; tables of platforms and chat types share those of `[sessions]`."""
    match keys:
        case ("sessions", "platform" | "chat_type" as table, name, last):
            known = last in OVERRIDABLE and OVERRIDE_TABLES[table].fullmatch(name)
            return SETTINGS[f"sessions.{last}"] if known else None
        case (part, name):
            return SETTINGS.get(f"{part}.{name}")
    return None


def is_table(keys: Keys) -> bool:
    """Whether the file may have a table of this name."""
    match keys:
        case ("sessions", "platform" | "chat_type"):
            return True
        case ("sessions", "platform" | "chat_type" as table, name):
            return OVERRIDE_TABLES[table].fullmatch(name) is not None
        case (part,):
            return part in SECTIONS
    return False
