"""Approval requests of tool calls: store a request and release the turn, notify queued senders, expire requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from everturn import points
from everturn.model import Event, ToolCall
from everturn.sessions.rules.keys import origin_of
from everturn.turns.attempt import Attempt, TurnEnvironment
from everturn.turns.rows.approval_requests import notify_queued
from everturn.turns.rows.approvals import ApprovalTerms, May, Permission, begin_approved, due_approvals, expire_approval

FIRST_LOOK_S = 60.0
LOOK_AGAIN_S = 0.2


class TurnAwaitsApproval(BaseException):
    """Ends the task of a turn that awaits approval, through agents and tools that catch every Exception."""


async def request_approval(attempt: Attempt, call: ToolCall) -> Permission:
    """Begin an approved call, or return why it must not run. Raises TurnAwaitsApproval once a request is stored."""
    while (permission := await _store_request(attempt, call)).may is May.LATER:
        await attempt.env.clock.sleep(LOOK_AGAIN_S)
    if permission.may is May.REQUESTED:
        raise TurnAwaitsApproval
    return permission


async def _store_request(attempt: Attempt, call: ToolCall) -> Permission:
    env, settings = attempt.env, attempt.env.settings
    bubble = env.instance.ids.next()  # smaller than the request's id: the streaming message gets its final text first
    terms = ApprovalTerms(
        bubble=bubble,
        said=attempt.bubble.text if attempt.bubble is not None else "",
        id=env.instance.ids.next(),
        at=env.clock.now(),
        expires_s=settings.approval_expires_s,
        delivery=env.platforms.delivery(attempt.begun.source.platform),
        approvers=bool(settings.approvers),
    )
    requested = env.store.run(begin_approved, attempt.begun, call, terms)
    # What follows the commit happens even if this task is cancelled meanwhile.
    requested.add_done_callback(partial(_after_request, attempt))
    return await asyncio.shield(requested)


def _after_request(attempt: Attempt, requested: asyncio.Future[Permission]) -> None:
    if requested.cancelled() or requested.exception() is not None or requested.result().may is not May.REQUESTED:
        return
    points.reached("approval.asked")
    attempt.close_bubble()
    attempt.env.hub.ended(attempt.begun.key)
    attempt.env.hub.publish(attempt.begun.key, requested.result().events)
    attempt.env.deliver(attempt.begun.key)


class Approvals:
    """Expires approval requests that nobody answered in time, and notifies senders whose messages are queued behind an open one.
    `wake` schedules the turn again.
    """

    def __init__(self, env: TurnEnvironment, wake: Callable[[str], None]) -> None:
        self._env = env
        self._wake = wake

    async def expire(self) -> None:
        """Expire due approval requests, in a loop without end."""
        await self._env.clock.sleep(min(FIRST_LOOK_S, self._env.settings.expiry_every_s))
        while True:
            await self.expire_once()
            await self._env.clock.sleep(self._env.settings.expiry_every_s)

    async def expire_once(self) -> int:
        """Expire the approval requests that are due now; returns how many."""
        env, now = self._env, self._env.clock.now()
        due = await env.store.read(due_approvals, now)
        for number, key in due:
            delivery = env.platforms.delivery(origin_of(key)[0])
            events = await env.store.run(expire_approval, number, key, env.instance.ids.next(), now, delivery)
            points.reached("approval.answered")
            env.hub.publish(key, events)
            self._env.deliver(key)
            self._wake(key)
        return len(due)

    def notify_queued(self, key: str) -> None:
        """Store the notice once; after a crash the next process does it."""
        env = self._env
        delivery = env.platforms.delivery(origin_of(key)[0])
        storing = env.store.run(notify_queued, key, env.instance.ids.next(), env.clock.now(), delivery)
        storing.add_done_callback(partial(self._after_notice, key))

    def _after_notice(self, key: str, storing: asyncio.Future[tuple[Event, ...]]) -> None:
        if not storing.cancelled() and storing.exception() is None:
            self._env.hub.publish(key, storing.result())
            self._env.deliver(key)
