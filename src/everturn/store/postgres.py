"""The PostgreSQL engine: each operation in a transaction of its own, on one of a few connections.

A fault of the server or the network is waited out; a commit whose outcome is unknown is run again.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

import asyncpg
import structlog

from everturn.errors import StoreUnavailable
from everturn.meters import StoreMeters
from everturn.store.death import OnDeath, end_process
from everturn.store.interface import GRACE_S, Op, P, Rows, sql
from everturn.store.migrations import SCHEMA, load
from everturn.store.postgres_server import PostgresServer, is_conflict, is_damage, is_fault

if TYPE_CHECKING:
    from everturn.store.postgres_server import Connection

T = TypeVar("T")
Call = tuple[Callable[..., Op[Any]], tuple[Any, ...], dict[str, Any], "asyncio.Future[Any]", bool]

BEGIN = "BEGIN"
BEGIN_READING = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"  # one view for all its statements
INSTANCE_LOCK = 0x45564552  # the class of the advisory locks that say who is alive
LARGEST_INSTANCE = 2**31 - 1
FIRST_DELAY_S = 0.01
LONGEST_DELAY_S = 1.0
PING_S = 5.0
KEPT_TEXTS = 4096

log = structlog.get_logger()


class Fault(Exception):
    """It did not happen, or we cannot know: run it again."""


class OwnError(Exception):
    """Carries what the operation itself raised, so that it is never taken for a fault."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error


