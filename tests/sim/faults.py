"""What breaks in a simulated run, as its plan says."""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from everturn.lifecycle.gateway import PlannedStop
from tests.sim.plan import CHATS, FAULTS_S, Fault

if TYPE_CHECKING:
    from tests.sim.world import SimProcess, SimWorld

BEYOND_S = 75.0  # longer than the others wait for an instance that is frozen
ABOUT_S = 60.0, 90.0  # about when others take over what it had, or soon after
LONGEST_S = 120.0
AT_WORST = 0.5  # this share of freezes in long runs ends while another process takes over
FOR_EVER = 0.3  # this share of freezes never ends
DAY_S = 86_400.0
MOMENTS = 12  # so many crash points, or commits, may pass before a process dies there


class Faults:
    """Breaks things until the time of the plan is over, and nothing afterwards."""

    def __init__(self, world: SimWorld) -> None:
        self._world = world
        self._loop = world.loop
        self._weather = world.database.weather
        self._chance = Random(f"faults {world.plan.seed}")
        self._breaks: dict[str, Callable[[Fault, SimProcess], None]] = {
            "crash": self._crash,
            "point": self._point,
            "commit": self._commit,
            "freeze": self._freeze,
            "drain": self._drain,
            "pause": self._pause,
            "slow": self._slow,
            "bad": self._bad,
            "late": self._late,
            "disk": self._disk,
            "jump": self._jump,
            "partition": self._partition,
            "revoke": self._revoke,
            "restart database": self._restart_database,
        }

    async def happen(self) -> None:
        """Let the faults of the plan happen, then let nothing more break."""
        world = self._world
        for fault in world.plan.faults:
            await world.until(fault.at)
            world.trace("FAULT", fault)
            self._breaks[fault.kind](fault, world.places[fault.place])
        await world.until(world.plan.faults_s + 2)
        world.network.faulty = False
        self._weather.unknown = 0.0
        for process in world.places:
            process.points_left = process.commits_left = process.freeze_left = math.inf

    # A process.

    def _crash(self, _fault: Fault, process: SimProcess) -> None:
        self._world.crash(process, "at a moment")

    def _point(self, fault: Fault, process: SimProcess) -> None:
        process.points_left = 1 + int(fault.size * MOMENTS)

    def _commit(self, fault: Fault, process: SimProcess) -> None:
        process.commits_left = 1 + int(fault.size * MOMENTS)

    def _freeze(self, fault: Fault, process: SimProcess) -> None:
        """Let a process stand still at a crash point; now and then for ever, while others are left."""
        process.freeze_left = 1 + int(fault.size * MOMENTS)
        if self._world.plan.faults_s > FAULTS_S:
            process.wakes_to_takeover = self._chance.random() < AT_WORST
            process.freeze_s = self._chance.uniform(*ABOUT_S) if not process.wakes_to_takeover else LONGEST_S
        if self._world.may_go(FOR_EVER):
            process.freeze_s = DAY_S

    def _pause(self, fault: Fault, process: SimProcess) -> None:
        self._world.pause(process, 10 ** (fault.size * 2.2 - 0.2), "at a moment")

    def _drain(self, fault: Fault, process: SimProcess) -> None:
        stop = PlannedStop("restart" if fault.size < 0.5 else "stop", "test")
        self._loop.create_task(process.end(stop), context=process.context)

    def _jump(self, fault: Fault, process: SimProcess) -> None:
        self._world.clocks[process.place].skew_s += (fault.size - 0.5) * 600

    # The network and the platforms.

    def _bad(self, fault: Fault, _process: SimProcess) -> None:
        self._world.network.bad_until = self._loop.at + 10 * fault.size

    def _late(self, fault: Fault, _process: SimProcess) -> None:
        self._world.network.late_until = self._loop.at + 10 * fault.size

    def _revoke(self, fault: Fault, _process: SimProcess) -> None:
        self._loop.create_task(self._world.people.revoke(f"c{int(fault.size * CHATS)}"))

    # The database.

    def _slow(self, fault: Fault, _process: SimProcess) -> None:
        self._weather.slow_until = self._loop.at + 5 * fault.size

    def _disk(self, fault: Fault, _process: SimProcess) -> None:
        self._weather.full_until = self._loop.at + 10 * fault.size

    def _partition(self, fault: Fault, process: SimProcess) -> None:
        """The process cannot be reached from the database; some time later the server notices that, and frees its lock."""
        self._world.note_cut_off(process)
        process.was_away = True
        self._weather.cut_off[process] = self._loop.at + 60 * fault.size
        self._world.after(30 * self._chance.random(), self._lose_lock, process)

    def _lose_lock(self, process: SimProcess) -> None:
        until = self._weather.cut_off[process]
        if process.store is not None and until > self._loop.at:
            process.store.locks.lose()
            self._world.after(until - self._loop.at + self._chance.uniform(0, 2), process.store.locks.take_again)

    def _restart_database(self, fault: Fault, _process: SimProcess) -> None:
        database, until = self._world.database, self._loop.at + 5 * fault.size
        self._weather.down_until = database.started_at = until
        database.locks.clear()
        for process in self._world.places:
            if process.store is not None:
                self._world.after(until - self._loop.at + self._chance.uniform(0, 3), process.store.locks.take_again)
