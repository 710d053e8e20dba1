"""Start, drain, stop. Since a kill must be safe at every moment, stopping well is a courtesy, not a duty."""

from __future__ import annotations

import asyncio
import os
import socket
import uuid
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from everturn import points
from everturn.agent.interface import Agent
from everturn.clock import Clock
from everturn.decide import words
from everturn.errors import InstanceClosed
from everturn.gateway.asking import Approvals
from everturn.gateway.backlog import Backlogs
from everturn.gateway.commands import Commands
from everturn.gateway.credentials import Credentials
from everturn.gateway.directory import Channels
from everturn.gateway.intake import Intake
from everturn.gateway.operator import Operator
from everturn.gateway.outbox import Outbox
from everturn.gateway.parts import Parts, Settings
from everturn.gateway.people import People
from everturn.gateway.recovery import REASONS, Recovery, Report
from everturn.gateway.sending import Sending
from everturn.gateway.turns import Turns
from everturn.gateway.upkeep import Upkeep
from everturn.ids import Ids
from everturn.media import Media
from everturn.platform.interface import CanPull, Platform, Pulled
from everturn.store.interface import Store
from everturn.store.operations.instances import held, join, newest_id, record_drain
from everturn.store.operations.recovery import Recovered
from everturn.store.operations.telling import tell_key
from everturn.store.operations.turn_values import Begun
from everturn.tracing import Tracer

log = structlog.get_logger()
FLUSH_S = 5.0  # what a stop may take beyond the drain limit, all its steps together
CLOSE_S = 2.0  # and the record of how we ended
NO_DATABASE_S = 0.5  # each step, while nothing can be written: the next process finds what is left


@dataclass(frozen=True, slots=True)
class Stop:
    """A planned end: `kind` is restart or stop, `reason` says who asked."""

    kind: str
    reason: str


