"""Which turn runs when: sessions wait in lanes, turns run in slots with a watchdog, and each session has one turn at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import structlog

from everturn import points
from everturn.agent.interface import Agent, MarksCalls
from everturn.clock import Clock
from everturn.errors import StoreError
from everturn.home.files import Media
from everturn.inbox.albums import Bursts
from everturn.model import SessionSource
from everturn.outbox.sender import ReplySender
from everturn.sessions.rules.keys import origin_of
from everturn.store.interface import Store
from everturn.telemetry.observing import outcome_of
from everturn.turns.approvals import Approvals
from everturn.turns.attempt import Attempt, TurnEnvironment, notify, show_typing
from everturn.turns.damage import Claimed, FailedClaims, suspend_if_damaged
from everturn.turns.rows.beginning import begin_next
from everturn.turns.rows.recovery import Interruption, Recovered, cut_off_by_drain
from everturn.turns.rows.turn_values import BehindApproval, Later, NotYet, Start, StartedTurn, Streamed
from everturn.turns.rows.turns import message_waits
from everturn.turns.rules import turn_texts
from everturn.turns.rules.turns import Moment, Notice, TurnTimeouts, due
from everturn.turns.runner import Runner

log = structlog.get_logger()
LOOK_S = 5.0  # how often the watchdog looks at the running turns
SETTLE_S = 2.0  # how long a drain waits for what is being shown


@dataclass(slots=True)
class RunningTurn:
    """A running turn of this process, with its task."""

    attempt: Attempt
    task: asyncio.Task[bool]


class Streams:
    """The streamed texts of the answers in progress in this process."""

    def __init__(self, running: Mapping[str, RunningTurn]) -> None:
        self._running = running

    def of(self, key: str) -> Streamed | None:
        """What the key's turn has streamed, if it runs here."""
        running = self._running.get(key)
        return None if running is None else running.attempt.streamed()

    def hold(self, key: str, *, held: bool) -> None:
        """Pause or continue streaming while something is committed that may end the key's turn: what people have seen is
        what is committed.
        """
        if (running := self._running.get(key)) is not None:
            running.attempt.stream_held = held


