"""What people may do: `[rights]`, `[approvals]`; and what turns may use: `[spending]`, `[compaction]`, `[patience]`, `[cache]`."""
# ruff: noqa: RUF009  `setting`, `section` and `named` make dataclass fields

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from everturn.settings.platforms import matrix_problem, telegram_problem
from everturn.settings.rules import PLATFORM_NAME, named, section, setting

MOST_TOKENS = 1_000_000_000_000
MOST_COST = 1_000_000_000


def _person_problem(person: str) -> str | None:
    if not re.fullmatch(rf"{PLATFORM_NAME}:\S+", person):
        return "write the platform, a colon and the person's id"
    platform, _, user = person.partition(":")
    problem = {"telegram": telegram_problem, "matrix": matrix_problem}.get(platform)
    return problem(user) if problem else None


PEOPLE = 'a list of people, each as "PLATFORM:USER"'


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeConfig:
    """`[rights.platform.PLATFORM.dm]` and `[... .group]`."""

    admins: tuple[str, ...] = setting(
        (),
        "Who may use every command here that is not the owner's alone. None named: everybody may.",
        form="a list of the platform's ids of people",
    )
    commands: tuple[str, ...] = setting(
        (), "What all others may use, besides /help and /whoami.", form='a list of commands such as ["status", "new"]'
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformRights:
    """The rights on one platform."""

    dm: ScopeConfig = section(ScopeConfig, "Rights in direct chats with the agent. Talking is not affected.")
    group: ScopeConfig = section(ScopeConfig, "Rights in groups, channels and threads. Talking is not affected.")


@dataclass(frozen=True, slots=True, kw_only=True)
class RightsConfig:
    """`[rights]`."""

    owners: tuple[str, ...] = setting(
        (),
        "The owners of the gateway, who may use every command. Whoever has the token of the home is an owner, too.",
        form=PEOPLE,
        check=_person_problem,
    )
    platform: Mapping[str, PlatformRights] = named(
        PlatformRights,
        "The rights on one platform.",
        placeholder="PLATFORM",
        name=PLATFORM_NAME,
        name_form="a platform's name has small letters, digits and _",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalsConfig:
    """`[approvals]`."""

    expires_s: float = setting(
        604_800.0,
        "An approval request without an answer expires after so many seconds; the tool is not used.",
        between=(1, 31_536_000),
    )
    approvers: tuple[str, ...] = setting(
        (), "The only people who may approve tool calls. None named: the person whose turn it is.", form=PEOPLE,
        check=_person_problem,
    )  # fmt: skip


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
