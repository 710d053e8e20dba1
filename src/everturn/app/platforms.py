"""Makes the chat platforms of one gateway from its settings. Libraries of a platform are loaded only when it is enabled."""

from __future__ import annotations

import asyncio
import os
import re
import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from everturn.agent.python_object import load_object, look_in
from everturn.app.gateway_settings import admission_of, rights_of
from everturn.clock import Clock
from everturn.errors import ConfigError
from everturn.model import SessionSource
from everturn.people.rows.access import admitted
from everturn.people.rules.access import BY_HTTP, AccessVerdict
from everturn.platform.interface import CanClose, Platform
from everturn.settings import Config, OwnPlatformConfig
from everturn.store.interface import Store

_MATRIX_USER = re.compile(r"@[^:\s]+:\S+")
VARIABLE = "EVERTURN_PLATFORMS_{}_TOKEN"
CLOSE_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Wiring:
    """What a platform is made with."""

    config: Config
    home: Path
    clock: Clock
    store: Store


def chat_platforms(config: Config, home: Path, clock: Clock, store: Store) -> list[Platform]:
    """Make the enabled platforms. Raises ConfigError with the wrong setting."""
    wiring = Wiring(config=config, home=home, clock=clock, store=store)
    made = [make(wiring) for name, make in BUILT_IN.items() if getattr(config.platforms, name).enabled]
    return made + [_own(name, each, wiring) for name, each in config.platforms.own.items() if each.enabled]


async def close_all(platforms: Iterable[Platform]) -> None:
    """Close the connections of all platforms; one that takes too long ends with the process."""
    closing = [asyncio.ensure_future(each.close_connections()) for each in platforms if isinstance(each, CanClose)]
    if closing:
        await asyncio.wait(closing, timeout=CLOSE_S)


def _telegram(wiring: Wiring) -> Platform:
    config, own = wiring.config, wiring.config.platforms.telegram
    token = token_of("telegram", own.token, own.token_file, wiring.home)
    number, _, rest = token.partition(":")
    if not number.isdigit() or not rest:
        raise ConfigError("platforms.telegram.token is not a bot token; @BotFather's look like 123456:ABC...")
    public = config.server.public_url.rstrip("/")
    if own.webhook and not public.startswith("https://"):
        raise ConfigError("platforms.telegram.webhook needs server.public_url with https: Telegram calls no other")
    try:
        from everturn.platform.telegram import TelegramPlatform, TelegramSettings
    except ModuleNotFoundError as error:
        raise ConfigError(f"Telegram needs {error.name}: install everturn[telegram]") from None
    settings = TelegramSettings(
        token=token,
        api_url=own.api_url,
        hook_url=f"{public}/hooks/telegram/{number}" if own.webhook else "",
        listening=own.groups == "all",
        rights=rights_of(config.rights),
    )
    return TelegramPlatform(settings, wiring.clock)


def _matrix(wiring: Wiring) -> Platform:
    own = wiring.config.platforms.matrix
    token = token_of("matrix", own.token, own.token_file, wiring.home)
    if not own.homeserver.startswith(("https://", "http://")):
        raise ConfigError(
            'platforms.matrix.homeserver must be the homeserver\'s address, such as "https://matrix.example.org"'
        )
    if not _MATRIX_USER.fullmatch(own.user):
        raise ConfigError('platforms.matrix.user must be the whole account, such as "@name:example.org"')
    from everturn.platform.matrix import MatrixPlatform, MatrixSettings

    settings = MatrixSettings(
        homeserver=own.homeserver, user=own.user, token=token, listening=own.groups == "all"
    )  # fmt: skip
    admission = admission_of(wiring.config)

    async def welcome(source: SessionSource) -> AccessVerdict:
        return await wiring.store.read(admitted, admission, source)

    return MatrixPlatform(settings, wiring.clock, welcome)


BUILT_IN: dict[str, Callable[[Wiring], Platform]] = {"telegram": _telegram, "matrix": _matrix}


def _own(name: str, config: OwnPlatformConfig, wiring: Wiring) -> Platform:
    """Load the owner's own adapter, and check that it makes a platform. Raises ConfigError."""
    key = f"platforms.own.{name}"
    if not config.object:
        raise ConfigError(f'{key} is enabled but names no adapter; set {key}.object = "MODULE:OBJECT"')
    if name in BUILT_IN or name in BY_HTTP:
        raise ConfigError(f"{key}: there is a platform of this name already; choose another one")
    look_in(wiring.home)
    make = load_object(config.object)
    try:
        made = make(wiring.home, wiring.clock)
    except Exception as error:  # whatever the owner's code raises
        raise ConfigError(f"{key}: {config.object} cannot be made: {type(error).__name__}: {error}") from error
    if getattr(made, "name", None) != name or not isinstance(getattr(made, "account", None), str):
        raise ConfigError(f"{key}: {config.object} is not a platform: it needs the `name` {name}, and an `account`")
    return cast("Platform", made)


def token_of(platform: str, token: str, file: str, home: Path) -> str:
    """The token of a platform, from its setting or from a file that only its owner can read. Raises ConfigError."""
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
        raise ConfigError(f"platforms.{platform}.token_file: {path} cannot be read: {why}") from None
    if os.name == "posix" and stat.S_IMODE(mode) & 0o077:
        raise ConfigError(
            f"platforms.{platform}.token_file: other users can read {path}; to change that: chmod 600 {path}"
        )
    if not found:
        raise ConfigError(f"platforms.{platform}.token_file: {path} is empty")
    return found
