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
from everturn.store.engines import SCHEMA, OnDeath, end_process, load
from everturn.store.interface import GRACE_S, Op, P, Rows, sql
from everturn.store.postgres_server import PostgresServer, is_conflict, is_damage, is_fault
from everturn.telemetry.meters import StoreMeters

if TYPE_CHECKING:
    from everturn.store.postgres_server import Connection

T = TypeVar("T")
Call = tuple[Callable[..., Op[Any]], tuple[Any, ...], dict[str, Any], "asyncio.Future[Any]", bool]

BEGIN = "BEGIN"
BEGIN_READING = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"  # one view for all its statements
INSTANCE_LOCK = 0x45564552  # the class of the advisory locks of running instances
LARGEST_INSTANCE = 2**31 - 1
FIRST_DELAY_S = 0.01
LONGEST_DELAY_S = 1.0
PING_S = 5.0
GROW_AFTER_S = 0.02  # about what a new connection takes
KEPT_TEXTS = 4096

log = structlog.get_logger()


class ConnectionFault(Exception):
    """The transaction failed or its outcome is unknown: run it again."""


class OperationError(Exception):
    """Wraps an error that the operation itself raised, so that it is never taken for a fault."""

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
        """Use `open`: it migrates the schema first."""
        self.commits = 0
        self.operations = 0
        self._meters = StoreMeters()
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._create_future = self._loop.create_future
        self._calls: deque[Call] = deque()
        self._idle: list[asyncio.Future[None]] = []
        self._links = [PostgresLink(server, first), *(PostgresLink(server) for _ in range(connections - 1))]
        self._workers: list[asyncio.Task[None]] = []
        self._growing: asyncio.TimerHandle | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._faults = Faults(server)
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
        """Migrate the schema; further connections are opened when they are needed."""
        migrations = load(schema / "postgres")
        server = PostgresServer.at(url, command_timeout_s, migrations)
        first = await server.prepare(migrations)
        return cls(server, first, connections, on_death, close_within_s, grace_s)

    def run(self, operation: Callable[P, Op[T]], *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[T]:
        """Run the operation and commit it; the future resolves after the commit is durable."""
        future: asyncio.Future[T] = self._create_future()
        self._accept((operation, args, kwargs, future, False))
        return future

    def read(self, operation: Callable[P, Op[T]], *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[T]:
        """Run in a read-only transaction that sees one state of the database."""
        future: asyncio.Future[T] = self._create_future()
        self._accept((operation, args, kwargs, future, True))
        return future

    async def lock_instance(self, instance: int) -> None:
        """Hold an advisory lock on a connection of its own: the server frees it when this process dies."""
        if not 0 < instance <= LARGEST_INSTANCE:
            raise ValueError(f"the server's locks have no number for instance {instance}")
        if self._keeper is not None:
            self._keeper.cancel()
        held = asyncio.Event()
        self._keeper = self._start(self._keep(instance, held))
        await held.wait()

    async def alive(self) -> set[int]:
        """Return the instances that hold such a lock in this database now."""
        return await self.read(find_alive)

    async def now(self) -> float:
        """Return the server's clock."""
        return await self.read(find_time)

    async def locks_settled(self) -> None:
        """Wait until the server has run for the grace: it freed all locks when it stopped, and instances lock again."""
        while True:
            left_s = self._grace_s - await self.read(find_uptime)
            await asyncio.sleep(min(max(0.0, left_s), self._grace_s))
            if left_s <= 0 or left_s > self._grace_s:  # it had run for so long before, or its clock was set back
                return

    def trouble(self) -> str | None:
        """Return what keeps the store from committing or reading now, or None."""
        return next(iter(self._faults.values()), None)

    def meters(self) -> StoreMeters:
        """Return how long commits and reads took: every operation is a transaction of its own."""
        return replace(self._meters, waiting=len(self._calls))

    async def close(self) -> None:
        """Finish the accepted operations, unless there is no progress any more; then close the connections."""
        self._accepting = False
        while self._calls or self._busy:
            self._finished.clear()
            within_s = min(self._close_within_s, 2 * LONGEST_DELAY_S) if self._faults else self._close_within_s
            try:
                await asyncio.wait_for(self._finished.wait(), within_s)
            except TimeoutError:
                break
        if self._growing is not None:
            self._growing.cancel()
        tasks = [*self._workers, *([self._keeper] if self._keeper else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for call in self._calls:
            reject(call[3], self._closed_error())
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
        if not self._workers:
            self._grow()
        elif self._growing is None and len(self._workers) < len(self._links):
            self._growing = self._loop.call_later(GROW_AFTER_S, self._grow)

    def _grow(self) -> None:
        """Use one more connection while calls wait. Making one takes longer than a short wait for one that is busy."""
        self._growing = None
        if not self._calls or len(self._workers) == len(self._links):
            return
        self._workers.append(self._start(self._serve(self._links[len(self._workers)])))
        self._growing = self._loop.call_later(GROW_AFTER_S, self._grow)

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        task.add_done_callback(self._report_death)
        return task

    def _report_death(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_death(error)

    async def _serve(self, link: PostgresLink) -> None:
        """Run the queued calls on one connection, one after the other."""
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
                reject(call[3], self._closed_error())
                raise
            finally:
                self._busy -= 1
                self._finished.set()

    async def _settle(self, link: PostgresLink, call: Call) -> None:
        """Run the call until it has an outcome. A cancelled caller gets none; its operation stays committed."""
        patience = GrowingPause()
        while True:
            began = time.perf_counter()
            try:
                result = await link.transact(call)
            except ConnectionFault as fault:
                self._faults.note(link, fault.__cause__)
                await patience.wait()
            except Exception as error:  # noqa: BLE001  the caller's
                reject(call[3], error)
                break
            else:
                self._committed(call, result, time.perf_counter() - began)
                break
        if self._faults:
            self._faults.pop(link, None)  # whatever the outcome, the server answered

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
        patience = GrowingPause()
        while True:
            try:
                async with InstanceLock(self._server, instance) as lock:
                    held.set()
                    self._faults.pop("hold", None)
                    patience = GrowingPause()
                    await lock.lost()
            except Exception as error:  # noqa: BLE001  whatever it is, the instance must be locked again
                self._faults.note("hold", error)
            await patience.wait()

    def _closed_error(self) -> StoreUnavailable:
        return StoreUnavailable(f"closed before it could be written: {self.trouble() or 'it took too long'}")


class Faults(dict[object, str]):
    """The faults of connections now: a sentence for each connection that has one."""

    def __init__(self, server: PostgresServer) -> None:
        super().__init__()
        self._server = server

    def note(self, part: object, error: BaseException | None) -> None:
        """Remember a fault until the part works again, and log it the first time. A conflict is none."""
        if not isinstance(error, Exception) or is_conflict(error):
            return
        text = self._server.text(error)
        if part not in self:
            log.warning("store.trouble", what=text)
        self[part] = text


class PostgresLink:
    """One connection to PostgreSQL, reopened after a fault."""

    def __init__(self, server: PostgresServer, connection: Connection | None = None) -> None:
        self._server = server
        self._connection = connection

    async def transact(self, call: Call) -> Any:
        """Run one operation and commit. Raises ConnectionFault when it must be run again, else the operation's error."""
        operation, args, kwargs, _, reading = call
        try:
            if self._connection is None:
                self._connection = await self._server.connect()
            connection = self._connection
            await connection.execute(BEGIN_READING if reading else BEGIN)
            result = await drive(operation(*args, **kwargs), connection)
            await connection.execute("COMMIT")
        except OperationError as own:
            await self._roll_back()
            raise own.error from None
        except Exception as error:
            if self._is_fault(error, reading=reading):
                await self._leave(error)
                raise ConnectionFault from error
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
        return is_fault(error) or self._server.is_schema_fault(error)

    async def _leave(self, error: Exception) -> None:
        """Roll back after a conflict; drop the connection after anything else, as its state is unknown."""
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


class InstanceLock:
    """The advisory lock of a running instance, held for as long as its connection is open."""

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
        """Wait until the connection is lost; ping it now and then, as a dead network reports nothing."""
        while not self._lost.is_set():
            try:
                await asyncio.wait_for(self._lost.wait(), PING_S)
            except TimeoutError:
                await self._connection.execute("SELECT 1")


class GrowingPause:
    """A delay that doubles up to a second, with jitter."""

    def __init__(self) -> None:
        self._delay_s = FIRST_DELAY_S

    async def wait(self) -> None:
        await asyncio.sleep(self._delay_s * random.uniform(0.5, 1.0))  # noqa: S311  no secret
        self._delay_s = min(self._delay_s * 2, LONGEST_DELAY_S)


class PostgresTexts(dict[str, str]):
    """Translates the marks of a statement into PostgreSQL's row locks; each text once."""

    def __missing__(self, text: str) -> str:
        if len(self) >= KEPT_TEXTS:
            self.clear()
        # No statement skips locked rows yet: several processes that claim work from one PostgreSQL at once will.
        native = text.replace("/*lock*/", " FOR UPDATE").replace("/*skip*/", " FOR UPDATE SKIP LOCKED")
        native = native.replace("/*did*/", " RETURNING 1")
        self[text] = native
        return native


texts = PostgresTexts()


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
            raise OperationError(error) from error
        rows = [tuple(record) for record in await connection.fetch(texts[text], *args)]


def reject(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
