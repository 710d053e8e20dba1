"""Watching running turns: who takes long is spoken of, who does not move any more is given up. One task for all."""

from __future__ import annotations

import structlog

from everturn.decide import progress_words
from everturn.decide.patience import Moment, Notice, due
from everturn.errors import StoreError
from everturn.gateway.parts import Parts
from everturn.gateway.running import Runner
from everturn.gateway.slots import Running, Slots
from everturn.gateway.telling import tell
from everturn.store.operations.progress import message_waits

log = structlog.get_logger()
LOOK_S = 5.0


class Watching:
    """Looks at the turns of this process now and then, by the monotonic clock."""

    def __init__(self, parts: Parts, slots: Slots, runner: Runner) -> None:
        self._parts = parts
        self._slots = slots
        self._runner = runner

    async def run(self) -> None:
        """Look for ever."""
        while True:
            await self._parts.clock.sleep(LOOK_S)
            for running in list(self._slots.running.values()):
                try:
                    await self.look(running)
                except StoreError as error:
                    log.warning("turn not looked at", key=running.begun.key, error=str(error))

    async def look(self, running: Running) -> None:
        """Say or do the one thing that is due for a turn."""
        attempt, now, patience = running.attempt, self._parts.clock.monotonic(), self._parts.settings.patience
        idle_s, running_s = now - attempt.active_at, now - attempt.began
        behind = attempt.somebody_waits() and await self._parts.store.read(message_waits, attempt.begun.key)
        notice, attempt.told = due(patience, Moment(running_s=running_s, idle_s=idle_s, behind=behind), attempt.told)
        if notice is Notice.GIVE_UP:
            await self._give_up(running, idle_s)
        elif notice is Notice.STALL:
            await tell(attempt, progress_words.stalled(idle_s, attempt.tool), notice)
        elif notice is Notice.WARN:
            left_s = patience.inactive_s - idle_s if patience.inactive_s > 0 else 0.0
            await tell(attempt, progress_words.inactive_soon(idle_s, left_s), notice)
        elif notice is Notice.WORKING:
            await tell(attempt, progress_words.still_working(running_s, attempt.tool), notice)

    async def _give_up(self, running: Running, idle_s: float) -> None:
        """The turn fails, visibly; then its task is ended, whose late writes are refused."""
        log.warning("turn given up", turn=running.begun.turn, key=running.begun.key, idle_s=idle_s)
        await self._runner.fail(running.attempt, progress_words.gave_up(idle_s))
        running.task.cancel()
