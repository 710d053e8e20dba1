"""Showing people that somebody is at work on their message, where the platform can."""

from __future__ import annotations

import asyncio
import contextlib

from everturn.errors import PlatformError
from everturn.gateway.attempt import Attempt
from everturn.platform.interface import CanType

EVERY_S = 4.0


def show_typing(attempt: Attempt, work: asyncio.Task[bool]) -> None:
    """Show it until the work ends; nothing depends on it."""
    platform: object = attempt.parts.platforms.get(attempt.begun.source.platform)
    if isinstance(platform, CanType):
        typing = asyncio.create_task(_type(attempt, platform))
        work.add_done_callback(lambda _: typing.cancel())


async def _type(attempt: Attempt, platform: CanType) -> None:
    while True:
        with contextlib.suppress(PlatformError, OSError):
            await platform.typing(attempt.begun.source)
        await attempt.parts.clock.sleep(EVERY_S)
