"""Approvals: how a call that needs a person's yes lets its turn wait, and how the answer wakes it again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from everturn import points
from everturn.decide.keys import origin_of
from everturn.gateway.attempt import Attempt
from everturn.gateway.outbox import Outbox
from everturn.gateway.parts import Parts
from everturn.model import Event, ToolCall
from everturn.store.operations.approvals import (
    Asking,
    May,
    Permission,
    ask_first,
    due_approvals,
    expire_approval,
)
from everturn.store.operations.questions import tell_held

FIRST_LOOK_S = 60.0
LOOK_AGAIN_S = 0.2


class Unwound(BaseException):
    """The turn waits for a person: its task unwinds, through agents and tools that catch every Exception."""


async def ask(attempt: Attempt, call: ToolCall) -> Permission:
    """Begin a call that needs an approval, or say why it must not run; raises Unwound when the turn has to wait."""
    while (permission := await _ask(attempt, call)).may is May.LATER:
        await attempt.parts.clock.sleep(LOOK_AGAIN_S)
    if permission.may is May.ASKED:
        raise Unwound
    return permission


async def _ask(attempt: Attempt, call: ToolCall) -> Permission:
    parts, settings = attempt.parts, attempt.parts.settings
    bubble = parts.ids.next()  # before the question's: all that was said has its last shape before it is asked
    asking = Asking(
        bubble=bubble,
        said=attempt.bubble.text if attempt.bubble is not None else "",
        id=parts.ids.next(),
        at=parts.clock.now(),
        expires_s=settings.approval_expires_s,
        delivery=parts.delivery(attempt.begun.source.platform),
        approvers=bool(settings.approvers),
    )
    asked = parts.store.run(ask_first, attempt.begun, call, asking)
    # What follows the commit happens even if this task is cancelled meanwhile.
    asked.add_done_callback(partial(_asked, attempt))
    return await asyncio.shield(asked)


def _asked(attempt: Attempt, asked: asyncio.Future[Permission]) -> None:
    if asked.cancelled() or asked.exception() is not None or asked.result().may is not May.ASKED:
        return
    points.reached("approval.asked")
    attempt.close_bubble()
    attempt.parts.hub.ended(attempt.begun.key)
    attempt.parts.hub.publish(attempt.begun.key, asked.result().events)
    attempt.spoke(attempt.begun.key)


class Questions:
    """Tells whose message waits behind a question."""

    def __init__(self, parts: Parts, outbox: Outbox) -> None:
        self._parts = parts
        self._outbox = outbox

    def tell_held(self, key: str) -> None:
        """Say it once; who dies before says it in the next life."""
        parts = self._parts
        delivery = parts.delivery(origin_of(key)[0])
        telling = parts.store.run(tell_held, key, parts.ids.next(), parts.clock.now(), delivery)
        telling.add_done_callback(partial(self._told, key))

    def _told(self, key: str, telling: asyncio.Future[tuple[Event, ...]]) -> None:
        if not telling.cancelled() and telling.exception() is None:
            self._parts.hub.publish(key, telling.result())
            self._outbox.wake(key)


class Approvals:
    """Approval requests that nobody answers in time. `wake` lets a turn go on."""

    def __init__(self, parts: Parts, outbox: Outbox, wake: Callable[[str], None]) -> None:
        self._parts = parts
        self._outbox = outbox
        self._wake = wake

    async def expire(self) -> None:
        """Close questions whose time is over, for ever."""
        await self._parts.clock.sleep(min(FIRST_LOOK_S, self._parts.settings.expiry_every_s))
        while True:
            await self.expire_once()
            await self._parts.clock.sleep(self._parts.settings.expiry_every_s)

    async def expire_once(self) -> int:
        """One look; returns how many were closed."""
        parts, now = self._parts, self._parts.clock.now()
        due = await parts.store.read(due_approvals, now)
        for number, key in due:
            delivery = parts.delivery(origin_of(key)[0])
            events = await parts.store.run(expire_approval, number, key, parts.ids.next(), now, delivery)
            points.reached("approval.answered")
            parts.hub.publish(key, events)
            self._outbox.wake(key)
            self._wake(key)
        return len(due)