class Gateway:
    """All loops of one instance, wired."""

    def __init__(
        self,
        store: Store,
        agent: Agent,
        platforms: Mapping[str, Platform],
        clock: Clock,
        settings: Settings,
        tracer: Tracer | None = None,
        *,
        media: Media | None = None,
    ) -> None:
        self.parts = Parts(store, clock, settings, platforms, tracer=tracer, media=media)
        self.outbox = Outbox(self.parts)
        self.turns = Turns(self.parts, agent, self.outbox)
        self.commands = Commands(self.parts, self.turns, self.outbox, self._restart_asked)
        self.operator = Operator(self.parts, self.turns, self.outbox)
        self.sending = Sending(self.parts, self.outbox)
        self.backlogs = Backlogs(self.parts, self.turns, self.outbox)
        self.intake = Intake(self.parts, self.turns, self.commands, self.outbox, self.backlogs)
        self.credentials = Credentials(self.parts)
        self.people = People(self.parts, self.turns, self.outbox)
        self.channels = Channels(self.parts)
        self.recovery = Recovery(self.parts, self.turns, self.commands, self.outbox, self.backlogs)
        self.upkeep = Upkeep(self.parts, self.recovery, self.backlogs, self.people)
        self.approvals = Approvals(self.parts, self.outbox, self.turns.wake)
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.asked: asyncio.Future[Stop] = asyncio.get_running_loop().create_future()  # an end that a chat asked for
        self.report: Report | None = None
        self._loops: list[asyncio.Task[None]] = []
        self._stopping = False
        self._away = False  # the database did not take what a stop writes first
        self._end_by: float | None = None  # when a stop that ran out of its drain limit must be over

    async def start(self) -> Report:
        """Enter a life, put right what earlier ones left, then read platforms and take turns."""
        await self._join()
        points.reached("recovery.instance")
        self.report = await self.recovery.at_start()
        pulled = [each for each in self.parts.platforms.values() if isinstance(each, CanPull)]
        for loop in (
            self.commands.run(), self.intake.watch_store(), self.upkeep.beat(), self.upkeep.expire_sessions(),
            self.upkeep.forget_old(), self.approvals.expire(), self.turns.watching.run(), self.channels.run(),
            *(self._read(each) for each in pulled),
        ):  # fmt: skip
            self._loops.append(self._supervised(loop))
        if self.report.storm:
            self._loops.append(self._supervised(self.turns.resume_after_calm()))
        self.turns.open()
        await self.recovery.ready()
        log.info("recovered", **{name: getattr(self.report, name) for name in Report.__slots__})
        return self.report

    async def _read(self, platform: Pulled) -> None:
        """Read a platform for ever, as soon as its secret is ours."""
        await self.credentials.own(platform)
        await self.intake.pull(platform)

    async def drain(self, stop: Stop) -> bool:
        """Stop taking turns, tell who waits, wait for work and deliveries, mark what is left. True when all finished."""
        parts = self.parts
        self.turns.close()
        limit = parts.clock.monotonic() + parts.settings.drain_s
        self._away = not await self._within(self._announce(stop), FLUSH_S)
        finished = await self._within(self._all_quiet(), limit - parts.clock.monotonic(), patient=True)
        self._end_by = parts.clock.monotonic() + FLUSH_S
        marked: list[Recovered] = []
        if not finished:
            await self._within(self.turns.cut_off(REASONS[stop.kind], marked), self._left_s())
        await self._within(self.outbox.quiet(), self._left_s())
        log.info("drained", finished=finished, interrupted=len(marked), reason=stop.reason)
        return finished

    async def stop(self, stop: Stop | None) -> None:
        """End every loop; after a drain, write how we ended. Who does not end in time is left to the end of the process."""
        self._stopping = True
        self._end_by = self._end_by or self.parts.clock.monotonic() + FLUSH_S
        if self.failed.done() and not self.failed.cancelled():
            self.failed.exception()  # whoever ends us knows, or need not
        for loop in self._loops:
            loop.cancel()
        await self._within(_ended(self._loops), self._left_s())
        self.backlogs.stop()
        self.credentials.let_go()
        self.turns.stop()
        await self._within(self.turns.quiet(), self._left_s())
        await self._within(self.outbox.stop(), self._left_s())
        if stop is not None:
            await self._within(self._close(stop), CLOSE_S)

    async def _join(self) -> None:
        parts, token = self.parts, uuid.uuid4().hex
        while parts.instance == 0:  # another start may have taken the number at the same moment
            parts.instance = await parts.store.run(join, token, socket.gethostname(), os.getpid(), parts.clock.now())
        parts.ids = Ids(parts.clock, parts.instance, await parts.store.read(newest_id))
        await parts.store.hold(parts.instance)
        await parts.store.run(held, parts.instance, await parts.store.now())

    def _restart_asked(self) -> None:
        if not self.asked.done():
            self.asked.set_result(Stop("restart", "/restart"))

    def _supervised(self, loop: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """A loop that dies takes the process down, loudly."""
        task = asyncio.ensure_future(loop)
        task.add_done_callback(self._loop_ended)
        return task

    def _loop_ended(self, task: asyncio.Task[None]) -> None:
        error = RuntimeError("a loop was cancelled") if task.cancelled() else task.exception()
        if isinstance(error, InstanceClosed):
            self.turns.stop()  # others run them by now
        if error is not None and not self._stopping and not self.failed.done():
            self.failed.set_exception(error)

    async def _announce(self, stop: Stop) -> None:
        parts = self.parts
        await parts.store.run(record_drain, parts.instance, stop.kind, stop.reason, parts.clock.now())
        points.reached("drain.recorded")
        await self._tell_running(restarting=stop.kind == "restart")

    async def _close(self, stop: Stop) -> None:
        await self.recovery.close_life(stop.kind)
        points.reached("drain.ended")

    async def _tell_running(self, *, restarting: bool) -> None:
        """The banner, once per chat with a running turn; a failure to tell never delays the stop."""
        parts, text = self.parts, words.banner(restarting)
        reason = "restarting" if restarting else "shutting_down"
        for each in {_place(each): each for each in self.turns.running()}.values():
            delivery = parts.delivery(each.source.platform)
            events = await parts.store.run(
                tell_key, each.key, parts.ids.next(), each.source, text, reason, parts.clock.now(), delivery, each.turn
            )
            parts.hub.publish(each.key, events)
            if not delivery.by_event:
                self.outbox.wake(each.key)

    async def _all_quiet(self) -> None:
        await self.turns.quiet()
        await self.outbox.quiet()

    def _left_s(self) -> float:
        return (self._end_by or 0.0) - self.parts.clock.monotonic()

    async def _within(self, work: Coroutine[Any, Any, None], seconds: float, *, patient: bool = False) -> bool:
        """Whether the work ended in time, by the gateway's clock. Only who is `patient` waits for a database that is away."""
        if not patient and (self._away or self.parts.store.trouble()):
            seconds = min(seconds, NO_DATABASE_S)
        working = asyncio.ensure_future(work)
        timer = asyncio.ensure_future(self.parts.clock.sleep(seconds))
        try:
            await asyncio.wait({working, timer}, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                await working
            return working.done()
        finally:
            for task in (working, timer):
                task.cancel()


async def _ended(tasks: Sequence[asyncio.Task[None]]) -> None:
    await asyncio.gather(*tasks, return_exceptions=True)


def _place(begun: Begun) -> tuple[str | None, ...]:
    """Where a turn's answer is read: several conversations may be held in one chat."""
    source = begun.source
    if source.chat_id is None:
        return (begun.key,)
    return source.platform, source.account, source.chat_id, source.thread_id
