"""Recover the work of dead instances before any platform is read. Recovery may itself die anywhere and run again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass

import structlog

from everturn import points
from everturn.commands.applying import Commands
from everturn.errors import StoreError
from everturn.inbox.backlog import Backlogs
from everturn.inbox.rows.inbox import keys_with_work, waiting_commands
from everturn.lifecycle.liveness import Liveness
from everturn.lifecycle.rows import InstanceRow, find_others, found_unclean, last_end, record_end, unclean_boots
from everturn.operator.rows.overview import close_dead, note_planned, note_ready
from everturn.outbox.rows.outbox import keys_with_replies, recover_sending, unsettle
from everturn.outbox.sender import ReplySender
from everturn.sessions.rules.keys import origin_of
from everturn.turns.attempt import TurnEnvironment
from everturn.turns.damage import ORPHANED, REMEDY, suspend_damaged, suspend_if_damaged
from everturn.turns.rows.approval_requests import answered_keys
from everturn.turns.rows.recovery import (
    THE_GATEWAY_ENDED,
    Interruption,
    Recovered,
    cut_off,
    damaged_turns,
    end_orphan,
    interrupted_keys,
    judge,
    notify_too_old,
    unbegun_since,
    unsent_since,
)
from everturn.turns.rules.recovery import RecoveryVerdict, crash_loop, resumes_by_itself
from everturn.turns.scheduler import Scheduler

log = structlog.get_logger()
REASONS = {"restart": "restart_timeout", "stop": "shutdown_timeout"}
WINDOW_S = 300.0
NEGLECTED_S = 30.0  # how long something waits, at the first of two looks, and how far these are apart


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What recovery did at one start: how the previous process ended, and how many turns it left."""

    previous_exit: str
    continued: int = 0
    resumable: int = 0
    suspended: int = 0
    crash_loop: bool = False


