"""One model call: watched for stalls, and shown as it grows."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from everturn.agent.llm.failures import Stalled
from everturn.agent.llm.replies import ModelAnswer, ModelClient, ModelInput
from everturn.clock import Clock

T = TypeVar("T")
Show = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class CallWatch:
    """How a call is watched: where it streams to, how often, and when it counts as stalled."""

    clock: Clock
    stall_s: float
    every_s: float
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


async def call_model(model: ModelClient, asked: ModelInput, watch: CallWatch) -> ModelAnswer:
    """Call the model; returns the whole answer. Raises Stalled, or what the client raises."""
    pulse = Pulse(watch.clock)
    shown_at: float | None = None

    def heard(text: Callable[[], str]) -> None:
        nonlocal shown_at
        pulse.beat()
        watch.active()
        if (shown_at is None or pulse.at - shown_at >= watch.every_s) and (said := text()):
            shown_at = pulse.at
            watch.show(said)

    return await unless_stalled(model.ask(asked, heard), pulse, watch)


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
        if not task.done():
            task.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await task
