"""Putting right what earlier lives left behind, before any platform is read. It may itself die anywhere and run again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass

import structlog

from everturn import points
from everturn.decide.keys import origin_of
from everturn.decide.recovery import Verdict, resumes_by_itself, storm
from everturn.errors import StoreError
from everturn.gateway.backlog import Backlogs
from everturn.gateway.commands import Commands
from everturn.gateway.damage import ORPHANED, REMEDY, suspend_damaged, suspend_if_damaged
from everturn.gateway.liveness import Liveness
from everturn.gateway.outbox import Outbox
from everturn.gateway.parts import Parts
from everturn.gateway.turns import Turns
from everturn.store.operations.inbox import keys_with_work, waiting_commands
from everturn.store.operations.instances import Life, find_others, found_unclean, last_end, record_end, unclean_boots
from everturn.store.operations.outbox import keys_with_replies, recover_sending
from everturn.store.operations.overview import close_dead, note_planned, note_ready
from everturn.store.operations.questions import answered_keys
from everturn.store.operations.recovery import (
    THE_GATEWAY_ENDED,
    Interruption,
    Recovered,
    cut_off,
    damaged_turns,
    end_orphan,
    interrupted_keys,
    judge,
    tell_too_old,
)

log = structlog.get_logger()
REASONS = {"restart": "restart_timeout", "stop": "shutdown_timeout"}
WINDOW_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One start in figures: how the last life ended, and what became of what it left."""

    last_life: str
    continued: int = 0
    resumable: int = 0
    suspended: int = 0
    storm: bool = False


