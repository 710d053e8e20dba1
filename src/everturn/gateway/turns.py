"""Running turns: one at a time per key, fair between keys, within the limit of running turns."""

from __future__ import annotations

import asyncio
from functools import partial

import structlog

from everturn import points
from everturn.agent.interface import Agent, MarksCalls
from everturn.decide.keys import origin_of
from everturn.decide.recovery import is_suspect
from everturn.gateway.asking import Questions
from everturn.gateway.at_work import show_at_work
from everturn.gateway.attempt import Attempt
from everturn.gateway.bursts import Bursts
from everturn.gateway.damage import suspend_if_damaged
from everturn.gateway.failed_claims import Claimed, FailedClaims
from everturn.gateway.lanes import Lanes
from everturn.gateway.observing import outcome_of
from everturn.gateway.outbox import Outbox
from everturn.gateway.parts import Parts
from everturn.gateway.running import Runner
from everturn.gateway.slots import Running, Slots, Streams
from everturn.gateway.watching import Watching
from everturn.model import SessionSource
from everturn.store.operations.beginning import begin_next
from everturn.store.operations.recovery import Interruption, Recovered, cut_off_by_drain
from everturn.store.operations.turn_values import Begun, Later, NotYet, Start, Waits

log = structlog.get_logger()
SETTLE_S = 2.0


def _never(_key: str) -> bool:
    """An agent that does not say that it marks its calls."""
    return False