class PostgresStore:
    """A database that several instances may share."""

    def __init__(
        self,
        server: PostgresServer,
        first: Connection,
        connections: int = 10,
        on_death: OnDeath = end_process,
        close_within_s: float = 5.0,
        grace_s: float = GRACE_S,
    ) -> None:
        """Use `open`: it brings the schema up to date first."""
        self.commits = 0
        self.operations = 0
        self._meters = StoreMeters()
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._create_future = self._loop.create_future
        self._calls: deque[Call] = deque()
        self._idle: list[asyncio.Future[None]] = []
        self._links = [Link(server, first), *(Link(server) for _ in range(connections - 1))]
        self._workers: list[asyncio.Task[None]] = []
        self._keeper: asyncio.Task[None] | None = None
        self._faults: dict[object, str] = {}
        self._busy = 0
        self._finished = asyncio.Event()
        self._accepting = True
        self._on_death = on_death
        self._close_within_s = close_within_s
        self._grace_s = grace_s

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        schema: Path = SCHEMA,
        connections: int = 10,
        command_timeout_s: float = 30.0,
        on_death: OnDeath = end_process,
        close_within_s: float = 5.0,
        grace_s: float = GRACE_S,
    ) -> Self:
        """Bring the schema up to date; further connections are made when they are needed."""
        migrations = load(schema / "postgres")
        server = PostgresServer.at(url, command_timeout_s, migrations)
        first = await server.prepare(migrations)
        return cls(server, first, connections, on_death, close_within_s, grace_s)

    def run(self, operation: Callable[P, Op[T]], *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[T]:
        """Run and commit; returns after the commit is durable."""
        future: asyncio.Future[T] = self._create_future()
        self._accept((operation, args, kwargs, future, False))
        return future

    def read(self, operation: Callable[P, Op[T]], *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[T]:
        """Run in a read-only transaction that sees one state of the database."""
        future: asyncio.Future[T] = self._create_future()
        self._accept((operation, args, kwargs, future, True))
        return future

    async def hold(self, instance: int) -> None:
        """Keep an advisory lock on a connection of its own: the server frees it when we die."""
        if not 0 < instance <= LARGEST_INSTANCE:
            raise ValueError(f"the server's locks have no number for instance {instance}")
        if self._keeper is not None:
            self._keeper.cancel()
        held = asyncio.Event()
        self._keeper = self._start(self._keep(instance, held))
        await held.wait()

    async def alive(self) -> set[int]:
        """Who holds such a lock in this database now."""
        return await self.read(find_alive)

    async def now(self) -> float:
        """The server's clock."""
        return await self.read(find_time)

    async def settled(self) -> None:
        """Wait until the server has run for the grace: it freed all locks when it stopped, and the living take theirs again."""
        left_s = self._grace_s - await self.read(find_uptime)
        await asyncio.sleep(min(max(0.0, left_s), self._grace_s))  # its clock may have been set back

    def trouble(self) -> str | None:
        """What keeps us from committing or reading now."""
        return next(iter(self._faults.values()), None)

    def meters(self) -> StoreMeters:
        """How long commits and reads took: every operation is a transaction of its own."""
        return replace(self._meters, waiting=len(self._calls))

    async def close(self) -> None:
        """Finish what was accepted, unless nothing moves any more; then let go of the connections."""
        self._accepting = False
        while self._calls or self._busy:
            self._finished.clear()
            within_s = min(self._close_within_s, 2 * LONGEST_DELAY_S) if self._faults else self._close_within_s
            try:
                await asyncio.wait_for(self._finished.wait(), within_s)
            except TimeoutError:
                break
        tasks = [*self._workers, *([self._keeper] if self._keeper else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for call in self._calls:
            reject(call[3], self._gave_up())
        await asyncio.gather(*(link.close() for link in self._links))

    def _accept(self, call: Call) -> None:
        if not self._accepting:
            call[3].set_exception(StoreUnavailable("the store is closed"))
            return
        self._calls.append(call)
        while self._idle:
            waiting = self._idle.pop()
            if not waiting.done():
                waiting.set_result(None)
                return
        if len(self._workers) < len(self._links):
            self._workers.append(self._start(self._serve(self._links[len(self._workers)])))

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        task.add_done_callback(self._report_death)
        return task

    def _report_death(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_death(error)

    async def _serve(self, link: Link) -> None:
        """A connection's life: one call after the other."""
        while True:
            while not self._calls:
                waiting = self._create_future()
                self._idle.append(waiting)
                await waiting
            call = self._calls.popleft()
            self._busy += 1
            try:
                await self._settle(link, call)
            except asyncio.CancelledError:
                reject(call[3], self._gave_up())
                raise
            finally:
                self._busy -= 1
                self._finished.set()

    async def _settle(self, link: Link, call: Call) -> None:
        """Run the call until it has an outcome. A cancelled caller is not told, its operation stands."""
        patience = Patience()
        while True:
            began = time.perf_counter()
            try:
                result = await link.transact(call)
            except Fault as fault:
                self._note(link, fault.__cause__)
                await patience.wait()
            except Exception as error:  # noqa: BLE001  the caller's
                reject(call[3], error)
                break
            else:
                self._committed(call, result, time.perf_counter() - began)
                break
        if self._faults:
            self._faults.pop(link, None)  # whatever came of it, the server answered

    def _committed(self, call: Call, result: object, took: float) -> None:
        self.commits += 1
        self.operations += 1
        if call[4]:
            self._meters.read.add(took)
        else:
            self._meters.commit.add(took)
            self._meters.group.add(1)
        if not call[3].done():
            call[3].set_result(result)

    async def _keep(self, instance: int, held: asyncio.Event) -> None:
        patience = Patience()
        while True:
            try:
                async with Lock(self._server, instance) as lock:
                    held.set()
                    self._faults.pop("hold", None)
                    patience = Patience()
                    await lock.lost()
            except Exception as error:  # noqa: BLE001  whatever it is, we must be seen as alive again
                self._note("hold", error)
            await patience.wait()

    def _note(self, who: object, error: BaseException | None) -> None:
        if not isinstance(error, Exception) or is_conflict(error):
            return
        words = self._server.words(error)
        if who not in self._faults:
            log.warning("store.trouble", what=words)
        self._faults[who] = words

    def _gave_up(self) -> StoreUnavailable:
        return StoreUnavailable(f"closed before it could be written: {self.trouble() or 'it took too long'}")


class Link:
    """One connection, made again after a fault."""

    def __init__(self, server: PostgresServer, connection: Connection | None = None) -> None:
        self._server = server
        self._connection = connection

    async def transact(self, call: Call) -> Any:
        """Run one operation and commit. Raises Fault when it must be run again, else the operation's error."""
        operation, args, kwargs, _, reading = call
        try:
            if self._connection is None:
                self._connection = await self._server.connect()
            connection = self._connection
            await connection.execute(BEGIN_READING if reading else BEGIN)
            result = await drive(operation(*args, **kwargs), connection)
            await connection.execute("COMMIT")
        except OwnError as own:
            await self._roll_back()
            raise own.error from None
        except Exception as error:
            if self._is_fault(error, reading=reading):
                await self._leave(error)
                raise Fault from error
            await self._roll_back()
            if is_damage(error):
                raise self._server.explain(error) from error
            raise
        return result

    async def close(self) -> None:
        if self._connection is not None:
            try:
                await self._connection.close(timeout=1.0)
            except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
                self._connection.terminate()
            self._connection = None

    def _is_fault(self, error: Exception, *, reading: bool) -> bool:
        if self._connection is None or self._connection.is_closed():
            return True
        if reading and isinstance(error, asyncpg.ReadOnlySQLTransactionError):
            return False  # it tried to write
        return is_fault(error) or self._server.is_upset(error)

    async def _leave(self, error: Exception) -> None:
        """After a conflict the connection is good; after anything else nobody knows."""
        if is_conflict(error):
            await self._roll_back()
        elif self._connection is not None:
            self._connection.terminate()
            self._connection = None

    async def _roll_back(self) -> None:
        if self._connection is None:
            return
        try:
            await self._connection.execute("ROLLBACK")
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
            self._connection.terminate()
            self._connection = None


class Lock:
    """The advisory lock that says an instance is alive, for as long as its connection is."""

    def __init__(self, server: PostgresServer, instance: int) -> None:
        self._server = server
        self._instance = instance
        self._lost = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._connection = await self._server.connect()
        self._connection.add_termination_listener(lambda _: self._lost.set())
        try:
            await self._connection.execute("SELECT pg_advisory_lock($1, $2)", INSTANCE_LOCK, self._instance)
        except BaseException:
            self._connection.terminate()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self._connection.terminate()

    async def lost(self) -> None:
        """Return when the connection is gone; ask now and then, a dead network tells nobody."""
        while not self._lost.is_set():
            try:
                await asyncio.wait_for(self._lost.wait(), PING_S)
            except TimeoutError:
                await self._connection.execute("SELECT 1")


class Patience:
    """A delay that grows up to a second, a little different for everybody."""

    def __init__(self) -> None:
        self._delay_s = FIRST_DELAY_S

    async def wait(self) -> None:
        await asyncio.sleep(self._delay_s * random.uniform(0.5, 1.0))  # noqa: S311  no secret
        self._delay_s = min(self._delay_s * 2, LONGEST_DELAY_S)


class Texts(dict[str, str]):
    """Our marks as PostgreSQL's row locks; each text is translated once."""

    def __missing__(self, text: str) -> str:
        if len(self) >= KEPT_TEXTS:
            self.clear()
        native = text.replace("/*lock*/", " FOR UPDATE").replace("/*skip*/", " FOR UPDATE SKIP LOCKED")
        native = native.replace("/*did*/", " RETURNING 1")
        self[text] = native
        return native


texts = Texts()


def find_alive() -> Op[set[int]]:
    rows = yield sql(
        "SELECT objid::bigint FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 2 AND classid = $1"
        " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
        INSTANCE_LOCK,
    )
    return {number for (number,) in rows}


def find_time() -> Op[float]:
    rows = yield sql("SELECT extract(epoch FROM clock_timestamp())::float8")
    return float(rows[0][0])


def find_uptime() -> Op[float]:
    rows = yield sql("SELECT extract(epoch FROM clock_timestamp() - pg_postmaster_start_time())::float8")
    return float(rows[0][0])


async def drive(operation: Op[Any], connection: Connection) -> Any:
    """Run an operation's statements until it returns."""
    rows: Rows | None = None
    while True:
        try:
            text, args = operation.send(rows)  # type: ignore[arg-type]  # a generator starts with None
        except StopIteration as end:
            return end.value
        except Exception as error:
            raise OwnError(error) from error
        rows = [tuple(record) for record in await connection.fetch(texts[text], *args)]


def reject(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
