"""Telling the user of a running turn how it goes: one notice, replaced where the platform can edit."""

from __future__ import annotations

import asyncio
from functools import partial

from everturn import points
from everturn.decide.patience import Notice
from everturn.gateway.attempt import Attempt
from everturn.model import Event
from everturn.store.operations.progress import PROGRESS, Progress, tell_progress

IN_THE_BUBBLE = frozenset({PROGRESS, Notice.WORKING})  # other notices are for somebody who waits: they are messages


async def tell(attempt: Attempt, text: str, reason: str = PROGRESS) -> None:
    """Say it after it is stored; nothing is said of a turn that has ended.

    Where the answer is shown while it grows, how it goes stands in its bubble until there is more of it.
    """
    if reason in IN_THE_BUBBLE and not attempt.look.progress:
        return
    if attempt.bubble is not None and reason in IN_THE_BUBBLE:
        attempt.bubble.status(text)
        return
    parts, begun = attempt.parts, attempt.begun
    progress = Progress(id=parts.ids.next(), text=text, reason=reason, at=parts.clock.now())
    telling = parts.store.run(tell_progress, begun, progress, parts.delivery(begun.source.platform))
    # What follows the commit happens even if this task is cancelled meanwhile.
    telling.add_done_callback(partial(_told, attempt))
    await asyncio.shield(telling)


def _told(attempt: Attempt, telling: asyncio.Future[tuple[Event, ...] | None]) -> None:
    if telling.cancelled() or telling.exception() is not None or telling.result() is None:
        return
    points.reached("turn.told")
    key = attempt.begun.key
    attempt.parts.hub.publish(key, telling.result() or ())
    if not attempt.parts.delivery(attempt.begun.source.platform).by_event:
        attempt.spoke(key)