class Lanes:
    """Chooses the next key for a free slot, from three queues in memory: new work, interrupted turns (which leave half of the slots
    to new work), and suspects. Of these only one may be unproven at a time, so that the next crash shows which turn causes it.
    Nothing here touches the database or the clock.
    """

    def __init__(self, slots: int) -> None:
        self._fresh: dict[str, None] = {}
        self._resumes: dict[str, None] = {}
        self._suspects: dict[str, None] = {}
        self._resumes_at_once = max(1, slots // 2)
        self._unproven: str | None = None

    def add(self, key: str, *, resume: bool) -> None:
        """Queue a key that has work; one that is queued already keeps its place."""
        if key in self._resumes or key in self._suspects:
            return
        if resume:
            self._fresh.pop(key, None)
        (self._resumes if resume else self._fresh)[key] = None

    def add_suspect(self, key: str) -> None:
        """Queue a suspect: its turn begins when no other suspect is unproven."""
        self._suspects[key] = None
        self.clear(key)

    def waits(self, key: str) -> bool:
        """Whether the key is in a queue."""
        return key in self._fresh or key in self._resumes or key in self._suspects

    def pick(self, resumed: Callable[[], int]) -> tuple[str, bool] | None:
        """Take the key for the next slot, and whether it resumes; `resumed` counts the interrupted turns that have a slot."""
        if self._suspects and self._unproven is None:
            self._unproven = key = _pop(self._suspects)
            return key, False
        if self._resumes and resumed() < self._resumes_at_once:
            return _pop(self._resumes), True
        return (_pop(self._fresh), False) if self._fresh else None

    def watch(self, key: str) -> None:
        """Watch a suspect that begins: no other may begin until it is cleared."""
        self._unproven = key

    def watches(self, key: str) -> bool:
        """Whether this suspect is the one that may begin."""
        return self._unproven == key

    def clear(self, key: str) -> None:
        """Stop watching a suspect that is proven, did not begin, or has ended."""
        if self._unproven == key:
            self._unproven = None

    def delay_resumes(self) -> None:
        """Delay all interrupted turns (crash loop)."""
        self._resumes_at_once = 0

    def resume_one_at_a_time(self) -> None:
        """End the crash loop delay: interrupted turns resume, one at a time."""
        self._resumes_at_once = 1

    def delayed_resumes(self) -> int:
        """How many interrupted turns the crash loop delays."""
        return len(self._resumes) if self._resumes_at_once == 0 else 0


def _pop(queue: dict[str, None]) -> str:
    key = next(iter(queue))
    del queue[key]
    return key


class Watchdog:
    """Checks the turns of this process every few seconds, by the monotonic clock: sends notices about slow turns, and fails
    inactive ones.
    """

    def __init__(
        self, store: Store, clock: Clock, patience: TurnTimeouts, running: Mapping[str, RunningTurn], runner: Runner
    ) -> None:
        self._store = store
        self._clock = clock
        self._patience = patience
        self._running = running
        self._runner = runner

    async def run(self) -> None:
        """Check the running turns, in a loop without end."""
        while True:
            await self._clock.sleep(LOOK_S)
            for running in list(self._running.values()):
                try:
                    await self.look(running)
                except StoreError as error:
                    log.warning("turn not checked", session_key=running.attempt.begun.key, error=str(error))

    async def look(self, running: RunningTurn) -> None:
        """Send the notice that is due for a turn, or fail the turn when it is inactive."""
        attempt, now, patience = running.attempt, self._clock.monotonic(), self._patience
        idle_s, running_s = now - attempt.active_at, now - attempt.began
        behind = attempt.has_waiting() and await self._store.read(message_waits, attempt.begun.key)
        notice, attempt.notices = due(
            patience, Moment(running_s=running_s, idle_s=idle_s, behind=behind), attempt.notices
        )
        if notice is Notice.INACTIVE:
            await self._fail_inactive(running, idle_s)
        elif notice is Notice.STALL:
            await notify(attempt, turn_texts.stalled(idle_s, attempt.tool), notice)
        elif notice is Notice.WARN:
            left_s = patience.inactive_s - idle_s if patience.inactive_s > 0 else 0.0
            await notify(attempt, turn_texts.inactive_soon(idle_s, left_s), notice)
        elif notice is Notice.WORKING:
            await notify(attempt, turn_texts.still_working(running_s, attempt.tool), notice)

    async def _fail_inactive(self, running: RunningTurn, idle_s: float) -> None:
        """Fail the turn with a notice, then cancel its task, whose late writes are refused."""
        log.warning(
            "turn inactive", turn_id=running.attempt.begun.turn, session_key=running.attempt.begun.key, idle_s=idle_s
        )
        await self._runner.fail(running.attempt, turn_texts.inactive(idle_s))
        running.task.cancel()


def _never(_key: str) -> bool:
    """For an agent that does not mark its calls."""
    return False


class Scheduler:
    """Schedules the turns of this process on its slots: one at a time per key, fair between keys."""

    def __init__(self, env: TurnEnvironment, agent: Agent, outbox: ReplySender, media: Media | None) -> None:
        self._env = env
        self._outbox = outbox
        self._runner = Runner(env, agent, outbox, media)
        self._marks_calls = agent.marks_calls if isinstance(agent, MarksCalls) else _never
        self.approvals = Approvals(env, self.wake)
        self.lanes = Lanes(env.settings.running_turns)
        self._limit = env.settings.running_turns
        # A key has a slot from its claim in the database until its turn has ended.
        self._running: dict[str, RunningTurn] = {}
        self._claiming: dict[str, bool] = {}  # the turn is not begun yet; whether it resumes
        self._all_free = asyncio.Event()
        self._all_free.set()
        self.streams = Streams(self._running)
        self.bursts = Bursts(env.clock, self.wake)
        self.watchdog = Watchdog(env.store, env.clock, env.settings.patience, self._running, self._runner)
        self._failed_claims = FailedClaims(env, self.bursts)
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
        if key in self._running or key in self._claiming or self.lanes.waits(key):
            return None
        if not self._open or len(self._running) + len(self._claiming) >= self._limit:
            return None
        self._claiming[key] = False
        self._all_free.clear()
        return self._env.start(source.platform, source.chat_type, counts=not self._marks_calls(key))

    def launch(self, begun: StartedTurn) -> None:
        """Start the task of a turn that this process has claimed."""
        attempt = Attempt(self._env, begun)
        if attempt.suspect:
            self.lanes.watch(begun.key)
        attempt.bubble = self._outbox.bubbles.begin(lambda: attempt.begun)
        task = asyncio.create_task(self._runner.run(attempt, self._proved))
        self._claiming.pop(begun.key, None)
        self._running[begun.key] = RunningTurn(attempt, task)
        self._all_free.clear()
        self._env.observing.began(begun)
        # A callback, not a `finally`: a task that is cancelled before its first step runs none of its code.
        task.add_done_callback(partial(self._ended, attempt))
        show_typing(attempt, task)
        if self._stopping:
            task.cancel()

    def give_back(self, key: str) -> None:
        """Free the key's slot, and queue the key again if it got work meanwhile."""
        self._claiming.pop(key, None)
        self._running.pop(key, None)
        if not self._running and not self._claiming:
            self._all_free.set()
        if key in self._again:
            self._again.discard(key)
            self.lanes.add(key, resume=False)
        self._pump()

    def wake(self, key: str, *, resume: bool = False) -> None:
        """Queue a key that has work; while its turn runs, the key is checked again afterwards."""
        if key in self._running or key in self._claiming:
            self._again.add(key)
            if (running := self._running.get(key)) is not None:
                running.attempt.woken = True
            return
        self.lanes.add(key, resume=resume)
        self._pump()

    def knows(self, key: str) -> bool:
        """Whether this process runs, begins, or has queued a turn of the key."""
        return key in self._running or key in self._claiming or self.lanes.waits(key)

    async def resume_after_delay(self) -> None:
        """Wait for the crash loop delay, then resume interrupted turns one at a time."""
        await self._env.clock.sleep(self._env.settings.crash_loop_delay_s)
        self.lanes.resume_one_at_a_time()
        self._pump()

    def stop_turn(self, key: str, turn: int) -> None:
        """Cancel the task of a turn that a command ended in the database."""
        running = self._running.get(key)
        if running is not None and running.attempt.begun.turn == turn:
            running.task.cancel()

    def running(self) -> list[StartedTurn]:
        """The turns that run in this process now."""
        return [each.attempt.begun for each in self._running.values()]

    async def quiet(self) -> None:
        """Wait until no turn runs."""
        await self._all_free.wait()

    async def cut_off(self, reason: str, marked: list[Recovered]) -> None:
        """Mark and count every turn that still runs, each in one transaction, and cancel its task."""
        now = self._env.clock.now()
        cause = Interruption(instance=self._env.instance.number, reason=reason, at=now, now=now, why=reason)
        stuck_after = self._env.settings.stuck_after

        async def mark(running: RunningTurn) -> None:
            begun = running.attempt.begun
            delivery = self._env.platforms.delivery(begun.source.platform)
            if running.attempt.bubble is not None:
                await running.attempt.bubble.settle(SETTLE_S)  # so that what is out is known
            marking = self._env.store.run(cut_off_by_drain, begun.turn, begun.key, stuck_after, cause, delivery)
            recovered = await suspend_if_damaged(self._env, begun.turn, begun.key, cause, marking)
            points.reached("drain.marked")
            if delivery.streams:
                self._outbox.wake(begun.key)  # its streaming message shows that it waits
            running.task.cancel()
            if recovered is not None:
                running.attempt.outcome = outcome_of(recovered.verdict)
                marked.append(recovered)
                self._env.hub.publish(begun.key, recovered.events)

        await asyncio.gather(*(mark(each) for each in list(self._running.values())))

    def stop(self) -> None:
        """Cancel every turn at once, and those being claimed as soon as they start. `quiet` waits for their end."""
        self._open, self._stopping = False, True
        self.bursts.stop()
        for each in self._running.values():
            each.task.cancel()

    def _resumed(self) -> int:
        """How many interrupted turns have a slot."""
        return sum(each.attempt.begun.attempt > 1 for each in self._running.values()) + sum(self._claiming.values())

    def _pump(self) -> None:
        """Claim queued keys while slots are free."""
        while self._open and len(self._running) + len(self._claiming) < self._limit:
            picked = self.lanes.pick(self._resumed)
            if picked is None:
                return
            self._claim(*picked)

    def _claim(self, key: str, resumes: bool) -> None:  # noqa: FBT001  as it was picked
        """Take the key in the database. What follows is a callback: nobody can be cancelled between claim and launch."""
        self._claiming[key] = resumes
        self._all_free.clear()
        counts = not self._marks_calls(key)
        start = self._env.start(*origin_of(key), counts=counts, suspects=self.lanes.watches(key))
        claim = self._env.store.run(begin_next, key, start)
        claim.add_done_callback(partial(self._claimed, key))

    def _claimed(self, key: str, claim: asyncio.Future[Claimed]) -> None:
        begun = self._failed_claims.result_of(key, claim)
        if isinstance(begun, StartedTurn):
            self._env.hub.publish(key, begun.events)
            if begun.spoke or self._env.platforms.delivery(begun.source.platform).streams:
                self._outbox.wake(key)  # a streaming message from before may have its final text now
            self.launch(begun)
            return
        self.lanes.clear(key)
        if begun is None and not self._env.platforms.delivery(origin_of(key)[0]).by_event:
            self._outbox.wake(key)  # those who shared a turn that a revocation ended get a notice
        if isinstance(begun, NotYet):
            self.lanes.add_suspect(key)
        elif isinstance(begun, BehindApproval):
            self.approvals.notify_queued(key)
        elif isinstance(begun, Later):
            self.bursts.wake_at(key, begun.at)
        self.give_back(key)

    def _ended(self, attempt: Attempt, task: asyncio.Task[bool]) -> None:
        key = attempt.begun.key
        attempt.close_bubble()
        if attempt.bubble is not None and attempt.bubble.writer is not None:
            self._outbox.wake(key)  # however it ended, its streaming message has a final text
        self._env.observing.ended(attempt.begun, attempt.began, attempt.outcome)
        self._env.hub.ended(key)
        self.lanes.clear(key)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            log.error("turn ended unexpectedly", session_key=key, error=repr(error))
        elif task.cancelled() or task.result():
            self._again.add(key)
        self.give_back(key)

    def _proved(self, key: str) -> None:
        self.lanes.clear(key)
        self._pump()
