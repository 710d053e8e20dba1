"""Start, drain and stop the gateway. A kill is safe at every moment: a clean stop is a courtesy, not a duty."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import structlog

from everturn import points
from everturn.agent.interface import Agent
from everturn.clock import Clock
from everturn.commands.applying import Commands
from everturn.errors import InstanceClosed
from everturn.home.files import Media
from everturn.ids import Instance, Machine
from everturn.inbox.backlog import Backlogs
from everturn.inbox.intake import Intake
from everturn.lifecycle.rows import join, newest_id, record_drain, record_lock
from everturn.lifecycle.settings import Settings
from everturn.lifecycle.upkeep import Upkeep
from everturn.operator.actions import Operator
from everturn.outbox.hub import Hub
from everturn.outbox.rows.replies import notify_key
from everturn.outbox.sender import ReplySender
from everturn.outbox.tool_messages import ToolMessages
from everturn.people.credentials import Credentials
from everturn.people.directory import Channels
from everturn.people.pairing import AccessControl
from everturn.platform.connected import Contacts, Platforms
from everturn.platform.interface import CanPull, Platform
from everturn.sessions.rules import notices
from everturn.store.interface import GRACE_S, Store
from everturn.telemetry.observing import Observing, Traces
from everturn.telemetry.spans import Tracer
from everturn.turns.attempt import TurnEnvironment
from everturn.turns.recovery import REASONS, Recovery, Report
from everturn.turns.rows.recovery import Recovered
from everturn.turns.rows.turn_values import StartedTurn
from everturn.turns.scheduler import Scheduler

log = structlog.get_logger()
FLUSH_S = 5.0  # what a stop may take beyond the drain limit, all its steps together
CLOSE_S = 2.0  # and the record of how the process ended
NO_DATABASE_S = 0.5  # each step, while nothing can be written: the next process finds what is left


@dataclass(frozen=True, slots=True)
class PlannedStop:
    """A planned end of the process: `kind` is restart or stop, `reason` says who asked."""

    kind: str
    reason: str


class Gateway:
    """Runs all loops of one instance."""

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
        machine: Machine | None = None,
    ) -> None:
        self.store, self.clock = store, clock
        self.instance = Instance(clock, machine or Machine())
        self.platforms = Platforms(platforms, settings.valid_by_platform, settings.on_unknown_delivery_for)
        self.settings = replace(
            settings, isolation=replace(settings.isolation, changing_directs=self.platforms.changing_directs())
        )
        self.contacts = Contacts(store, clock, platforms)
        self.hub = Hub()
        self.observing = Observing(clock, platforms, Traces(tracer, store, clock) if tracer else None)
        shared = self.store, self.instance, self.settings, self.platforms
        self.outbox = ReplySender(*shared, contacts=self.contacts, hub=self.hub, observing=self.observing, media=media)
        env = TurnEnvironment(
            store=store, clock=clock, instance=self.instance, settings=self.settings, platforms=self.platforms,
            contacts=self.contacts, hub=self.hub, observing=self.observing, deliver=self.outbox.wake,
        )  # fmt: skip
        self.turns = Scheduler(env, agent, self.outbox, media)
        self.approvals = self.turns.approvals
        self.commands = Commands(
            *shared, hub=self.hub, turns=self.turns, outbox=self.outbox, restart=self._request_restart
        )
        self.sending = ToolMessages(*shared, hub=self.hub, outbox=self.outbox, media=media)
        self.channels = Channels(store, clock, self.settings, self.platforms)
        self.credentials = Credentials(store, self.instance, self.settings, self.contacts)
        self.backlogs = Backlogs(store, self.instance, self.settings, self.contacts, self.turns, self.outbox)
        self.intake = Intake(
            *shared, contacts=self.contacts, hub=self.hub, observing=self.observing,
            chats=self.channels.recent if settings.directory_every_s else None,
            turns=self.turns, commands=self.commands, outbox=self.outbox, backlogs=self.backlogs,
        )  # fmt: skip
        self.people = AccessControl(
            store, self.instance, settings.admission, self.platforms, hub=self.hub, turns=self.turns, outbox=self.outbox
        )
        self.operator = Operator(
            store, self.instance, self.platforms,
            contacts=self.contacts, hub=self.hub, turns=self.turns, outbox=self.outbox,
        )  # fmt: skip
        self.recovery = Recovery(env, self.turns, self.commands, self.outbox, self.backlogs)
        self.upkeep = Upkeep(
            store, self.instance, self.settings, media,
            recovery=self.recovery, backlogs=self.backlogs, people=self.people,
        )  # fmt: skip
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.stop_requested: asyncio.Future[PlannedStop] = asyncio.get_running_loop().create_future()  # by a chat
        self.report: Report | None = None
        self._loops: list[asyncio.Task[None]] = []
        self._stopping = False
        self._database_down = False  # the database did not take the first write of a stop
        self._end_by: float | None = None  # when a stop that ran out of its drain limit must be over

    async def start(self) -> Report:
        """Register this instance, recover what earlier ones left, then read platforms and take turns."""
        await self._join()
        points.reached("recovery.instance")
        self.report = await self.recovery.at_start()
        pulled = [each for each in self.platforms.adapters.values() if isinstance(each, CanPull)]
        for loop in (
            self.commands.run(), self.intake.watch_store(), self.upkeep.beat(), self.upkeep.expire_sessions(),
            self.upkeep.forget_old(), self.approvals.expire(), self.turns.watchdog.run(), self.channels.run(),
            *(self.intake.pull(each, self.credentials.acquire) for each in pulled),
        ):  # fmt: skip
            self._loops.append(self._supervised(loop))
        if self.report.crash_loop:
            self._loops.append(self._supervised(self.turns.resume_after_delay()))
        self.turns.open()
        await self.recovery.ready()
        log.info("recovered", **{name: getattr(self.report, name) for name in Report.__slots__})
        return self.report

    async def drain(self, stop: PlannedStop) -> bool:
        """Stop taking turns, notify running chats, wait for turns and deliveries, mark what is left. True when all finished."""
        self.turns.close()
        limit = self.clock.monotonic() + self.settings.drain_s
        self._database_down = not await self._within(self._announce(stop), FLUSH_S)
        finished = await self._within(self._all_quiet(), limit - self.clock.monotonic(), patient=True)
        self._end_by = self.clock.monotonic() + FLUSH_S
        marked: list[Recovered] = []
        if not finished:
            await self._within(self.turns.cut_off(REASONS[stop.kind], marked), self._left_s())
        await self._within(self.outbox.quiet(), self._left_s())
        log.info("drained", finished=finished, interrupted=len(marked), reason=stop.reason)
        return finished

    async def stop(self, stop: PlannedStop | None) -> None:
        """End every loop; after a drain, record how the process ended. A task that does not end in time ends with the process."""
        self._stopping = True
        self._end_by = self._end_by or self.clock.monotonic() + FLUSH_S
        if self.failed.done() and not self.failed.cancelled():
            self.failed.exception()  # whoever ends us knows, or need not
        for loop in self._loops:
            loop.cancel()
        await self._within(_ended(self._loops), self._left_s())
        self.backlogs.stop()
        self.credentials.release()
        self.turns.stop()
        await self._within(self.turns.quiet(), self._left_s())
        await self._within(self.outbox.stop(), self._left_s())
        if stop is not None:
            await self._within(self._close(stop), CLOSE_S)

    async def _join(self) -> None:
        machine, number = self.instance.machine, 0
        token = machine.chance.randbytes(16).hex()
        while number == 0:  # another start may have taken the number at the same moment
            self.instance.safe_until = self.clock.monotonic() + GRACE_S
            number = await self.store.run(join, token, machine.host, machine.pid, self.clock.now())
        self.instance.join(number, await self.store.read(newest_id))
        await self.store.lock_instance(number)
        await self.store.run(record_lock, number, await self.store.now())

    def _request_restart(self) -> None:
        if not self.stop_requested.done():
            self.stop_requested.set_result(PlannedStop("restart", "/restart"))

    def _supervised(self, loop: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a loop in a task; a loop that fails ends the process with its error."""
        task = asyncio.ensure_future(loop)
        task.add_done_callback(self._loop_ended)
        return task

    def _loop_ended(self, task: asyncio.Task[None]) -> None:
        error = RuntimeError("a loop was cancelled") if task.cancelled() else task.exception()
        if isinstance(error, InstanceClosed):
            self.turns.stop()  # others run them by now
        if error is not None and not self._stopping and not self.failed.done():
            self.failed.set_exception(error)

    async def _announce(self, stop: PlannedStop) -> None:
        await self.store.run(record_drain, self.instance.number, stop.kind, stop.reason, self.clock.now())
        points.reached("drain.recorded")
        await self._notify_running(restarting=stop.kind == "restart")

    async def _close(self, stop: PlannedStop) -> None:
        await self.recovery.close_instance(stop.kind)
        points.reached("drain.ended")

    async def _notify_running(self, *, restarting: bool) -> None:
        """Store the stop notice once per chat with a running turn; a failure never delays the stop."""
        text = notices.banner(restarting)
        reason = "restarting" if restarting else "shutting_down"
        for each in {_place(each): each for each in self.turns.running()}.values():
            delivery = self.platforms.delivery(each.source.platform)
            events = await self.store.run(
                notify_key, each.key, self.instance.ids.next(), each.source, text, reason, self.clock.now(), delivery,
                each.turn,
            )  # fmt: skip
            self.hub.publish(each.key, events)
            if not delivery.by_event:
                self.outbox.wake(each.key)

    async def _all_quiet(self) -> None:
        await self.turns.quiet()
        await self.outbox.quiet()

    def _left_s(self) -> float:
        return (self._end_by or 0.0) - self.clock.monotonic()

    async def _within(self, work: Coroutine[Any, Any, None], seconds: float, *, patient: bool = False) -> bool:
        """Await the work; False when it took too long, by the gateway's clock. Only `patient` work waits for a lost database."""
        if not patient and (self._database_down or self.store.trouble()):
            seconds = min(seconds, NO_DATABASE_S)
        working = asyncio.ensure_future(work)
        timer = asyncio.ensure_future(self.clock.sleep(seconds))
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


def _place(begun: StartedTurn) -> tuple[str | None, ...]:
    """The chat in which a turn's answer is read: one chat may have several conversations."""
    source = begun.source
    if source.chat_id is None:
        return (begun.key,)
    return source.platform, source.account, source.chat_id, source.thread_id
