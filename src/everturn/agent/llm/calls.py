"""One model call: watched for stalls, and shown as it grows."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from everturn.agent.llm.failures import Stalled
from everturn.agent.llm.replies import ModelAnswer, ModelClient, ModelInput
from everturn.clock import Clock

T = TypeVar("T")
Show = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class CallWatch:
    """How a call is watched: where it streams to, and when it counts as stalled."""

    clock: Clock
    stall_s: float
    show: Show
    active: Callable[[], None]


class Pulse:
    """Records when the last activity was."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.at = clock.monotonic()

    def beat(self) -> None:
        """Record activity."""
        self.at = self._clock.monotonic()

    def quiet_s(self) -> float:
        """Seconds since the last activity."""
        return self._clock.monotonic() - self.at


class Preview:
    """Shows an answer as it grows; nothing before the call is stored. What arrives together is shown together."""

    def __init__(self, watch: CallWatch, pulse: Pulse) -> None:
        self._watch = watch
        self._pulse = pulse
        self._stored = False
        self._text: Callable[[], str] | None = None  # what was heard before the call was stored

    def heard(self, text: Callable[[], str]) -> None:
        """Something of the answer arrived."""
        self._pulse.beat()
        self._watch.active()
        if self._stored:
            self._show(text)
        else:
            self._text = text

    def begin(self) -> None:
        """Show what was heard by now, and what comes: the call is stored."""
        self._stored = True
        if self._text is not None:
            self._show(self._text)

    def _show(self, text: Callable[[], str]) -> None:
        if said := text():
            self._watch.show(said)


async def call_model(
    model: ModelClient, asked: ModelInput, watch: CallWatch, calling: asyncio.Future[None]
) -> ModelAnswer:
    """Call the model, while it is being stored that it is called; returns the whole answer. Raises Stalled, what the client
    raises, or why the call was not stored: it is ended then.
    """
    pulse = Pulse(watch.clock)
    preview = Preview(watch, pulse)
    work = asyncio.ensure_future(unless_stalled(model.ask(asked, preview.heard), pulse, watch))
    try:
        await calling
        preview.begin()
        return await work
    finally:
        await _ended(work)


async def unless_stalled(work: Awaitable[T], pulse: Pulse, watch: CallWatch) -> T:
    """Wait for the work as long as there is activity. Raises Stalled."""
    task = asyncio.ensure_future(work)
    try:
        while not task.done():
            timer = asyncio.ensure_future(watch.clock.sleep(watch.stall_s - pulse.quiet_s()))
            try:
                await asyncio.wait({task, timer}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                timer.cancel()
            if not task.done() and pulse.quiet_s() >= watch.stall_s:
                raise Stalled
        return task.result()
    finally:
        await _ended(task)


async def _ended(task: asyncio.Future[Any]) -> None:
    """End a task that is no longer wanted, whatever came of it."""
    if not task.done():
        task.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await task
    elif not task.cancelled():
        task.exception()  # if it failed as well, that is not what went wrong first
