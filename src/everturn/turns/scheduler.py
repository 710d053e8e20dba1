"""Schedule turns: one at a time per key, fair between keys, within the limit of running turns."""

from __future__ import annotations

import asyncio
from functools import partial

import structlog

from everturn import points
from everturn.agent.interface import Agent, MarksCalls
from everturn.inbox.bursts import Bursts
from everturn.lifecycle.parts import Parts
from everturn.model import SessionSource
from everturn.outbox.sender import ReplySender
from everturn.sessions.rules.keys import origin_of
from everturn.telemetry.observing import outcome_of
from everturn.turns.approvals import ApprovalRequests
from everturn.turns.attempt import Attempt
from everturn.turns.damage import suspend_if_damaged
from everturn.turns.failed_claims import Claimed, FailedClaims
from everturn.turns.lanes import Lanes
from everturn.turns.rows.beginning import begin_next
from everturn.turns.rows.recovery import Interruption, Recovered, cut_off_by_drain
from everturn.turns.rows.turn_values import BehindApproval, Later, NotYet, Start, StartedTurn
from everturn.turns.rules.recovery import is_suspect
from everturn.turns.runner import Runner
from everturn.turns.slots import RunningTurn, Slots, Streams
from everturn.turns.typing import show_typing
from everturn.turns.watchdog import Watchdog

log = structlog.get_logger()
SETTLE_S = 2.0


def _never(_key: str) -> bool:
    """For an agent that does not mark its calls."""
    return False


