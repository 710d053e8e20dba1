"""One simulated run: instances of the gateway that live and die, the people who talk to them, and what breaks meanwhile."""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections.abc import Iterable
from random import Random
from typing import Any

from everturn import points
from everturn.agent.interface import TurnContext
from everturn.errors import InstanceClosed
from everturn.ids import Machine
from everturn.lifecycle.gateway import Gateway, PlannedStop
from everturn.lifecycle.settings import Settings
from everturn.model import SessionSource
from everturn.outbox.rules.streaming import Display, Pace
from everturn.sessions.rules.keys import session_key
from everturn.store.interface import GRACE_S
from everturn.testing import open_to_all
from tests.sim import commits
from tests.sim.agent import Ledger, SimAgent
from tests.sim.faults import BEYOND_S, Faults
from tests.sim.loop import OUTSIDE, OWNER, Group, SimLoop, Spins, wake
from tests.sim.network import Network
from tests.sim.operators import open_work
from tests.sim.people import People
from tests.sim.plan import Plan
from tests.sim.platforms import KINDS, SimPlatform
from tests.sim.store import EPOCH, SimDatabase, SimStore, Weather

QUIET_S = 1800.0  # within this time after the last fault everything has come to its end
LOOK_S = 7.0
MOST_DEATHS = 60  # of one run: poison is suspended long before
TAKING = ("claim_next", "open_bubble", "begin_next")  # what a process does with what another one had
AT_TAKEOVER = 0.4  # this share of those that stand still wakes up at a takeover, and of those that took over dies then
GONE = 0.1  # this share of processes that end has no successor


class SimClock:
    """The clock of one machine: virtual time, some seconds off, a little too fast or too slow, and it may be set."""

    def __init__(self, loop: SimLoop, skew_s: float, drift: float) -> None:
        self.skew_s = skew_s
        self._drift = drift
        self._loop = loop

    def now(self) -> float:
        """UTC seconds, as this machine believes."""
        return EPOCH + self._loop.at * (1 + self._drift) + self.skew_s

    def monotonic(self) -> float:
        """Seconds that nobody sets."""
        return self._loop.at

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        done: asyncio.Future[None] = self._loop.create_future()
        self._loop.call_later(seconds, wake, done)
        await done


class SimProcess(Group):
    """One process of the gateway, from its start to its end."""

    def __init__(self, world: SimWorld, place: int, number: int) -> None:
        super().__init__(f"{place}.{number}")
        self.world = world
        self.place = place
        self.accepts = False
        self.points_left = self.commits_left = self.freeze_left = math.inf  # until it dies, or stands still
        self.freeze_s = BEYOND_S
        self.wakes_to_takeover = False  # it stands still until another process takes up what it had
        self.was_away = False  # it stood still, or could not reach the database, for longer than the others wait
        self.died: asyncio.Future[None] = world.loop.create_future()
        self.store: SimStore | None = None
        self.gateway: Gateway | None = None
        self.agent = SimAgent(world.ledger, world.wait, self.asks_rightly, self.die_of_poison, world.trace)

    async def live(self) -> None:
        """Start, run, and end as the process of `everturn run` does: after a loop that failed, or as planned."""
        world = self.world
        self.store = SimStore(
            world.database, self, world.loop.time, alone=world.alone, seen=lambda *seen: world.committed(self, *seen)
        )
        machine = Machine("machine", self.place + 1, Random(f"machine {world.plan.seed} {self.name}"))
        self.gateway = Gateway(
            self.store, self.agent, world.platforms, world.clocks[self.place], world.settings, machine=machine
        )
        await self.gateway.start()
        self.accepts = True
        world.trace("ready", self.name, "as", self.gateway.instance.number)
        ended: list[asyncio.Future[Any]] = [self.gateway.failed, self.gateway.stop_requested]
        await asyncio.wait(ended, return_when=asyncio.FIRST_COMPLETED)
        if self.gateway.stop_requested.done():
            await self.end(self.gateway.stop_requested.result())
            return
        error = self.gateway.failed.exception()
        world.trace("failed", self.name, repr(error))
        if isinstance(error, InstanceClosed):
            if not self.was_away:
                world.problem(f"instance {self.name} was taken for dead, and had never been away")
            world.count_cut_off(self.agent.begun)  # others took it for dead some time ago, with whatever ran in it then
        else:
            world.problem(f"a loop of instance {self.name} died: {error!r}")
        self.accepts = False
        await self.gateway.stop(None)
        self.exit("it failed")

    async def end(self, stop: PlannedStop) -> None:
        """Drain and stop, as planned."""
        if self.gateway is None or self.store is None or not self.accepts:
            return
        self.world.note_cut_off(self)
        await self.gateway.drain(stop)
        self.accepts = False
        await self.gateway.stop(stop)
        await self.store.close()
        self.exit("it was stopped")

    def exit(self, why: str) -> None:
        """The process ends here, whatever still runs in it."""
        self.world.crash(self, why, unclean=False)

    def asks_rightly(self, turn: TurnContext) -> bool:
        """Whether this process lives and has the turn: one that lost it and cannot know may still ask its model."""
        return not self.dead and self.owns(turn)

    def owns(self, turn: TurnContext) -> bool:
        """Whether the turn is this process's, by the database."""
        number = self.gateway.instance.number if self.gateway is not None else 0
        rows = self.world.database.rows(f"SELECT instance FROM turn WHERE id={int(turn.id)} AND state='running'")
        return rows == [(number,)]

    def is_closed(self) -> bool:
        """Whether others have taken it for dead."""
        number = self.gateway.instance.number if self.gateway is not None else 0
        return bool(self.world.database.rows(f"SELECT 1 FROM instance WHERE number={number} AND ended_at IS NOT NULL"))

    def die_of_poison(self) -> None:
        """What the turn asked for kills the process."""
        self.world.crash(self, "poison")


