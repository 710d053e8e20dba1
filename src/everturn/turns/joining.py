"""Join messages that arrive while a turn runs: committed as part of the turn before its next model call."""

from __future__ import annotations

import asyncio
from functools import partial

from msgspec.structs import replace

from everturn import points
from everturn.inbox.rows.joining import JoinedTurn, join_turn
from everturn.turns.attempt import Attempt


async def join_waiting(attempt: Attempt) -> None:
    """Join the queued messages to the turn, for its agent to read next. Reads nothing while none is queued."""
    if attempt.has_waiting():
        attempt.woken = False  # a message that arrives from now on joins the next time
        parts, begun = attempt.parts, replace(attempt.begun, seq=attempt.seq)
        delivery = parts.delivery(begun.source.platform)
        isolation, admission = parts.settings.isolation, parts.settings.admission_of(begun.source.platform)
        joining = parts.store.run(join_turn, begun, parts.ids.next(), isolation, parts.clock.now(), delivery, admission)
        # What follows the commit happens even if this task is cancelled meanwhile.
        joining.add_done_callback(partial(_joined, attempt))
        await asyncio.shield(joining)


def _joined(attempt: Attempt, joining: asyncio.Future[JoinedTurn]) -> None:
    if joining.cancelled() or joining.exception() is not None:
        return  # the awaiting task gets the error
    joined, before = joining.result(), attempt.begun
    attempt.add_joined(joined)
    if joined.messages:
        attempt.parts.observing.joined(before, joined.begun)
        points.reached("turn.joined")
        attempt.parts.hub.publish(attempt.begun.key, joined.events)
