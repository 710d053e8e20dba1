"""The third driver of the store's operations: real SQL on real SQLite in memory, in the loop's own thread, with drawn latencies.

One instance has its database to itself, as on SQLite: operations are committed in groups and in order, and what was not committed
dies with the process. Several share one, as on PostgreSQL: each operation goes its own way, may be aborted and run again, and one
that was on its way when its process died may be committed afterwards.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, Protocol, TypeVar, cast

import apsw

from everturn.errors import StoreUnavailable
from everturn.store.interface import GRACE_S, Op, P, sql
from everturn.store.sqlite_groups import Call, Outcome, SQLiteGroups, SQLiteLink, drive, settle
from everturn.telemetry.meters import StoreMeters
from tests.sim.loop import OUTSIDE, wake

T = TypeVar("T")
EPOCH = 1_800_000_000.0  # when every simulation begins
OUTBOX = "everturn.outbox."
AGAIN_S = 0.05
FAULTS_OF_DISK = (apsw.FullError, apsw.IOError)
DOWN = "the database cannot be reached"
FULL = "the disk is full"
NOT_SAID, UNKNOWN = "failed", "committed, and said to have failed"


class User(Protocol):
    """The process that uses the store."""

    dead: bool
    paused_until: float


@dataclass
class Weather:
    """What is wrong with the database now, by the time until which it is."""

    chance: Random
    unknown: float = 0.0  # the share of commits whose outcome stays unknown
    slow_until: float = 0.0
    full_until: float = 0.0  # the disk
    down_until: float = 0.0  # the server restarts
    cut_off: dict[object, float] = field(default_factory=dict)  # by the user that cannot reach it

    def latency_s(self, now: float) -> float:
        """How long an operation is on its way."""
        if self.slow_until > now and self.chance.random() < 0.3:
            return self.chance.uniform(0.5, 8.0)
        return float(10 ** self.chance.uniform(-4, -1.8))


class SimDatabase:
    """One database that all instances share."""

    def __init__(self, image: bytes, weather: Weather) -> None:
        self.weather = weather
        self.db = apsw.Connection(":memory:")
        self.db.deserialize("main", image)
        self.locks: dict[int, User] = {}
        self.started_at = 0.0
        self.writer = 0  # the number of the instance whose outbox writes now; 0: somebody else writes
        self.db.create_scalar_function("writer", self._writer, 0)
        self.execute = self.db.cursor().execute

    def _writer(self, *_: object) -> int:
        return self.writer

    def transact(self, call: Call, *, reads: bool = False) -> Outcome:
        """Run one operation in a transaction of its own."""
        operation, args, kwargs, future = call
        if reads:
            self.db.pragma("query_only", 1)
        self.execute("BEGIN")
        try:
            result = drive(operation(*args, **kwargs), self.execute)
            self.execute("COMMIT")
        except Exception as error:  # noqa: BLE001  the caller's
            self.roll_back()
            return future, None, error
        finally:
            if reads:
                self.db.pragma("query_only", 0)
        return future, result, None

    def roll_back(self) -> None:
        """Roll back the open transaction, if there is one."""
        if self.db.in_transaction:
            self.execute("ROLLBACK")

    def rows(self, text: str) -> list[tuple[Any, ...]]:
        """Look at rows from outside of all transactions."""
        return self.execute(text).fetchall()


class FaultyConnection:
    """The shared connection, as the groups of one process see it: its commits may fail."""

    def __init__(self, db: apsw.Connection, fault: Callable[[], str]) -> None:
        self._db = db
        self._fault = fault
        self.total_changes = db.total_changes

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        return self._db.in_transaction

    def cursor(self) -> FaultyConnection:
        """Where statements are executed."""
        return self

    def execute(self, text: str, args: tuple[object, ...] = ()) -> apsw.Cursor:
        """Execute a statement. A commit that fails may have happened."""
        fault = self._fault() if text == "COMMIT" else ""
        if fault == FULL:
            raise apsw.FullError("database or disk is full")
        if fault == NOT_SAID:
            raise apsw.IOError("disk I/O error")
        cursor = self._db.execute(text, args)
        if fault == UNKNOWN:
            raise apsw.IOError("disk I/O error")
        return cursor


async def _waited(seconds: float) -> None:
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()
    loop.call_later(seconds, wake, done)
    await done


def _said(what: Callable[[], T]) -> Op[T]:
    """What the database itself knows, as of the moment at which it was asked: the answer may be old when it is heard."""
    yield sql("SELECT 1")
    return what()


class SimLocks:
    """What the server knows of the lock of one process, and tells it of the locks of others."""

    def __init__(self, database: SimDatabase, user: User, now: Callable[[], float], *, alone: bool) -> None:
        self._database = database
        self._user = user
        self._now = now
        self._alone = alone
        self._locked: int | None = None
        self.number = 0  # of the process, from its first lock on

    def take(self, instance: int) -> None:
        """Lock the number of the process."""
        self.number = instance
        if not self._user.dead:
            self._database.locks[instance] = self._user
            self._locked = instance

    def take_again(self) -> None:
        """Take the lock that a restart of the server freed."""
        if self._locked is not None and not self._user.dead:
            self._database.locks[self._locked] = self._user

    def lose(self) -> None:
        """The server has found that the connection is gone."""
        if self._locked is not None and self._database.locks.get(self._locked) is self._user:
            del self._database.locks[self._locked]

    def forget(self) -> None:
        """Free the lock for good."""
        self.lose()
        self._locked = None

    def alive(self) -> set[int]:
        """The locked numbers."""
        locks = self._database.locks.items()
        return {number for number, user in locks if not user.dead and (user is self._user or not self._alone)}

    def grace_left_s(self) -> float:
        """How long a server that was restarted has still to run until everybody had the time to lock again."""
        return 0.0 if self._alone else GRACE_S - (self._now() - self._database.started_at)


class SimStore:
    """The store of one process: what it asks takes its time, and its outcome comes later still."""

    def __init__(
        self,
        database: SimDatabase,
        user: User,
        now: Callable[[], float],
        *,
        alone: bool,
        epoch: float = EPOCH,
        seen: Callable[[str, Any], None] = lambda _operation, _outcome: None,
    ) -> None:
        self.operations = self.commits = 0
        self._database = database
        self._weather = database.weather
        self._user = user
        self._now = now
        self._alone = alone
        self._seen = seen
        self._loop = asyncio.get_running_loop()
        link = SQLiteLink(lambda: cast("apsw.Connection", FaultyConnection(database.db, self._fault_of_commit)))
        self._groups = SQLiteGroups(link)
        self._epoch = epoch
        self._asked: list[Call] = []  # those of one instance alone, in order
        self._open = 0
        self._all_done = asyncio.Event()
        self._accepting = True
        self._trouble: str | None = None
        self.locks = SimLocks(database, user, now, alone=alone)

    def run(self, operation: Callable[P, Op[T]], *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[T]:
        """Run the operation and commit it."""
        call = self._accept(operation, args, kwargs)
        if call[3].done() or self._user.dead:
            return call[3]
        if not self._alone:
            self._later(self._weather.latency_s(self._now()), self._commit, call)
            return call[3]
        self._asked.append(call)
        if len(self._asked) == 1:
            self._later(self._weather.latency_s(self._now()), self._commit_group)
        return call[3]

    def read(self, operation: Callable[P, Op[T]], *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[T]:
        """Run an operation that only selects."""
        call = self._accept(operation, args, kwargs)
        if not call[3].done() and not self._user.dead:
            self._later(self._weather.latency_s(self._now()), self._read, call)
        return call[3]

    async def lock_instance(self, instance: int) -> None:
        """Lock the number, for as long as this process runs and the server does."""
        await self.read(_said, lambda: self.locks.take(instance))

    async def alive(self) -> set[int]:
        """The locked numbers. One instance alone knows that every other one is dead."""
        return await self.read(_said, self.locks.alive)

    async def now(self) -> float:
        """The database's clock, which no machine shares."""
        return await self.read(_said, lambda: self._epoch + self._now())

    async def locks_settled(self) -> None:
        """Wait until a database that was restarted has run for the grace."""
        while (left_s := await self.read(_said, self.locks.grace_left_s)) > 0:
            await _waited(left_s)

    def trouble(self) -> str | None:
        """What keeps the database from committing now."""
        return self._trouble

    def meters(self) -> StoreMeters:
        """Nobody measures virtual time."""
        return StoreMeters()

    async def close(self) -> None:
        """Finish the accepted operations."""
        self._accepting = False
        while self._open:
            self._all_done.clear()
            await self._all_done.wait()
        self.locks.forget()

    def _accept(self, operation: Callable[..., Op[Any]], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        future: asyncio.Future[Any] = self._loop.create_future()
        if not self._accepting:
            future.set_exception(StoreUnavailable("the store is closed"))
        else:
            self._open += 1
        return operation, args, kwargs, future

    def _later(self, seconds: float, work: Callable[..., object], *args: object) -> None:
        """What is on its way belongs to nobody: it arrives, whatever has become of its sender."""
        self._loop.call_later(seconds, work, *args, context=OUTSIDE)

    # What is wrong with the way to the database, or with itself.

    def _kept_away(self) -> float:
        """How long the database cannot be reached from here; 0: it can."""
        weather, now = self._weather, self._now()
        until = max(weather.down_until, weather.cut_off.get(self._user, 0.0))
        self._trouble = DOWN if until > now else None
        return max(0.0, until - now)

    def _fault_of_commit(self) -> str:
        weather = self._weather
        if weather.full_until > self._now():
            return FULL
        if weather.chance.random() >= weather.unknown:
            return ""
        return UNKNOWN if weather.chance.random() < 0.6 else NOT_SAID

    # Several on one database: each operation alone.

    def _commit(self, call: Call, again: bool = False) -> None:  # noqa: FBT001, FBT002  a callback
        weather = self._weather
        if self._user.dead and (again or weather.chance.random() < 0.5):
            return
        if (away_s := self._kept_away()) > 0:
            if not self._user.dead:
                self._later(away_s + AGAIN_S, self._commit, call, True)
            return
        if not again and weather.chance.random() < weather.unknown:
            # Committed or aborted, nobody knows: it is run again.
            if weather.chance.random() < 0.6:
                self._transact(call)
            self._later(weather.latency_s(self._now()) * 3, self._commit, call, True)
            return
        outcome = self._transact(call)
        self.operations, self.commits = self.operations + 1, self.commits + 1
        self._later(weather.latency_s(self._now()) / 4, self._settle, [outcome])
        self._seen(call[0].__name__, outcome[2] or outcome[1])

    def _transact(self, call: Call) -> Outcome:
        """Run an operation. What people do (revoke, stop, write in a mode that interrupts) may be done by any instance; deliveries
        may not.
        """
        self._database.writer = self.locks.number if call[0].__module__.startswith(OUTBOX) else 0
        return self._database.transact(call)

    # One on its own file: groups, in order.

    def _commit_group(self) -> None:
        if self._user.dead:
            return
        if (frozen_s := self._user.paused_until - self._now()) > 0:
            self._later(frozen_s, self._commit_group)  # its writer's thread stands still with it
            return
        calls, self._asked = self._asked, []
        try:
            outcomes = self._groups.run(calls)
        except apsw.Error:
            self._database.roll_back()
            outcomes = self._one_by_one(calls)
        self._trouble = FULL if self._asked else None
        self.operations, self.commits = self._groups.operations, self._groups.commits
        if outcomes:
            self._later(self._weather.latency_s(self._now()) / 4, self._settle, outcomes)
        if self._asked:
            self._later(AGAIN_S, self._commit_group)
        names = {call[3]: call[0].__name__ for call in calls}
        for future, result, error in outcomes:
            self._seen(names[future], error or result)

    def _one_by_one(self, calls: list[Call]) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for call in calls:
            try:
                outcomes.append(self._groups.run_alone(call))
            except FAULTS_OF_DISK:
                self._database.roll_back()
                self._asked.append(call)
            except apsw.Error as error:
                self._database.roll_back()
                outcomes.append((call[3], None, error))
        return outcomes

    def _read(self, call: Call) -> None:
        if (away_s := 0.0 if self._alone else self._kept_away()) > 0:
            if not self._user.dead:
                self._later(away_s + AGAIN_S, self._read, call)
            return
        self._later(self._weather.latency_s(self._now()) / 4, self._settle, [self._database.transact(call, reads=True)])

    def _settle(self, outcomes: list[Outcome]) -> None:
        self._open -= len(outcomes)
        if not self._user.dead:  # nobody hears what comes for the dead
            settle(outcomes)
        if not self._open:
            self._all_done.set()
