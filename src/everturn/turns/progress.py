"""Send the progress notice of a running turn: one notice, replaced where the platform can edit."""

from __future__ import annotations

import asyncio
from functools import partial

from everturn import points
from everturn.model import Event
from everturn.turns.attempt import Attempt
from everturn.turns.rows.progress import PROGRESS, Progress, notify_progress
from everturn.turns.rules.patience import Notice

IN_THE_BUBBLE = frozenset({PROGRESS, Notice.WORKING})  # other notices are for a waiting sender: they are messages


async def notify(attempt: Attempt, text: str, reason: str = PROGRESS) -> None:
    """Store a progress notice, then send it; none for a turn that has ended.

    Where the answer is streamed, the streaming message shows it until there is more of the answer.
    """
    if reason in IN_THE_BUBBLE and not attempt.look.progress:
        return
    if attempt.bubble is not None and reason in IN_THE_BUBBLE:
        attempt.bubble.show_status(text)
        return
    parts, begun = attempt.parts, attempt.begun
    progress = Progress(id=parts.ids.next(), text=text, reason=reason, at=parts.clock.now())
    storing = parts.store.run(notify_progress, begun, progress, parts.delivery(begun.source.platform))
    # What follows the commit happens even if this task is cancelled meanwhile.
    storing.add_done_callback(partial(_notified, attempt))
    await asyncio.shield(storing)


def _notified(attempt: Attempt, storing: asyncio.Future[tuple[Event, ...] | None]) -> None:
    if storing.cancelled() or storing.exception() is not None or storing.result() is None:
        return
    points.reached("turn.notified")
    key = attempt.begun.key
    attempt.parts.hub.publish(key, storing.result() or ())
    if not attempt.parts.delivery(attempt.begun.source.platform).by_event:
        attempt.deliver(key)
