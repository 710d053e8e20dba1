"""Show the typing indicator and the reaction while a turn runs, where the platform can. Nothing depends on it."""

from __future__ import annotations

import asyncio
import contextlib

from everturn.errors import PlatformError
from everturn.platform.interface import CanReact, CanType
from everturn.turns.attempt import Attempt

EVERY_S = 4.0


def show_typing(attempt: Attempt, work: asyncio.Task[bool]) -> None:
    """Show typing and the reaction until the turn's task ends, as the chat's display settings say."""
    source = attempt.begun.source
    typist = attempt.parts.typing(source.platform) if attempt.look.typing else None
    if typist is not None:
        typing = asyncio.create_task(_type(attempt, typist))
        work.add_done_callback(lambda _: typing.cancel())
    if attempt.look.reaction and source.message_id:
        platform: object = attempt.parts.platforms.get(source.platform)
        if isinstance(platform, CanReact):
            marking = asyncio.create_task(_mark(attempt, platform, work))
            work.add_done_callback(lambda _: marking.done())  # it is held until then


async def _type(attempt: Attempt, platform: CanType) -> None:
    while True:
        with contextlib.suppress(PlatformError, OSError):
            await platform.typing(attempt.begun.source)
        await attempt.parts.clock.sleep(EVERY_S)


async def _mark(attempt: Attempt, platform: CanReact, work: asyncio.Task[bool]) -> None:
    """React to the message while its turn runs; a later process that resumes the turn removes the reaction."""
    source, message = attempt.begun.source, attempt.begun.source.message_id or ""
    for mark in (attempt.look.reaction, ""):
        with contextlib.suppress(PlatformError, OSError):
            await platform.react(source, message, mark)
        await asyncio.wait({work})
