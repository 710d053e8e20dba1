"""`[platforms.X]`: what all chat platforms have in common, and what each has for itself."""
# ruff: noqa: RUF009  `setting` and `section` make dataclass fields

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from everturn.settings.rules import section, setting

Backlog = Literal["all", "newest", "digest", "ask"]
OnDoubt = Literal["mark", "ask", "drop"]
Unknown = Literal["pair", "ignore"]
Groups = Literal["addressed", "all"]


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
        "pair",
        "What somebody unknown gets in a direct chat: a code with which the owner can let them in, or silence. In groups it"
        " is always silence.",
        choices=("pair", "ignore"),
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
        "A reply that may or may not have arrived, where the platform cannot tell: send it again with a mark, ask the"
        " owner, or drop it.",
        choices=("mark", "ask", "drop"),
    )
    reply_valid_s: float = setting(
        86_400.0, "A reply that could not be sent for so many seconds is no longer sent. 0: no limit.",
        between=(0, 31_536_000),
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class TelegramConfig(PlatformConfig):
    """`[platforms.telegram]`."""

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
class PlatformsConfig:
    """`[platforms]`."""

    telegram: TelegramConfig = section(TelegramConfig, "Telegram, through a bot.")
