"""`[platforms.X]`: what all chat platforms have in common, and what each has for itself."""
# ruff: noqa: RUF009  `setting`, `section` and `named` make dataclass fields

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Literal

from everturn.settings.agent import PLATFORM_NAME, object_problem
from everturn.settings.names import is_name
from everturn.settings.rules import named, section, setting

Backlog = Literal["all", "newest", "digest", "ask"]
OnDoubt = Literal["mark", "ask", "drop"]
Unknown = Literal["auto", "pair", "ignore"]
Groups = Literal["addressed", "all"]
EVERYBODY = "*"


def telegram_problem(number: str) -> str | None:
    """What is wrong with the name of a person or a chat: a name that nobody has would let nobody in, without a word."""
    return None if number == EVERYBODY or is_name("telegram", number) else "a number is wanted, not a name"


def matrix_problem(account: str) -> str | None:
    """The same for an account."""
    return None if account == EVERYBODY or is_name("matrix", account) else "it looks like @name:example.org"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformConfig:
    """What every chat platform has. Nobody may speak who is not named here, an owner, or paired."""

    enabled: bool = setting(False, "Whether this platform is read and answered.")
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
        "What somebody unknown gets in a direct chat: a code with which the owner can let them in, or silence; auto: a code"
        " as long as allow and allow_chats name nobody. In groups it is always silence.",
        choices=("auto", "pair", "ignore"),
    )
    backlog: Backlog = setting(
        "all",
        "What happens to messages that piled up while the gateway was away: all are answered, only the newest of each"
        " conversation, all of a conversation in one turn, or their sender is asked first.",
        choices=("all", "newest", "digest", "ask"),
    )
    backlog_age_s: float = setting(
        86_400.0,
        "Messages that were sent longer ago than so many seconds when they arrive are not answered, and their sender is"
        " told. 0: no limit.",
        between=(0, 31_536_000),
    )
    on_doubt: OnDoubt = setting(
        "mark",
        "A reply that may or may not have arrived, where the platform cannot tell: send it again with a mark, ask in its"
        " chat (with buttons where the platform has them), or drop it.",
        choices=("mark", "ask", "drop"),
    )
    reply_valid_s: float = setting(
        86_400.0, "A reply that could not be sent for so many seconds is no longer sent. 0: no limit.",
        between=(0, 31_536_000),
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class TelegramConfig(PlatformConfig):
    """`[platforms.telegram]`."""

    allow: tuple[str, ...] = setting(
        (),
        'Who may speak to the agent here. "*": everybody.',
        form="a list of people by their numbers, which @userinfobot tells",
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
    token_file: str = setting(
        "", "A file that only its owner can read, with the token in it.", form="the path of a file"
    )
    groups: Groups = setting(
        "addressed",
        "What is heard in groups: only what mentions the bot, replies to it or is a command to it; or everything that Telegram"
        " lets it hear (BotFather's /setprivacy decides that).",
        choices=("addressed", "all"),
    )
    webhook: bool = setting(
        False,
        "Whether Telegram brings updates to server.public_url instead of being polled. Nothing else may be on the way.",
    )
    api_url: str = setting("https://api.telegram.org", "Where the Bot API is.", form='"https://HOST"')


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
        "Somebody unknown who invites the account is declined: in a direct chat with their id and what to do (pair), or without"
        " a word (ignore); auto: as with pair as long as allow and allow_chats name nobody. A code is given only in a direct"
        " chat that the account is in already. In rooms it is always silence.",
        choices=("auto", "pair", "ignore"),
    )
    on_doubt: OnDoubt = setting(
        "mark",
        "No effect on Matrix: a homeserver knows a repeated reply by its key, so that there is no doubt to settle.",
        choices=("mark", "ask", "drop"),
    )
    homeserver: str = setting("", "The address of the homeserver.", form='"https://HOST"')
    user: str = setting("", "The gateway's own account there.", form='"@NAME:SERVER"')
    token: str = setting(
        "",
        "Its access token. Better kept in the environment (EVERTURN_PLATFORMS_MATRIX_TOKEN) or in token_file. Keep the device"
        " it belongs to: by it the server knows what we sent before.",
        form="an access token",
        secret=True,
        hide=True,
    )
    token_file: str = setting(
        "", "A file that only its owner can read, with the token in it.", form="the path of a file"
    )
    groups: Groups = setting(
        "addressed",
        "What is heard in rooms of more than two: only what mentions the account, replies to it or is a command; or everything.",
        choices=("addressed", "all"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnPlatformConfig(PlatformConfig):
    """`[platforms.own.NAME]`."""

    object: str = setting(
        "",
        "The adapter's place. It is called with the home's folder and the clock, and returns the platform, which has NAME as"
        " its name. The module may lie in the home.",
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
        """Every chat platform there is, switched on or not: those of our own and, beside them, the owner's."""
        ours = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "own"}
        return {**self.own, **ours}
