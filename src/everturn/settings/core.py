"""The tables every gateway has: where it runs and keeps its data, its sessions and limits, and what turns may use."""
# ruff: noqa: RUF009  `setting` and `named` make dataclass fields

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal
from zoneinfo import ZoneInfo, available_timezones

from everturn.settings.rules import PLATFORM_NAME, named, nearest, setting, shown

Reset = Literal["none", "idle", "daily", "both"]
Resume = Literal["auto", "on_message"]

CHAT_TYPES = ("dm", "group", "channel", "thread", "forum")
MOST_TOKENS = 1_000_000_000_000
MOST_COST = 1_000_000_000
STORE_SCHEMES = ("sqlite://", "postgresql://", "postgres://")


def _url_problem(url: str) -> str | None:
    if not url or url.startswith(STORE_SCHEMES):
        return None
    return "it begins with none of these"


def _zone_problem(name: str) -> str | None:
    if not name:
        return None
    try:
        ZoneInfo(name)
    except (LookupError, ValueError, OSError):
        near = nearest(name, available_timezones())
        return f"the nearest known one is {shown(near)}" if near else "this machine knows no time zones: install tzdata"
    return None


def _public_problem(url: str) -> str | None:
    return None if not url or re.fullmatch(r"https?://[^\s/?#@]+/?", url) else "it has another form, or a path"