class SimWorld:
    """Everything of one run. What the outside saw stays here for the checker."""

    def __init__(self, plan: Plan, image: bytes, *, keep: bool = False) -> None:
        self.plan = plan
        self.lines: list[str] = []
        self.digest = hashlib.blake2b(digest_size=12)
        self.problems: list[str] = []
        self.deaths = self.commits = self.gone = 0
        self.cut_off: dict[str, list[float]] = {}  # by session key, when a process was cut off while its turn ran
        self.alone = plan.instances == 1
        self.loop = SimLoop(Random(f"order {plan.seed}"))
        self.database = SimDatabase(image, Weather(Random(f"store {plan.seed}"), unknown=0.02))
        commits.watch(self.database.db)
        self.network = Network(self.loop, Random(f"network {plan.seed}"), self.trace)
        self.platforms: dict[str, SimPlatform] = {}
        self.ledger: Ledger = []
        self.clocks = [
            SimClock(self.loop, *wrong) for wrong in zip(plan.options.skews, plan.options.drifts, strict=True)
        ]
        self.settings = settings_of(plan)
        self.places: list[SimProcess] = []
        self._keep = keep
        self._chance = Random(f"world {plan.seed}")
        self.people = People(self, self._chance)
        self._started = 0

    # What happens, line by line: the digest of the lines is the same for the same seed.

    def trace(self, *what: object) -> None:
        """Write down what happened."""
        line = f"{self.loop.at:.6f} {' '.join(map(str, what))}\n"
        self.digest.update(line.encode())
        if self._keep:
            self.lines.append(line)

    def problem(self, text: str) -> None:
        """Something that must never happen."""
        self.problems.append(text)
        self.trace("PROBLEM", text)

    async def wait(self, low: float, high: float) -> None:
        """Wait between 10**low and 10**high seconds."""
        done: asyncio.Future[None] = self.loop.create_future()
        self.loop.call_later(10 ** self._chance.uniform(low, high), wake, done)
        await done

    async def until(self, at: float) -> None:
        """Wait until that moment."""
        done: asyncio.Future[None] = self.loop.create_future()
        self.loop.call_at(at, wake, done)
        await done

    def after(self, seconds: float, work: Any, *args: object) -> None:
        """Let something happen that belongs to nobody."""
        self.loop.call_later(seconds, work, *args, context=OUTSIDE)

    # Processes.

    def start(self, place: int) -> None:
        """Start a process."""
        self._started += 1
        process = SimProcess(self, place, self._started)
        self.places[place : place + 1] = [process]
        if self.network.faulty and self._chance.random() < 0.25:
            process.points_left = self._chance.randint(1, 12)  # it dies in its recovery, or soon after
        living = self.loop.create_task(process.live(), context=process.context)
        living.add_done_callback(self._note_end, context=OUTSIDE)

    def _note_end(self, living: asyncio.Task[None]) -> None:
        if not living.cancelled() and (error := living.exception()) is not None:
            self.problem(f"a process failed: {error!r}")

    def crash(self, process: SimProcess, why: str, *, unclean: bool = True) -> None:
        """Nothing of the process ever runs again, and another one starts soon."""
        if process.dead:
            return
        process.dead = True
        self.deaths += unclean
        self.note_cut_off(process)
        if process.store is not None:
            process.store.locks.lose()
        process.died.set_result(None)
        self.trace("CRASH" if unclean else "END", process.name, why)
        if not self.may_go(GONE) and self.deaths < MOST_DEATHS:
            self.after(10 ** self._chance.uniform(-2, 0.7), self.start, process.place)

    def may_go(self, share: float) -> bool:
        """Whether a machine is out of the game from now on, for a share of those that are asked for: the others do its work."""
        goes = self.network.faulty and self.gone < self.plan.instances - 1 and self._chance.random() < share
        self.gone += goes
        return goes

    def note_cut_off(self, process: SimProcess) -> None:
        """The process ends, or others may take it for dead: its turns may be counted as interrupted."""
        agent = process.agent
        # An attempt that has its answer is running until that is committed.
        self.count_cut_off(key for key, turn in agent.begun.items() if key in agent.running or process.owns(turn))

    def count_cut_off(self, keys: Iterable[str]) -> None:
        """A process was cut off while turns of these keys ran."""
        for key in keys:
            self.cut_off.setdefault(key, []).append(self.loop.at)

    def pause(self, process: SimProcess, seconds: float, why: str) -> None:
        """Let a process stand still for a while."""
        self.note_cut_off(process)
        self.trace("PAUSE", process.name, f"{seconds:.3f}", why)
        process.was_away = process.was_away or seconds >= GRACE_S
        process.paused_until = max(process.paused_until, self.loop.at + seconds)
        self.after(seconds, self.loop.go_on, process)

    def reached(self, name: str) -> None:
        """A process has come to a crash point: it may die there, or stand still for longer than the others wait."""
        process = OWNER.get()
        if not isinstance(process, SimProcess) or process.dead:
            return
        process.freeze_left, process.points_left = process.freeze_left - 1, process.points_left - 1
        if process.freeze_left == 0:
            self.pause(process, process.freeze_s, f"at {name}")
        if process.points_left == 0:
            self.crash(process, f"at {name}")

    def committed(self, process: SimProcess, operation: str, outcome: object) -> None:
        """An operation of a process was committed; nobody has told it yet."""
        self.commits += 1
        self.trace("store", process.name, operation, getattr(outcome, "outcome", ""))
        process.commits_left -= 1
        if process.commits_left == 0:
            self.crash(process, f"after the commit of {operation}")
        if operation in TAKING and not isinstance(outcome, Exception) and outcome is not None:
            for other in self.places:
                if other.wakes_to_takeover and other is not process and other.paused_until > self.loop.at:
                    self._wake(other, process)

    def _wake(self, process: SimProcess, taker: SimProcess) -> None:
        """Let a process that stood still go on while another one works with what it may have had; that one may die of it."""
        if not process.is_closed() or self._chance.random() > AT_TAKEOVER:
            return
        soon = 10 ** self._chance.uniform(-2, 0.3)
        self.trace("WAKE", process.name, f"{soon:.3f}")
        process.wakes_to_takeover = False
        process.paused_until = self.loop.at + soon
        self.after(soon, self.loop.go_on, process)
        if self._chance.random() < AT_TAKEOVER:
            self.after(soon + 10 ** self._chance.uniform(-2, 0.3), self.crash, taker, "after a takeover")

    # The run.

    async def scenario(self) -> None:
        """Everything that happens, until all is quiet."""
        for kind in KINDS:
            self.platforms[kind.name] = kind(self.network, self.people.asked)
        self.places = [None] * self.plan.instances  # type: ignore[list-item]  # each is started at once
        for place in range(self.plan.instances):
            self.start(place)
        await asyncio.gather(Faults(self).happen(), *map(self.people.talk, self.plan.homes))
        limit = self.loop.at + QUIET_S
        while open_work(self.database, self.platforms) and self.loop.at < limit:
            await self.until(self.loop.at + LOOK_S)
        if left := open_work(self.database, self.platforms):
            self.problem(f"not quiet after {QUIET_S:.0f} s: {left}")
        self.trace("QUIET", limit - QUIET_S)

    def run(self) -> None:
        """Run all of it."""
        points.install(self.reached)
        try:
            self.loop.run_until_complete(self.loop.create_task(self.scenario(), context=OUTSIDE.copy()))
        except Spins as spins:
            self.problem(str(spins))
        for problem in (*self.loop.errors, *commits.broken(self.database.db)):
            self.problem(problem)


def settings_of(plan: Plan) -> Settings:
    """The settings of the gateway."""
    options = plan.options
    given = Settings(
        burst_s=options.burst_s,
        running_turns=options.running_turns,
        busy=options.busy,
        approval_expires_s=options.approval_expires_s,
        queue_per_session=options.queued,
        expiry_every_s=60.0,
        display=Display(everywhere=Pace(interval_s=options.interval_s, min_chars=1)),
    )
    return open_to_all(given, *(kind.name for kind in KINDS))


def key_of(platform: str, chat: str) -> str:
    """The session key of a chat."""
    return session_key(SessionSource(platform=platform, chat_id=chat, user_id=f"person-{chat}"))
