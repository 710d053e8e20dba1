"""Hearing what people write while their turn runs: it joins the turn, committed, before the next model call."""

from __future__ import annotations

import asyncio
from functools import partial

from msgspec.structs import replace

from everturn import points
from everturn.gateway.attempt import Attempt
from everturn.store.operations.joining import Joined, join_turn


async def hear(attempt: Attempt) -> None:
    """Let what waits join the turn; its agent is given it next. Nobody looks into the database while nobody waits."""
    if attempt.somebody_waits():
        attempt.called_on = False  # who writes from now on is seen the next time
        parts, begun = attempt.parts, replace(attempt.begun, seq=attempt.seq)
        delivery = parts.delivery(begun.source.platform)
        isolation, admission = parts.settings.isolation, parts.settings.admission_of(begun.source.platform)
        joining = parts.store.run(join_turn, begun, parts.ids.next(), isolation, parts.clock.now(), delivery, admission)
        # What follows the commit happens even if this task is cancelled meanwhile.
        joining.add_done_callback(partial(_joined, attempt))
        await asyncio.shield(joining)


def _joined(attempt: Attempt, joining: asyncio.Future[Joined]) -> None:
    if joining.cancelled() or joining.exception() is not None:
        return  # the task that asked is told
    joined, before = joining.result(), attempt.begun
    attempt.joined(joined)
    if joined.messages:
        attempt.parts.observing.joined(before, joined.begun)
        points.reached("turn.joined")
        attempt.parts.hub.publish(attempt.begun.key, joined.events)