class Turns:
    """The turns of this process, and the slots they take."""

    def __init__(self, parts: Parts, agent: Agent, outbox: Outbox) -> None:
        self._parts = parts
        self._outbox = outbox
        self._runner = Runner(parts, agent, outbox)
        self._marks_calls = agent.marks_calls if isinstance(agent, MarksCalls) else _never
        self._questions = Questions(parts, outbox)
        self._lanes = Lanes(parts.settings.running_turns)
        self._slots = Slots(parts.settings.running_turns)
        self.streams = Streams(self._slots)
        self.bursts = Bursts(parts.clock, self.wake)
        self.watching = Watching(parts, self._slots, self._runner)
        self._failed_claims = FailedClaims(parts, outbox, self.bursts)
        self._again: set[str] = set()  # keys to look at once more when their turn has ended
        self._open = False
        self._stopping = False

    def open(self) -> None:
        """Begin to take turns."""
        self._open = True
        self._pump()

    def close(self) -> None:
        """Take no more turns; intake goes on."""
        self._open = False

    def offer(self, key: str, source: SessionSource) -> Start | None:
        """A slot for a message that is just being accepted, if its lane has nothing before it and one is free."""
        if self._slots.has(key) or self._lanes.waits(key) or not self._open or self._slots.free() <= 0:
            return None
        self._slots.take(key, resumes=False)
        return self._parts.start(source.platform, source.chat_type, counts=not self._marks_calls(key))

    def launch(self, begun: Begun) -> None:
        """Run a turn that is ours."""
        if is_suspect(begun.unclean_ends, self._parts.settings.stuck_after):
            self._lanes.watch(begun.key)
        attempt = Attempt(self._parts, begun, self._outbox.wake)
        attempt.bubble = self._outbox.bubbles.begin(lambda: attempt.begun)
        task = asyncio.create_task(self._runner.run(attempt, self._proved))
        self._slots.begin(Running(attempt, task))
        self._parts.observing.began(begun)
        # A callback, not a `finally`: a task that is cancelled before its first step runs none of its code.
        task.add_done_callback(partial(self._ended, attempt))
        show_at_work(attempt, task)
        if self._stopping:
            task.cancel()

    def give_back(self, key: str) -> None:
        """The key's slot is free again; who asked for the key meanwhile is looked at."""
        self._slots.give_back(key)
        if key in self._again:
            self._again.discard(key)
            self._lanes.add(key, resume=False)
        self._pump()

    def wake(self, key: str, *, resume: bool = False) -> None:
        """The key has work; while its turn is being run, look again afterwards."""
        if self._slots.has(key):
            self._again.add(key)
            if (running := self._slots.running.get(key)) is not None:
                running.attempt.called_on = True
            return
        self._lanes.add(key, resume=resume)
        self._pump()

    def hold_resumes(self) -> None:
        """The boot breaker: interrupted turns wait until the process has been calm."""
        self._lanes.hold_resumes()

    async def resume_after_calm(self) -> None:
        """The process has lived for the calm time: interrupted turns go on, one at a time."""
        await self._parts.clock.sleep(self._parts.settings.calm_s)
        self._lanes.one_at_a_time()
        self._pump()

    def held_back(self) -> int:
        """How many interrupted turns wait for a calm process."""
        return self._lanes.held_back()

    def stop_turn(self, key: str, turn: int) -> None:
        """A command ended this turn in the database; end it here too."""
        running = self._slots.running.get(key)
        if running is not None and running.begun.turn == turn:
            running.task.cancel()

    def running(self) -> list[Begun]:
        """The turns that run in this process now."""
        return [each.begun for each in self._slots.running.values()]

    async def quiet(self) -> None:
        """Wait until no turn runs."""
        await self._slots.quiet()

    async def cut_off(self, reason: str, marked: list[Recovered]) -> None:
        """Mark what is still running, all at once: it is counted in the same transaction, and then cancelled."""
        now = self._parts.clock.now()
        cause = Interruption(instance=self._parts.instance, reason=reason, at=now, now=now, why=reason)
        stuck_after = self._parts.settings.stuck_after

        async def mark(running: Running) -> None:
            begun = running.begun
            delivery = self._parts.delivery(begun.source.platform)
            if running.attempt.bubble is not None:
                await running.attempt.bubble.settled(SETTLE_S)  # so that what is out is known
            marking = self._parts.store.run(cut_off_by_drain, begun.turn, begun.key, stuck_after, cause, delivery)
            recovered = await suspend_if_damaged(self._parts, begun.turn, begun.key, cause, marking)
            points.reached("drain.marked")
            if delivery.streams:
                self._outbox.wake(begun.key)  # its bubble says that it waits
            running.task.cancel()
            if recovered is not None:
                running.attempt.outcome = outcome_of(recovered.verdict)
                marked.append(recovered)
                self._parts.hub.publish(begun.key, recovered.events)

        await asyncio.gather(*(mark(each) for each in list(self._slots.running.values())))

    def stop(self) -> None:
        """Cancel every turn at once, and those whose claim is on its way as soon as it lands. `quiet` waits for their end."""
        self._open, self._stopping = False, True
        self.bursts.stop()
        for each in self._slots.running.values():
            each.task.cancel()

    def _pump(self) -> None:
        """Give free slots away."""
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
        if isinstance(begun, Begun):
            self._parts.hub.publish(key, begun.events)
            if begun.spoke or self._parts.delivery(begun.source.platform).streams:
                self._outbox.wake(key)  # a bubble that was left may have got its last shape
            self.launch(begun)
            return
        self._lanes.clear(key)
        if begun is None and not self._parts.delivery(origin_of(key)[0]).by_event:
            self._outbox.wake(key)  # who shared a turn that ended because somebody may no longer speak is told
        if isinstance(begun, NotYet):
            self._lanes.add_suspect(key)
        elif isinstance(begun, Waits):
            self._questions.tell_held(key)
        elif isinstance(begun, Later):
            self.bursts.wake_at(key, begun.at)
        self.give_back(key)

    def _ended(self, attempt: Attempt, task: asyncio.Task[bool]) -> None:
        key = attempt.begun.key
        attempt.close_bubble()
        if attempt.bubble is not None and attempt.bubble.hand is not None:
            self._outbox.wake(key)  # however it ended, its bubble has a last shape
        self._parts.observing.ended(attempt.begun, attempt.began, attempt.outcome)
        self._parts.hub.ended(key)
        self._lanes.clear(key)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            log.error("turn ended unexpectedly", key=key, error=repr(error))
        elif task.cancelled() or task.result():
            self._again.add(key)
        self.give_back(key)

    def _proved(self, key: str) -> None:
        self._lanes.clear(key)
        self._pump()
