"""The chat platforms of one gateway, made from its settings. What one needs is loaded when it is switched on, never before."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from everturn.clock import Clock
from everturn.errors import ConfigError
from everturn.platform.interface import CanClose, Platform
from everturn.settings import Config

VARIABLE = "EVERTURN_PLATFORMS_{}_TOKEN"
CLOSE_S = 1.0


def chat_platforms(config: Config, home: Path, clock: Clock) -> list[Platform]:
    """Those that are switched on. Raises ConfigError with what is wrong, and where."""
    made: list[Platform] = []
    if config.platforms.telegram.enabled:
        made.append(_telegram(config, home, clock))
    return made


async def close_all(platforms: Iterable[Platform]) -> None:
    """End their connections; one that does not let go is left to the end of the process."""
    closing = [asyncio.ensure_future(each.close_connections()) for each in platforms if isinstance(each, CanClose)]
    if closing:
        await asyncio.wait(closing, timeout=CLOSE_S)


def _telegram(config: Config, home: Path, clock: Clock) -> Platform:
    own = config.platforms.telegram
    token = token_of("telegram", own.token, own.token_file, home)
    number, _, rest = token.partition(":")
    if not number.isdigit() or not rest:
        raise ConfigError("platforms.telegram.token is not a token of @BotFather: it looks like 123456:ABC...")
    public = config.server.public_url.rstrip("/")
    if own.webhook and not public.startswith("https://"):
        raise ConfigError("platforms.telegram.webhook needs server.public_url, with https: Telegram comes to no other")
    try:
        from everturn.platform.telegram import TelegramPlatform, TelegramSettings
    except ModuleNotFoundError as error:
        raise ConfigError(f"Telegram needs {error.name}: install everturn[telegram]") from None
    settings = TelegramSettings(
        token=token,
        api_url=own.api_url,
        hook_url=f"{public}/hooks/telegram/{number}" if own.webhook else "",
        listening=own.groups == "all",
    )
    return TelegramPlatform(settings, clock)


def token_of(platform: str, token: str, file: str, home: Path) -> str:
    """The secret of a platform, from its setting or from a file that only its owner can read. Raises ConfigError."""
    if token.strip():
        return token.strip()
    if not file:
        raise ConfigError(
            f"platforms.{platform} is enabled but has no token; put it into the environment"
            f" ({VARIABLE.format(platform.upper())}) or name a file in platforms.{platform}.token_file"
        )
    path = home / file
    try:
        mode, found = path.stat().st_mode, path.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ConfigError(f"platforms.{platform}.token_file: {path} can not be read: {why}") from None
    if os.name == "posix" and stat.S_IMODE(mode) & 0o077:
        raise ConfigError(
            f"platforms.{platform}.token_file: others may read {path}; make it yours alone: chmod 600 {path}"
        )
    if not found:
        raise ConfigError(f"platforms.{platform}.token_file: {path} is empty")
    return found