class Scheduler:
    """Schedules the turns of this process on its slots."""

    def __init__(self, parts: Parts, agent: Agent, outbox: ReplySender) -> None:
        self._parts = parts
        self._outbox = outbox
        self._runner = Runner(parts, agent, outbox)
        self._marks_calls = agent.marks_calls if isinstance(agent, MarksCalls) else _never
        self._requests = ApprovalRequests(parts, outbox)
        self._lanes = Lanes(parts.settings.running_turns)
        self._slots = Slots(parts.settings.running_turns)
        self.streams = Streams(self._slots)
        self.bursts = Bursts(parts.clock, self.wake)
        self.watchdog = Watchdog(parts, self._slots, self._runner)
        self._failed_claims = FailedClaims(parts, outbox, self.bursts)
        self._again: set[str] = set()  # keys to look at once more when their turn has ended
        self._open = False
        self._stopping = False

    def open(self) -> None:
        """Start taking turns."""
        self._open = True
        self._pump()

    def close(self) -> None:
        """Take no more turns; intake goes on."""
        self._open = False

    def take_slot(self, key: str, source: SessionSource) -> Start | None:
        """Take a free slot for a message that is being accepted; None if its key has other work or none is free."""
        if self._slots.has(key) or self._lanes.waits(key) or not self._open or self._slots.free() <= 0:
            return None
        self._slots.take(key, resumes=False)
        return self._parts.start(source.platform, source.chat_type, counts=not self._marks_calls(key))

    def launch(self, begun: StartedTurn) -> None:
        """Start the task of a turn that this process has claimed."""
        if is_suspect(begun.unclean_ends, self._parts.settings.stuck_after):
            self._lanes.watch(begun.key)
        attempt = Attempt(self._parts, begun, self._outbox.wake)
        attempt.bubble = self._outbox.bubbles.begin(lambda: attempt.begun)
        task = asyncio.create_task(self._runner.run(attempt, self._proved))
        self._slots.begin(RunningTurn(attempt, task))
        self._parts.observing.began(begun)
        # A callback, not a `finally`: a task that is cancelled before its first step runs none of its code.
        task.add_done_callback(partial(self._ended, attempt))
        show_typing(attempt, task)
        if self._stopping:
            task.cancel()

    def give_back(self, key: str) -> None:
        """Free the key's slot, and queue the key again if it got work meanwhile."""
        self._slots.give_back(key)
        if key in self._again:
            self._again.discard(key)
            self._lanes.add(key, resume=False)
        self._pump()

    def wake(self, key: str, *, resume: bool = False) -> None:
        """Queue a key that has work; while its turn runs, the key is checked again afterwards."""
        if self._slots.has(key):
            self._again.add(key)
            if (running := self._slots.running.get(key)) is not None:
                running.attempt.woken = True
            return
        self._lanes.add(key, resume=resume)
        self._pump()

    def delay_resumes(self) -> None:
        """Delay interrupted turns until the process has survived the crash loop delay."""
        self._lanes.delay_resumes()

    async def resume_after_delay(self) -> None:
        """Wait for the crash loop delay, then resume interrupted turns one at a time."""
        await self._parts.clock.sleep(self._parts.settings.crash_loop_delay_s)
        self._lanes.resume_one_at_a_time()
        self._pump()

    def delayed_resumes(self) -> int:
        """How many interrupted turns the crash loop delays."""
        return self._lanes.delayed_resumes()

    def stop_turn(self, key: str, turn: int) -> None:
        """Cancel the task of a turn that a command ended in the database."""
        running = self._slots.running.get(key)
        if running is not None and running.begun.turn == turn:
            running.task.cancel()

    def running(self) -> list[StartedTurn]:
        """The turns that run in this process now."""
        return [each.begun for each in self._slots.running.values()]

    async def quiet(self) -> None:
        """Wait until no turn runs."""
        await self._slots.quiet()

    async def cut_off(self, reason: str, marked: list[Recovered]) -> None:
        """Mark and count every turn that still runs, each in one transaction, and cancel its task."""
        now = self._parts.clock.now()
        cause = Interruption(instance=self._parts.instance, reason=reason, at=now, now=now, why=reason)
        stuck_after = self._parts.settings.stuck_after

        async def mark(running: RunningTurn) -> None:
            begun = running.begun
            delivery = self._parts.delivery(begun.source.platform)
            if running.attempt.bubble is not None:
                await running.attempt.bubble.settle(SETTLE_S)  # so that what is out is known
            marking = self._parts.store.run(cut_off_by_drain, begun.turn, begun.key, stuck_after, cause, delivery)
            recovered = await suspend_if_damaged(self._parts, begun.turn, begun.key, cause, marking)
            points.reached("drain.marked")
            if delivery.streams:
                self._outbox.wake(begun.key)  # its streaming message shows that it waits
            running.task.cancel()
            if recovered is not None:
                running.attempt.outcome = outcome_of(recovered.verdict)
                marked.append(recovered)
                self._parts.hub.publish(begun.key, recovered.events)

        await asyncio.gather(*(mark(each) for each in list(self._slots.running.values())))

    def stop(self) -> None:
        """Cancel every turn at once, and those being claimed as soon as they start. `quiet` waits for their end."""
        self._open, self._stopping = False, True
        self.bursts.stop()
        for each in self._slots.running.values():
            each.task.cancel()

    def _pump(self) -> None:
        """Claim queued keys while slots are free."""
        while self._open and self._slots.free() > 0:
            picked = self._lanes.pick(self._slots.resumed() if self._lanes.any_resume() else 0)
            if picked is None:
                return
            self._claim(*picked)

    def _claim(self, key: str, resumes: bool) -> None:  # noqa: FBT001  as it was picked
        """Take the key in the database. What follows is a callback: nobody can be cancelled between claim and launch."""
        self._slots.take(key, resumes=resumes)
        counts = not self._marks_calls(key)
        start = self._parts.start(*origin_of(key), counts=counts, suspects=self._lanes.watches(key))
        claim = self._parts.store.run(begin_next, key, start)
        claim.add_done_callback(partial(self._claimed, key))

    def _claimed(self, key: str, claim: asyncio.Future[Claimed]) -> None:
        begun = self._failed_claims.result_of(key, claim)
        if isinstance(begun, StartedTurn):
            self._parts.hub.publish(key, begun.events)
            if begun.spoke or self._parts.delivery(begun.source.platform).streams:
                self._outbox.wake(key)  # a streaming message from before may have its final text now
            self.launch(begun)
            return
        self._lanes.clear(key)
        if begun is None and not self._parts.delivery(origin_of(key)[0]).by_event:
            self._outbox.wake(key)  # those who shared a turn that a revocation ended get a notice
        if isinstance(begun, NotYet):
            self._lanes.add_suspect(key)
        elif isinstance(begun, BehindApproval):
            self._requests.notify_queued(key)
        elif isinstance(begun, Later):
            self.bursts.wake_at(key, begun.at)
        self.give_back(key)

    def _ended(self, attempt: Attempt, task: asyncio.Task[bool]) -> None:
        key = attempt.begun.key
        attempt.close_bubble()
        if attempt.bubble is not None and attempt.bubble.writer is not None:
            self._outbox.wake(key)  # however it ended, its streaming message has a final text
        self._parts.observing.ended(attempt.begun, attempt.began, attempt.outcome)
        self._parts.hub.ended(key)
        self._lanes.clear(key)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            log.error("turn ended unexpectedly", session_key=key, error=repr(error))
        elif task.cancelled() or task.result():
            self._again.add(key)
        self.give_back(key)

    def _proved(self, key: str) -> None:
        self._lanes.clear(key)
        self._pump()
