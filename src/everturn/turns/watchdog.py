"""Watch running turns in one task: send notices about slow ones, fail inactive ones."""

from __future__ import annotations

import structlog

from everturn.errors import StoreError
from everturn.lifecycle.parts import Parts
from everturn.turns.progress import notify
from everturn.turns.rows.progress import message_waits
from everturn.turns.rules import progress_texts
from everturn.turns.rules.patience import Moment, Notice, due
from everturn.turns.runner import Runner
from everturn.turns.slots import RunningTurn, Slots

log = structlog.get_logger()
LOOK_S = 5.0


class Watchdog:
    """Checks the turns of this process every few seconds, by the monotonic clock."""

    def __init__(self, parts: Parts, slots: Slots, runner: Runner) -> None:
        self._parts = parts
        self._slots = slots
        self._runner = runner

    async def run(self) -> None:
        """Check the running turns, in a loop without end."""
        while True:
            await self._parts.clock.sleep(LOOK_S)
            for running in list(self._slots.running.values()):
                try:
                    await self.look(running)
                except StoreError as error:
                    log.warning("turn not checked", session_key=running.begun.key, error=str(error))

    async def look(self, running: RunningTurn) -> None:
        """Send the notice that is due for a turn, or fail the turn when it is inactive."""
        attempt, now, patience = running.attempt, self._parts.clock.monotonic(), self._parts.settings.patience
        idle_s, running_s = now - attempt.active_at, now - attempt.began
        behind = attempt.has_waiting() and await self._parts.store.read(message_waits, attempt.begun.key)
        notice, attempt.notices = due(
            patience, Moment(running_s=running_s, idle_s=idle_s, behind=behind), attempt.notices
        )
        if notice is Notice.INACTIVE:
            await self._fail_inactive(running, idle_s)
        elif notice is Notice.STALL:
            await notify(attempt, progress_texts.stalled(idle_s, attempt.tool), notice)
        elif notice is Notice.WARN:
            left_s = patience.inactive_s - idle_s if patience.inactive_s > 0 else 0.0
            await notify(attempt, progress_texts.inactive_soon(idle_s, left_s), notice)
        elif notice is Notice.WORKING:
            await notify(attempt, progress_texts.still_working(running_s, attempt.tool), notice)

    async def _fail_inactive(self, running: RunningTurn, idle_s: float) -> None:
        """Fail the turn with a notice, then cancel its task, whose late writes are refused."""
        log.warning("turn inactive", turn_id=running.begun.turn, session_key=running.begun.key, idle_s=idle_s)
        await self._runner.fail(running.attempt, progress_texts.inactive(idle_s))
        running.task.cancel()