class Recovery:
    """Finds dead instances and continues their work through the normal claim path."""

    def __init__(self, parts: Parts, turns: Turns, commands: Commands, outbox: Outbox, backlogs: Backlogs) -> None:
        self._parts = parts
        self._turns = turns
        self._commands = commands
        self._outbox = outbox
        self._backlogs = backlogs
        self._liveness = Liveness(parts)
        self._ended = 0  # how many instances had ended when we last looked for their work
        self._took_up = False  # whether work of another life was taken up, which is told when turns are taken again

    async def at_start(self) -> Report:
        """Everything that must be right before the first message is read."""
        store, now = self._parts.store, self._parts.clock.now()
        dead = await self._liveness.dead_at_start()
        if dead:
            await store.run(found_unclean, self._parts.instance)
        others = await store.read(find_others, self._parts.instance)
        self._ended = others.ended + len(dead)
        recovered = [each for life in dead for each in await self._take_over(life)]
        recovered += [each for life in others.left for each in await self._recover(life)]
        suspended = sum(each.verdict is Verdict.SUSPEND for each in recovered)
        boots = await store.read(unclean_boots, now - WINDOW_S)
        stormy = bool(dead) and storm(boots, now, self._parts.settings.unclean_boots, suspended > 0)
        if stormy:
            self._turns.hold_resumes()
        await self._apply_commands()
        await self._commands.tell_back()
        resumable = await self._schedule()
        self._took_up = bool(dead) or await store.run(note_planned, self._parts.instance, now)
        points.reached("recovery.done")
        last = "unclean" if dead else await self._last_life()
        return Report(
            last_life=last, continued=len(recovered) - suspended, resumable=resumable, suspended=suspended, storm=stormy
        )

    async def sweep(self) -> None:
        """Take over from replicas that died while we live, and go on with what others left that ended as planned."""
        others = await self._parts.store.read(find_others, self._parts.instance)
        dead = await self._liveness.dead(others.open)
        for life in dead:
            await self._take_over(life)
        for life in others.left:
            await self._recover(life)
        if dead or others.left or others.ended != self._ended:
            self._ended = others.ended + len(dead)
            self._took_up = self._took_up or bool(dead)
            await self._apply_commands()
            await self._schedule()
            await self.ready()

    async def ready(self) -> None:
        """Turns are taken again: how long others' work lay still is known now."""
        if not self._took_up:
            return
        self._took_up = False
        await self._parts.store.run(note_ready, self._parts.instance, self._parts.clock.now())
        points.reached("recovery.ready")
        self._parts.hub.changes.note("instances", "sessions", "turns")

    async def close_life(self, kind: str) -> None:
        """Our own planned end: what could not be finished or sent in time is put right, then how we ended is written."""
        life = Life(number=self._parts.instance, heartbeat_at=self._parts.clock.now(), drain_kind=kind)
        await self._recover(life)
        await self._parts.store.run(record_end, life.number, kind, self._parts.clock.now())

    async def _take_over(self, life: Life) -> list[Recovered]:
        """Recover one dead instance, then close it."""
        self._parts.observing.recovers()
        recovered = await self._recover(life)
        await self._parts.store.run(close_dead, life.number, self._parts.instance, self._parts.clock.now())
        return recovered

    async def _recover(self, life: Life) -> list[Recovered]:
        """The work of one instance: judge its turns together, put each right, then its replies."""
        store, now = self._parts.store, self._parts.clock.now()
        cause = Interruption(
            instance=life.number,
            reason=REASONS.get(life.drain_kind or "", "restart_interrupted"),
            at=min(life.heartbeat_at, now),
            now=now,
            why=THE_GATEWAY_ENDED,
        )
        damaged = await store.read(damaged_turns, life.number)
        for turn, key, what, unusable in damaged:
            log.error("turn damaged", turn=turn, key=key, error=what, remedy=REMEDY)
            if unusable:
                self._tell(key, await suspend_damaged(self._parts, turn, key, cause))
        verdicts = await store.run(judge, life.number, self._parts.settings.stuck_after)
        recovered = await asyncio.gather(*(self._cut_off(*each, cause) for each in verdicts))
        await store.run(recover_sending, life.number, self._parts.doubts(), now)
        points.reached("recovery.outbox")
        return [each for each in recovered if each is not None]

    async def _cut_off(self, turn: int, key: str, verdict: Verdict, cause: Interruption) -> Recovered | None:
        delivery = self._parts.delivery(origin_of(key)[0])
        marking = self._parts.store.run(cut_off, turn, key, verdict, cause, delivery)
        recovered = await suspend_if_damaged(self._parts, turn, key, cause, marking)
        if recovered is None and await self._parts.store.run(end_orphan, turn, key, cause.instance, cause.now):
            log.error("turn damaged", turn=turn, key=key, error="its conversation does not know it", remedy=ORPHANED)
        points.reached("recovery.turn")
        self._tell(key, recovered)
        log.debug("turn recovered", turn=turn, key=key, verdict=verdict)
        return recovered

    def _tell(self, key: str, recovered: Recovered | None) -> None:
        if recovered is not None:
            self._parts.hub.publish(key, recovered.events)
            self._parts.observing.recovered(recovered.verdict)

    async def _apply_commands(self) -> None:
        """What was accepted and not applied, before anything is scheduled: a turn that a command ends is not resumed. One that
        another replica is about to apply is applied once, by either.
        """
        for number, key in await self._parts.store.read(waiting_commands):
            await self._commands.apply_now(number, key)

    async def _schedule(self) -> int:
        """Queue what goes on by itself; who is too old to do so is told once. Returns how many resume."""
        settings, now = self._parts.settings, self._parts.clock.now()
        resumable, waiting = 0, dict.fromkeys(await self._parts.store.read(keys_with_work))
        for key, turn, reason, marked_at, told_at in await self._parts.store.read(interrupted_keys):
            if reason is None:
                self._turns.wake(key)
            elif resumes_by_itself(marked_at, now, settings.fresh_s, settings.resume):
                resumable += 1
                self._turns.wake(key, resume=True)
            elif told_at is None and settings.resume == "auto" and key not in waiting:  # a message continues it anyhow
                await self._alone(self._tell_too_old(turn, key), turn, key)
        for key in waiting:
            self._turns.wake(key)
        for key in await self._parts.store.read(answered_keys):
            self._turns.wake(key)
        for key in await self._parts.store.read(keys_with_replies):
            self._outbox.wake(key)
        await self._backlogs.go_on()
        return resumable

    async def _tell_too_old(self, turn: int, key: str) -> None:
        parts = self._parts
        start = parts.start(*origin_of(key), counts=False)
        events = await parts.store.run(tell_too_old, turn, key, start)
        parts.hub.publish(key, events)
        self._outbox.wake(key)

    async def _alone(self, work: Awaitable[None], turn: int, key: str) -> None:
        """One row that cannot be read must not keep the gateway from the others."""
        try:
            await work
        except StoreError:
            raise
        except Exception as error:
            log.exception("turn damaged", turn=turn, key=key, error=repr(error), remedy=REMEDY)

    async def _last_life(self) -> str:
        last = await self._parts.store.read(last_end, self._parts.instance)
        return last[0] if last else "none"
