"""Showing people that somebody is at work on their message, where the platform can. Nothing depends on it."""

from __future__ import annotations

import asyncio
import contextlib

from everturn.errors import PlatformError
from everturn.gateway.attempt import Attempt
from everturn.platform.interface import CanReact, CanType

EVERY_S = 4.0


def show_at_work(attempt: Attempt, work: asyncio.Task[bool]) -> None:
    """Show it until the work ends, as it was set for the chat."""
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
    """The mark is on the message while it is worked on; a later life that goes on with it takes it away."""
    source, message = attempt.begun.source, attempt.begun.source.message_id or ""
    for mark in (attempt.look.reaction, ""):
        with contextlib.suppress(PlatformError, OSError):
            await platform.react(source, message, mark)
        await asyncio.wait({work})