def _host_problem(host: str) -> str | None:
    return None if host and not re.search(r"\s", host) else "it is empty or has a space"


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
class ResetOverride:
    """The reset settings of one platform or chat type; None means as in `[sessions]`."""

    reset: Reset | None = None
    idle_minutes: float | None = None
    at_hour: int | None = None
    notify: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformOverride(ResetOverride):
    """The reset and busy settings of one platform."""

    busy: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetConfig:
    """When a conversation resets by itself."""

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
        "When a conversation resets by itself: never, after a pause, every day, or whichever comes first.",
        choices=("none", "idle", "daily", "both"),
    )
    idle_minutes: float = setting(1440.0, "The pause after which `idle` and `both` reset.", between=(0.001, 5_256_000))
    at_hour: int = setting(4, "The hour of the day at which `daily` and `both` reset.", between=(0, 23))
    timezone: str = setting(
        "",
        "The time zone of at_hour. Empty: the machine's time zone.",
        form='empty, or the name of a time zone such as "Europe/Berlin"',
        check=_zone_problem,
    )
    notify: bool = setting(True, "Whether the user gets a notice when a conversation was reset, and why.")
    group_sessions_per_user: bool = setting(True, "Whether each person in a group has a conversation of their own.")
    thread_sessions_per_user: bool = setting(False, "Whether each person in a thread has a conversation of their own.")
    busy: str = setting(
        "steer",
        "What happens to a message that arrives while a turn runs. steer: it joins the turn before the next model call. queue:"
        " it becomes the next turn. interrupt: the turn ends and the message becomes the next turn. collect: all messages until"
        " the chat is quiet become the next turn. rollback: the turn is undone and the message becomes the next turn.",
        choices=("steer", "queue", "interrupt", "collect", "rollback"),
    )
    burst_s: float = setting(
        0.35, "Messages that one person sends within so many seconds of each other start one turn.", between=(0, 1)
    )
    collect_s: float = setting(2.0, "The pause that ends the mode collect, in seconds.", between=(0, 3_600))
    platform: Mapping[str, PlatformOverride] = named(
        PlatformOverride,
        "What is different on one platform. This table overrides that of the chat type.",
        placeholder="PLATFORM",
        name=PLATFORM_NAME,
        name_form="a platform's name has small letters, digits and _",
        overrides=True,
    )
    chat_type: Mapping[str, ResetOverride] = named(
        ResetOverride,
        f"What is different for one chat type: {', '.join(CHAT_TYPES)}.",
        placeholder="TYPE",
        name="|".join(CHAT_TYPES),
        name_form=f"chat types are {', '.join(CHAT_TYPES)}",
        overrides=True,
    )

    def busy_by_platform(self) -> dict[str, str]:
        """The busy mode of each platform that has its own."""
        return {name: own.busy for name, own in self.platform.items() if own.busy is not None}

    def reset_for(self, platform: str, chat_type: str) -> ResetConfig:
        """The reset settings of a conversation: its platform's table, else its chat type's, else `[sessions]` itself."""
        override = self.platform.get(platform, self.chat_type.get(chat_type, ResetOverride()))
        own: dict[str, Any] = {name: getattr(override, name) for name in OVERRIDABLE}
        return ResetConfig(**{name: getattr(self, name) if own[name] is None else own[name] for name in own})


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryConfig:
    """`[recovery]`."""

    resume: Resume = setting(
        "auto",
        "Whether an interrupted turn resumes by itself after a restart (auto), or with the user's next message (on_message).",
        choices=("auto", "on_message"),
    )
    fresh_s: float = setting(
        3600.0,
        "A turn that was interrupted more than so many seconds ago does not resume by itself.",
        between=(0, 31_536_000),
    )
    stuck_after: int = setting(
        3, "A session that was running at so many unclean ends in a row is suspended. 0: never.", between=(0, 1000)
    )
    unclean_boots: int = setting(
        3,
        "So many unclean starts within five minutes are a crash loop: the gateway then delays resumes. 0: it never does.",
        between=(0, 1000),
    )
    crash_loop_delay_s: float = setting(60.0, "For how many seconds a crash loop delays resumes.", between=(0, 86_400))


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainConfig:
    """`[drain]`."""

    timeout_s: float = setting(
        30.0,
        "How many seconds a stop or restart waits for running turns. Turns that still run then resume after the next start.",
        between=(0, 86_400),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsConfig:
    """`[limits]`."""

    running_turns: int = setting(
        64, "How many turns run at the same time, over all conversations.", between=(1, 100_000)
    )
    message_chars: int = setting(
        100_000, "The longest message that the gateway accepts, in characters.", between=(1, 10_000_000)
    )
    queue_per_session: int = setting(
        32,
        "How many messages one conversation may queue. Further senders are asked to try later.",
        between=(1, 100_000),
    )
    file_megabytes: float = setting(
        20.0,
        "The largest file that the gateway accepts: dropped into the page, attached to a message, or sent.",
        between=(0, 10_000),
    )
    files_megabytes: float = setting(
        1000.0, "How much space all files in the home may take together.", between=(0, 1_000_000)
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
    port: int = setting(8484, "The port of the HTTP server. 0: any free port.", between=(0, 65_535))
    public_url: str = setting(
        "",
        "The address at which people reach the page, if it is not the one that the server listens on: behind a proxy that"
        " speaks https. Cookies are then for https only.",
        form='empty, or "https://HOST"',
        check=_public_problem,
    )
    requests_per_minute: float = setting(
        600.0,
        "How many requests one access key, or one address without a key, may make in a minute. 0: no limit.",
        between=(0, 1_000_000),
    )
    connections_per_address: int = setting(
        1024,
        "How many connections without a valid key, token or cookie one address may have open; for one more, the server"
        " closes the oldest. 0: no limit.",
        between=(0, 100_000),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendingConfig:
    """`[spending]`."""

    turn_tokens: int = setting(0, "The most tokens that one turn may use. 0: no limit.", between=(0, MOST_TOKENS))
    person_tokens_day: int = setting(
        0, "The most tokens that one person may use in a day (UTC). 0: no limit.", between=(0, MOST_TOKENS)
    )
    total_tokens_day: int = setting(
        0, "The most tokens that all people together may use in a day (UTC). 0: no limit.", between=(0, MOST_TOKENS)
    )
    turn_cost: float = setting(
        0.0, "The most US dollars that one turn may cost, where prices are known. 0: no limit.", between=(0, MOST_COST)
    )
    person_cost_day: float = setting(
        0.0, "The most that one person may spend in a day, where prices are known. 0: no limit.", between=(0, MOST_COST)
    )
    total_cost_day: float = setting(
        0.0, "The most that all people together may spend in a day, where prices are known. 0: no limit.",
        between=(0, MOST_COST),
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionConfig:
    """`[compaction]`."""

    at: float = setting(
        0.7, "The gateway compacts a conversation before a model call that would fill this share of the context window.",
        between=(0.1, 0.95),
    )  # fmt: skip
    keep: float = setting(0.2, "The share of the context window that stays word for word.", between=(0.0, 0.9))


@dataclass(frozen=True, slots=True, kw_only=True)
class PatienceConfig:
    """`[patience]`."""

    inactive_s: float = setting(
        1800.0, "A turn that shows no activity for so many seconds fails, and its user gets a notice. 0: never.",
        between=(0, 31_536_000),
    )  # fmt: skip
    warn_s: float = setting(
        900.0, "After so many seconds without activity its user gets a warning. 0: never.", between=(0, 31_536_000)
    )
    working_s: float = setting(
        180.0, "During a long turn its user gets a notice that it still runs, every so many seconds. 0: never.",
        between=(0, 31_536_000),
    )  # fmt: skip
    stall_s: float = setting(
        300.0, "When a message is queued and nothing moved for so many seconds, its sender gets a notice. 0: never.",
        between=(0, 31_536_000),
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheConfig:
    """`[cache]`."""

    entries: int = setting(128, "How many such clients the gateway keeps for sessions.", between=(1, 100_000))
    megabytes: int = setting(512, "How much memory they may take together, as estimated.", between=(1, 1_000_000))
    idle_s: float = setting(3600.0, "Clients unused for so many seconds are dropped.", between=(1, 31_536_000))