class Recovery:
    """Finds dead instances and continues their work through the normal claim path."""

    def __init__(
        self, env: TurnEnvironment, turns: Scheduler, commands: Commands, outbox: ReplySender, backlogs: Backlogs
    ) -> None:
        self._env = env
        self._turns = turns
        self._commands = commands
        self._outbox = outbox
        self._backlogs = backlogs
        self._liveness = Liveness(env.store, env.instance)
        self._ended = 0  # how many instances had ended when we last looked for their work
        self._looks_at = 0.0  # when we look for work that nobody does, by the monotonic clock
        self._neglected: set[str] = set()  # keys that were found at the last look
        self._took_over_work = False  # work of another instance was taken over; stored when turns start again

    async def at_start(self) -> Report:
        """Recover everything that must be right before the first message is read."""
        store, now = self._env.store, self._env.clock.now()
        dead = await self._liveness.dead_at_start()
        if dead:
            await store.run(found_unclean, self._env.instance.number)
        others = await store.read(find_others, self._env.instance.number)
        self._ended = others.ended + len(dead)
        recovered = [each for instance in dead for each in await self._take_over(instance)]
        recovered += [each for instance in others.left for each in await self._recover(instance)]
        suspended = sum(each.verdict is RecoveryVerdict.SUSPEND for each in recovered)
        boots = await store.read(unclean_boots, now - WINDOW_S)
        in_crash_loop = bool(dead) and crash_loop(boots, now, self._env.settings.unclean_boots, suspended > 0)
        if in_crash_loop:
            self._turns.lanes.delay_resumes()
        await self._apply_commands()
        await self._commands.notify_restarted()
        resumable = await self._schedule()
        self._took_over_work = bool(dead) or await store.run(note_planned, self._env.instance.number, now)
        points.reached("recovery.done")
        last = "unclean" if dead else await self._previous_exit()
        return Report(
            previous_exit=last,
            continued=len(recovered) - suspended,
            resumable=resumable,
            suspended=suspended,
            crash_loop=in_crash_loop,
        )

    async def sweep(self) -> None:
        """Take over from replicas that died, and continue what replicas with a planned end left."""
        others = await self._env.store.read(find_others, self._env.instance.number)
        dead = await self._liveness.dead(others.open)
        for instance in dead:
            await self._take_over(instance)
        for instance in others.left:
            await self._recover(instance)
        if dead or others.left or others.ended != self._ended:
            self._ended = others.ended + len(dead)
            self._outbox.bubbles.in_flight.count_anew()
            self._took_over_work = self._took_over_work or bool(dead)
            await self._apply_commands()
            await self._schedule()
            await self.ready()

    async def wake_neglected(self) -> None:
        """Wake the keys where something waited at two looks in a row, and which this process does not know. An instance that others
        have closed may still commit what nobody looks for any more.
        """
        clock = self._env.clock
        if clock.monotonic() < self._looks_at:
            return
        self._looks_at, now = clock.monotonic() + NEGLECTED_S, clock.now()
        store, since = self._env.store, now - NEGLECTED_S
        unbegun = [key for key in await store.read(unbegun_since, since) if not self._turns.knows(key)]
        unsent = [key for key in await store.read(unsent_since, since, now) if not self._outbox.knows(key)]
        found = [key for key in (*unbegun, *unsent) if key in self._neglected]
        self._neglected = {*unbegun, *unsent}
        if found:
            log.info("neglected work found", sessions=len(found), session_key=found[0])
            await self._apply_commands()
        for key in found:
            self._turns.wake(key)
            self._outbox.wake(key)

    async def ready(self) -> None:
        """Store that turns start again, which ends the downtime of recovered work."""
        if not self._took_over_work:
            return
        self._took_over_work = False
        await self._env.store.run(note_ready, self._env.instance.number, self._env.clock.now())
        points.reached("recovery.ready")
        self._env.hub.changes.note("instances", "sessions", "turns")

    async def close_instance(self, kind: str) -> None:
        """Record our own planned end, after recovering what could not be finished or sent in time."""
        instance = InstanceRow(number=self._env.instance.number, heartbeat_at=self._env.clock.now(), drain_kind=kind)
        await self._recover(instance)
        await self._env.store.run(record_end, instance.number, kind, self._env.clock.now())

    async def _take_over(self, instance: InstanceRow) -> list[Recovered]:
        """Recover one dead instance, then close it."""
        self._env.observing.instance_recovered()
        recovered = await self._recover(instance)
        await self._env.store.run(close_dead, instance.number, self._env.instance.number, self._env.clock.now())
        return recovered

    async def _recover(self, instance: InstanceRow) -> list[Recovered]:
        """Recover the work of one instance: judge its turns together, mark each, then its replies."""
        store, now = self._env.store, self._env.clock.now()
        cause = Interruption(
            instance=instance.number,
            reason=REASONS.get(instance.drain_kind or "", "restart_interrupted"),
            at=min(instance.heartbeat_at, now),
            now=now,
            why=THE_GATEWAY_ENDED,
        )
        damaged = await store.read(damaged_turns, instance.number)
        for turn, key, what, unusable in damaged:
            log.error("turn damaged", turn_id=turn, session_key=key, error=what, remedy=REMEDY)
            if unusable:
                self._publish(key, await suspend_damaged(self._env, turn, key, cause))
        await store.run(unsettle, instance.number)
        verdicts = await store.run(judge, instance.number, self._env.settings.stuck_after)
        recovered = await asyncio.gather(*(self._cut_off(*each, cause) for each in verdicts))
        await store.run(recover_sending, instance.number, self._env.platforms.unknown_actions(), now)
        points.reached("recovery.outbox")
        return [each for each in recovered if each is not None]

    async def _cut_off(self, turn: int, key: str, verdict: RecoveryVerdict, cause: Interruption) -> Recovered | None:
        delivery = self._env.platforms.delivery(origin_of(key)[0])
        marking = self._env.store.run(cut_off, turn, key, verdict, cause, delivery)
        recovered = await suspend_if_damaged(self._env, turn, key, cause, marking)
        if recovered is None and await self._env.store.run(end_orphan, turn, key, cause.instance, cause.now):
            log.error(
                "turn damaged", turn_id=turn, session_key=key, error="its session does not point at it", remedy=ORPHANED
            )
        points.reached("recovery.turn")
        self._publish(key, recovered)
        log.debug("turn recovered", turn_id=turn, session_key=key, verdict=verdict)
        return recovered

    def _publish(self, key: str, recovered: Recovered | None) -> None:
        if recovered is not None:
            self._env.hub.publish(key, recovered.events)
            self._env.observing.turn_recovered(recovered.verdict)

    async def _apply_commands(self) -> None:
        """Apply accepted commands before anything is scheduled: a turn that a command ends is not resumed. A command that
        another replica is about to apply is applied once, by either.
        """
        for number, key in await self._env.store.read(waiting_commands):
            await self._commands.apply_now(number, key)

    async def _schedule(self) -> int:
        """Queue what continues without a message; a turn too old to resume gets one notice. Returns how many resume."""
        settings, now = self._env.settings, self._env.clock.now()
        resumable, waiting = 0, dict.fromkeys(await self._env.store.read(keys_with_work))
        for key, turn, reason, marked_at, notice_at in await self._env.store.read(interrupted_keys):
            if reason is None:
                self._turns.wake(key)
            elif resumes_by_itself(marked_at, now, settings.fresh_s, settings.resume):
                resumable += 1
                self._turns.wake(key, resume=True)
            elif (
                notice_at is None and settings.resume == "auto" and key not in waiting
            ):  # a message continues it anyhow
                await self._isolate_damage(self._notify_too_old(turn, key), turn, key)
        for key in waiting:
            self._turns.wake(key)
        for key in await self._env.store.read(answered_keys):
            self._turns.wake(key)
        for key in await self._env.store.read(keys_with_replies):
            self._outbox.wake(key)
        await self._backlogs.resume()
        return resumable

    async def _notify_too_old(self, turn: int, key: str) -> None:
        start = self._env.start(*origin_of(key), counts=False)
        events = await self._env.store.run(notify_too_old, turn, key, start)
        self._env.hub.publish(key, events)
        self._outbox.wake(key)

    async def _isolate_damage(self, work: Awaitable[None], turn: int, key: str) -> None:
        """Await the work on one turn; a row that cannot be read is logged and does not stop the others."""
        try:
            await work
        except StoreError:
            raise
        except Exception as error:
            log.exception("turn damaged", turn_id=turn, session_key=key, error=repr(error), remedy=REMEDY)

    async def _previous_exit(self) -> str:
        last = await self._env.store.read(last_end, self._env.instance.number)
        return last[0] if last else "none"
