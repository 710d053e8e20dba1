"""The chat platforms, `[platforms.X]`, and what people on them may do: `[rights]` and `[approvals]`."""
# ruff: noqa: RUF009  `setting`, `section` and `named` make dataclass fields

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Literal

from everturn.settings.agent import object_problem
from everturn.settings.rules import PLATFORM_NAME, is_name, named, section, setting

Backlog = Literal["all", "newest", "digest", "ask"]
OnUnknownDelivery = Literal["mark", "ask", "drop"]
Unknown = Literal["auto", "pair", "ignore"]
Groups = Literal["addressed", "all"]
EVERYBODY = "*"
PEOPLE = 'a list of people, each as "PLATFORM:USER"'


def telegram_problem(number: str) -> str | None:
    """What is wrong with the id of a person or chat on Telegram: one that nobody has would silently admit nobody."""
    return None if number == EVERYBODY or is_name("telegram", number) else "write a number, not a name"


def matrix_problem(account: str) -> str | None:
    """What is wrong with an account on Matrix."""
    return None if account == EVERYBODY or is_name("matrix", account) else "an account looks like @name:example.org"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformConfig:
    """The settings of every chat platform. Only people who are named here, are owners or were approved may speak."""

    enabled: bool = setting(False, "Whether the gateway reads and answers this platform.")
    allow: tuple[str, ...] = setting(
        (), 'Who may speak to the agent here. "*": everybody.', form="a list of the platform's ids of people"
    )
    allow_chats: tuple[str, ...] = setting(
        (),
        "Groups and channels in which everybody may speak to the agent.",
        form="a list of the platform's ids of chats",
    )
    unknown: Unknown = setting(
        "auto",
        "What an unknown person gets in a direct chat: a code with which the owner can approve them (pair), or no answer (ignore);"
        " auto: a code as long as allow and allow_chats name nobody. In groups they never get an answer.",
        choices=("auto", "pair", "ignore"),
    )
    backlog: Backlog = setting(
        "all",
        "What the gateway does with messages that were sent while it was offline: it answers all, only the newest of each"
        " conversation, all of a conversation in one turn (digest), or asks their sender first.",
        choices=("all", "newest", "digest", "ask"),
    )
    backlog_age_s: float = setting(
        86_400.0,
        "The gateway does not answer messages that were sent more than so many seconds before they arrive; their sender gets a"
        " notice. 0: no limit.",
        between=(0, 31_536_000),
    )
    on_unknown_delivery: OnUnknownDelivery = setting(
        "mark",
        "What the gateway does with a reply whose delivery is unknown, where the platform cannot tell: send it again with a"
        " mark, ask in its chat (with buttons where the platform has them), or drop it.",
        choices=("mark", "ask", "drop"),
    )
    reply_valid_s: float = setting(
        86_400.0, "The gateway stops trying to send a reply after so many seconds. 0: no limit.",
        between=(0, 31_536_000),
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class TelegramConfig(PlatformConfig):
    """`[platforms.telegram]`."""

    allow: tuple[str, ...] = setting(
        (),
        'Who may speak to the agent here. "*": everybody.',
        form="a list of people by their numbers, which @userinfobot shows",
        check=telegram_problem,
    )
    allow_chats: tuple[str, ...] = setting(
        (),
        "Groups and channels in which everybody may speak to the agent.",
        form="a list of chats by their numbers, which `everturn channels` shows",
        check=telegram_problem,
    )
    token: str = setting(
        "",
        "The bot's token. Better kept in the environment (EVERTURN_PLATFORMS_TELEGRAM_TOKEN) or in token_file.",
        form="the token that BotFather gave",
        secret=True,
        hide=True,
    )
    token_file: str = setting("", "A file with the token that only its owner can read.", form="the path of a file")
    groups: Groups = setting(
        "addressed",
        "Which messages the bot reads in groups: only those that mention it, reply to it or are a command to it; or all that"
        " Telegram gives it (BotFather's /setprivacy decides that).",
        choices=("addressed", "all"),
    )
    webhook: bool = setting(
        False,
        "Whether Telegram sends updates to a webhook below server.public_url instead of being polled.",
    )
    api_url: str = setting("https://api.telegram.org", "The address of the Bot API.", form='"https://HOST"')


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixConfig(PlatformConfig):
    """`[platforms.matrix]`."""

    allow: tuple[str, ...] = setting(
        (),
        'Who may speak to the agent here. "*": everybody.',
        form='a list of accounts, each as "@NAME:SERVER"',
        check=matrix_problem,
    )
    unknown: Unknown = setting(
        "auto",
        "How the account declines an invitation of an unknown person: in a direct chat with their id and what to do (pair), or"
        " without a reason (ignore); auto: as pair as long as allow and allow_chats name nobody. It gives a code only in a"
        " direct chat that it is in already. In rooms unknown people never get an answer.",
        choices=("auto", "pair", "ignore"),
    )
    on_unknown_delivery: OnUnknownDelivery = setting(
        "mark",
        "No effect on Matrix: a homeserver recognises a repeated reply by its key, so no delivery stays unknown.",
        choices=("mark", "ask", "drop"),
    )
    homeserver: str = setting("", "The address of the homeserver.", form='"https://HOST"')
    user: str = setting("", "The gateway's own account there.", form='"@NAME:SERVER"')
    token: str = setting(
        "",
        "The account's access token. Better kept in the environment (EVERTURN_PLATFORMS_MATRIX_TOKEN) or in token_file. Keep its"
        " device: by it the homeserver recognises what the gateway sent before.",
        form="an access token",
        secret=True,
        hide=True,
    )
    token_file: str = setting("", "A file with the token that only its owner can read.", form="the path of a file")
    groups: Groups = setting(
        "addressed",
        "Which messages the account reads in rooms of more than two: only those that mention it, reply to it or are a command; or all.",
        choices=("addressed", "all"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnPlatformConfig(PlatformConfig):
    """`[platforms.own.NAME]`."""

    object: str = setting(
        "",
        "The adapter's module and object. The gateway calls it with the home's folder and the clock; it returns the platform,"
        " whose name must be NAME. The module may lie in the home.",
        form='"MODULE:OBJECT"',
        check=object_problem,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformsConfig:
    """`[platforms]`."""

    telegram: TelegramConfig = section(TelegramConfig, "Telegram, through a bot.")
    matrix: MatrixConfig = section(MatrixConfig, "Matrix, through an account of its own.")
    own: Mapping[str, OwnPlatformConfig] = named(
        OwnPlatformConfig,
        "A platform of your own, by its name.",
        placeholder="NAME",
        name=PLATFORM_NAME,
        name_form="a platform's name has small letters, digits and _",
    )

    def by_name(self) -> dict[str, PlatformConfig]:
        """Every chat platform by name, enabled or not: the built-in ones and the owner's."""
        ours = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "own"}
        return {**self.own, **ours}


def _person_problem(person: str) -> str | None:
    if not re.fullmatch(rf"{PLATFORM_NAME}:\S+", person):
        return "write the platform, a colon and the person's id"
    platform, _, user = person.partition(":")
    problem = {"telegram": telegram_problem, "matrix": matrix_problem}.get(platform)
    return problem(user) if problem else None


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
