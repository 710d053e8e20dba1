"""An event loop with virtual time. A seed decides which process goes next and how long everything takes.

asyncio promises that the callbacks of a loop run in the order in which they were scheduled, and the gateway relies on it: what
follows a commit runs before the task that awaits it. So that order is kept within a process; only which process goes next is drawn.
With drawn latencies, that gives every order that can really happen.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import random
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVarTuple

Given = TypeVarTuple("Given")

GRAIN_S = 1e-6  # time passes with every step of it: rounding leaves waits of 1e-16 s, which would never end
MOST_STEPS_AT_ONCE = 20_000  # at one moment: something spins
MOST_STEPS = 2_000_000


class Group:
    """The tasks and timers of one process of the gateway: what runs in its context is its own. One that is dead is never run
    again, and nothing of it is collected: a crash runs no `finally`.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.dead = False
        self.paused_until = 0.0
        self.ready: deque[Scheduled] = deque()
        self.context = OUTSIDE.copy()
        self.context.run(OWNER.set, self)


OWNER: contextvars.ContextVar[Group | None] = contextvars.ContextVar("owner", default=None)
OUTSIDE = contextvars.Context()  # what runs here belongs to no process: people, networks, the database


class Scheduled(asyncio.TimerHandle):
    """A callback, and the process that it belongs to."""

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: SimLoop,
        context: contextvars.Context | None,
    ) -> None:
        context = contextvars.copy_context() if context is None else context
        super().__init__(when, callback, args, loop, context)
        self.owner = context.get(OWNER)
        self.work = partial(context.run, callback, *args)


class Spins(Exception):
    """Something runs again and again, and time stands still."""


class SimLoop(asyncio.BaseEventLoop):
    """Runs one callback at a time. Those of dead processes are kept and never run; those of paused ones wait."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self.at = 0.0
        self.steps = 0
        self.kept: list[object] = []  # every task, and what the dead left: what is collected would run its `finally`
        self.errors: list[str] = []  # what callbacks raised
        self._chance = chance
        self._here = 0
        self._nobody: deque[Scheduled] = deque()  # what belongs to no process
        self._queues: list[tuple[Group | None, deque[Scheduled]]] = []  # those with something to run
        self._timers: list[tuple[float, int, Scheduled]] = []
        self._numbers = 0
        self.set_task_factory(self._make_task)
        self.set_exception_handler(self._note_error)

    def time(self) -> float:
        """Virtual seconds since the beginning."""
        return self.at

    def call_soon(
        self, callback: Callable[[*Given], object], *args: *Given, context: contextvars.Context | None = None
    ) -> Scheduled:
        """Run it behind everything that its process has scheduled before."""
        handle = Scheduled(self.at, callback, args, self, context)
        self._enqueue(handle)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[*Given], object], *args: *Given, context: contextvars.Context | None = None
    ) -> Scheduled:
        """There is one thread."""
        return self.call_soon(callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*Given], object],
        *args: *Given,
        context: contextvars.Context | None = None,
    ) -> Scheduled:
        """Run it at that moment."""
        handle = Scheduled(when, callback, args, self, context)
        self._numbers += 1
        heapq.heappush(self._timers, (when, self._numbers, handle))
        return handle

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Given], object],
        *args: *Given,
        context: contextvars.Context | None = None,
    ) -> Scheduled:
        """Run it after so many seconds."""
        return self.call_at(self.at + max(0.0, delay), callback, *args, context=context)

    def run_in_executor(self, _executor: object, work: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """What would run in a thread runs a moment later, in this one."""
        done = self.create_future()
        self.call_later(self._chance.uniform(0.0001, 0.05), _settle, done, partial(work, *args))
        return done

    def go_on(self, group: Group) -> None:
        """Let a process that was paused run what has gathered meanwhile."""
        if group.ready and not any(owner is group for owner, _ in self._queues):
            self._queues.append((group, group.ready))

    def _enqueue(self, handle: Scheduled) -> None:
        owner = handle.owner
        if owner is not None and owner.dead:
            self.kept.append(handle)
            return
        queue = self._nobody if owner is None else owner.ready
        queue.append(handle)
        if len(queue) == 1:
            self._queues.append((owner, queue))

    def _run_once(self) -> None:
        """Run the next callback of some process, or pass the time to the next timer."""
        if not self._queues:
            self._pass_time()
            return
        place = self._chance.randrange(len(self._queues)) if len(self._queues) > 1 else 0
        owner, queue = self._queues[place]
        if owner is not None and (owner.dead or owner.paused_until > self.at):
            del self._queues[place]
            if owner.dead:
                self.kept.extend(queue)
                queue.clear()
            return
        handle = queue.popleft()
        if not queue:
            del self._queues[place]
        if handle.cancelled():
            return
        self.steps, self._here = self.steps + 1, self._here + 1
        if self._here > MOST_STEPS_AT_ONCE or self.steps > MOST_STEPS:
            raise Spins(f"it spins at {self.at}: {handle!r}")
        try:
            handle.work()
        except Exception as error:  # noqa: BLE001  as the loop of asyncio: whatever a callback raises is reported
            self.call_exception_handler({"message": "a callback failed", "exception": error})

    def _pass_time(self) -> None:
        timers = self._timers
        while timers and timers[0][2].cancelled():
            heapq.heappop(timers)
        self.at, self._here = max(self.at + GRAIN_S, timers[0][0]), 0
        while timers and timers[0][0] <= self.at:
            handle = heapq.heappop(timers)[2]
            if not handle.cancelled():
                self._enqueue(handle)

    def _make_task(self, loop: asyncio.AbstractEventLoop, work: Any, **given: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(work, loop=loop, **given)
        self.kept.append(task)
        return task

    def _note_error(self, _loop: object, context: dict[str, Any]) -> None:
        self.errors.append(f"{context['message']}: {context.get('exception')!r}")


def wake(done: asyncio.Future[None]) -> None:
    """Settle what somebody waits for, unless it is settled."""
    if not done.done():
        done.set_result(None)


def _settle(done: asyncio.Future[Any], work: Callable[[], Any]) -> None:
    if done.done():
        return
    try:
        done.set_result(work())
    except Exception as error:  # noqa: BLE001  the caller's
        done.set_exception(error)
