"""The threads of the SQLite engine. Operations that are queued when the writer wakes share one transaction and one sync.

A fault of the disk or the system is waited out, with a growing delay; an error of the operation itself is its caller's.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import time

import apsw
import structlog

from everturn.errors import StoreUnavailable
from everturn.store.engines import OnDeath
from everturn.store.sqlite_file import DAMAGED, ENVIRONMENTAL, SQLiteFile
from everturn.store.sqlite_groups import Call, Outcome, SQLiteGroups, SQLiteLink, drive, settle
from everturn.telemetry.meters import INSTANT, Histogram

Calls = queue.SimpleQueue[list[Call] | None]

GROUP = 512  # operations that are handed over at once at most; when so many wait, no more join their transaction
READS = 8  # reads that one reader takes at once
FIRST_DELAY_S = 0.01
LONGEST_DELAY_S = 1.0
FAILURES_IN_A_ROW = 3  # then it is not one operation's page that is bad: wait before the next try
QUIET_S = 1.0  # after so long without work: checkpoint and vacuum
BETWEEN_VACUUMS_S = 0.02
CHECKPOINT_PAGES = 4000  # 16 MiB: pages that change often are copied once
RESTART_PAGES = 8000  # the WAL did not restart by itself: wait until the readers release it
SPARE_PAGES = 1024  # free pages the file may keep
VACUUM_PAGES = 512  # pages given back at once: no operation waits long for it

log = structlog.get_logger()


class RetryQueue:
    """Calls that met a fault, and when to retry them: after a delay that doubles while the fault lasts."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self._delay_s = FIRST_DELAY_S
        self._retry_at = 0.0

    def keep(self, calls: list[Call]) -> None:
        self.calls += calls
        self._retry_at = time.monotonic() + self._delay_s
        self._delay_s = min(self._delay_s * 2, LONGEST_DELAY_S)

    def left_s(self) -> float:
        return max(0.0, self._retry_at - time.monotonic())

    def take(self) -> list[Call]:
        calls, self.calls = self.calls, []
        return calls

    def forget(self) -> None:
        self._delay_s = FIRST_DELAY_S


class SQLiteThread:
    """A thread that runs calls on a connection of its own and passes their outcomes to the event loop."""

    environmental: tuple[type[Exception], ...] = ENVIRONMENTAL
    limit = GROUP

    def __init__(
        self,
        file: SQLiteFile,
        calls: Calls,
        loop: asyncio.AbstractEventLoop,
        on_death: OnDeath,
        close_within_s: float,
        link: SQLiteLink | None = None,
    ) -> None:
        self.calls = calls
        self.taken = 0
        self.file = file
        self.tidy_after_s: float | None = None
        self.link = link or SQLiteLink(self.connect)
        self._loop = loop
        self._on_death = on_death
        self._close_within_s = close_within_s
        self._accepting = True
        self._damage: str | None = None
        self._fault: str | None = None
        self._failing = False  # all calls of the last round met a fault: take no new ones before the delay is over
        self._retries = RetryQueue()
        self._progress_at = 0.0
        self._over = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name=f"everturn-{type(self).__name__}", daemon=True)
        self._thread.start()

    def trouble(self) -> str | None:
        return self._damage or self._fault

    async def ended(self) -> None:
        """Wait until the thread has ended."""
        await self._over.wait()
        self._thread.join()

    def connect(self) -> apsw.Connection:
        raise NotImplementedError

    def attempt(self, call: Call) -> Outcome:
        """Run one call in a transaction of its own."""
        raise NotImplementedError

    def serve(self, calls: list[Call]) -> bool:
        """Run new calls; returns whether any of them passed."""
        return self.one_by_one(calls)

    def tidy(self) -> None:
        """Do maintenance, when no call has come for a while."""

    def on_end(self) -> None:
        """Release what the subclass holds, as the thread ends."""

    def one_by_one(self, calls: list[Call]) -> bool:
        """Run each call alone; those that meet a fault are retried later, the untried ones first. Returns whether any passed."""
        outcomes: list[Outcome] = []
        failed: list[Call] = []
        failures = 0
        for number, call in enumerate(calls, 1):
            outcome = self._alone(call)
            if outcome is not None:
                outcomes.append(outcome)
                failures = 0
                continue
            failed.append(call)
            failures += 1
            if failures == FAILURES_IN_A_ROW:
                failed[:0] = calls[number:]
                break
        if failed:
            self._retries.keep(failed)
        self.clear_fault()
        self.settle_callers(outcomes)
        return bool(outcomes)

    def clear_fault(self) -> None:
        """Forget the fault, unless calls still wait for a retry."""
        if self._fault and not self._retries.calls:
            self._retries.forget()
            self._fault = None

    def settle_callers(self, outcomes: list[Outcome]) -> None:
        """Settle the futures of the callers, all in one hop to the event loop."""
        if outcomes:
            self._loop.call_soon_threadsafe(settle, outcomes)

    def leave_transaction(self, error: Exception) -> None:
        """Roll back the failed transaction; where its outcome is unknown, drop the connection too."""
        if isinstance(error, self.environmental):
            text = self.file.sentence(error)
            if text != self._fault:
                log.warning("store.trouble", what=text)
            self._fault = text
        keeps = apsw.FullError, apsw.BusyError, apsw.LockedError
        if isinstance(error, ENVIRONMENTAL) and not isinstance(error, keeps):
            self.link.drop()
        self.link.roll_back()

    def _alone(self, call: Call) -> Outcome | None:
        try:
            outcome = self.attempt(call)
        except Exception as error:  # noqa: BLE001  a fault is waited out, the rest is the caller's
            self.leave_transaction(error)
            if isinstance(error, self.environmental):
                return None
            outcome = call[3], None, self._error_for_caller(error)
        self._progress_at = time.monotonic()
        return outcome

    def _error_for_caller(self, error: Exception) -> Exception:
        """Return the error for the caller; damage to the file is named as such and stays the store's trouble."""
        if not isinstance(error, DAMAGED):
            return error
        damage = self.file.explain(error)
        damage.__cause__ = error
        self._damage = str(damage)
        return damage

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001  a store without its threads must not look alive
            if not self._loop.is_closed():
                self._on_death(error)
        finally:
            self.on_end()
            self.link.drop()
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
                self._loop.call_soon_threadsafe(self._over.set)

    def _work(self) -> None:
        while self._accepting or self._retries.calls:
            calls = self._take()
            if calls:
                self._failing = not self.serve(calls)
            if self._retries.calls and not self._retries.left_s():
                self._failing = not self.serve(self._retries.take()) and self._failing
            if not self._accepting and time.monotonic() > self._progress_at + self._close_within_s:
                self._give_up()

    def _take(self) -> list[Call]:
        """Take all queued calls, up to the limit; sleep while there are none."""
        taken: list[Call] = []
        if self._retries.calls and (self._failing or not self._accepting):
            time.sleep(self._retries.left_s())
        else:
            patience = self._retries.left_s() if self._retries.calls else self.tidy_after_s
            try:
                self._add(taken, self.calls.get(timeout=patience))
            except queue.Empty:
                if not self._retries.calls:
                    self.tidy()
        try:
            while self._accepting and len(taken) < self.limit and self.calls.qsize():
                self._add(taken, self.calls.get_nowait())
        except queue.Empty:
            pass  # another reader was quicker
        self.taken += len(taken)
        return taken

    def _add(self, taken: list[Call], calls: list[Call] | None) -> None:
        """Add queued calls to those taken; None ends the thread."""
        if calls is not None:
            taken += calls
            return
        self._accepting = False
        self._progress_at = time.monotonic()
        self.calls.put(None)  # for the other readers

    def _give_up(self) -> None:
        text = f"closed before it could be written: {self._fault}"
        self.settle_callers([(call[3], None, StoreUnavailable(text)) for call in self._retries.take()])


class SQLiteWriter(SQLiteThread):
    """The only thread that writes."""

    def __init__(
        self,
        file: SQLiteFile,
        anchor: apsw.Connection,
        loop: asyncio.AbstractEventLoop,
        on_death: OnDeath,
        close_within_s: float,
    ) -> None:
        self._anchor = anchor
        self._wal_pages = 0
        self._checkpoint_at = CHECKPOINT_PAGES
        link = SQLiteLink(self.connect)
        self.groups = SQLiteGroups(link)
        super().__init__(file, queue.SimpleQueue(), loop, on_death, close_within_s, link)

    def connect(self) -> apsw.Connection:
        db = self.file.writer()
        db.set_wal_hook(self._wal_grew)
        return db

    def on_end(self) -> None:
        """Close the anchor last, so that no WAL is left behind."""
        with contextlib.suppress(apsw.Error):
            self._anchor.close()

    def attempt(self, call: Call) -> Outcome:
        return self.groups.run_alone(call)

    def serve(self, calls: list[Call]) -> bool:
        """Run all calls in one transaction. If it fails as a whole nothing was promised yet: each is run again alone."""
        try:
            outcomes = self.groups.run(calls)
        except Exception as error:  # noqa: BLE001  judged one by one
            self.leave_transaction(error)
            passed = self.one_by_one(calls)
        else:
            self.clear_fault()
            self.settle_callers(outcomes)
            passed = True
        self.tidy_after_s = QUIET_S
        if self._wal_pages >= self._checkpoint_at:
            self._checkpoint()
        return passed

    def tidy(self) -> None:
        """Checkpoint the WAL, and vacuum free pages bit by bit."""
        self.tidy_after_s = None
        self._checkpoint()
        try:
            if self.link.db().pragma("freelist_count") > SPARE_PAGES:
                self.link.db().execute(f"PRAGMA incremental_vacuum({VACUUM_PAGES})").fetchall()
                self.tidy_after_s = BETWEEN_VACUUMS_S
        except apsw.Error as error:
            log.warning("store.vacuum_failed", error=str(error))
            self.link.roll_back()

    def _wal_grew(self, _db: apsw.Connection, _name: str, pages: int) -> int:
        if pages < self._wal_pages:  # it restarted
            self._checkpoint_at = CHECKPOINT_PAGES
        self._wal_pages = pages
        return apsw.SQLITE_OK

    def _checkpoint(self) -> None:
        """Copy the WAL into the file, so that the WAL can restart; wait for readers when it has grown too long."""
        insist = self._wal_pages >= RESTART_PAGES
        mode = apsw.SQLITE_CHECKPOINT_RESTART if insist else apsw.SQLITE_CHECKPOINT_PASSIVE
        self._checkpoint_at = self._wal_pages + (RESTART_PAGES if insist else CHECKPOINT_PAGES)
        try:
            self.link.db().wal_checkpoint(mode=mode)
        except apsw.Error as error:
            log.warning("store.checkpoint_failed", error=str(error), wal_pages=self._wal_pages)


class SQLiteReader(SQLiteThread):
    """Reads beside the writer, each operation in one short transaction: a long one would keep the WAL from restarting."""

    limit = READS
    environmental = tuple(kind for kind in ENVIRONMENTAL if kind is not apsw.ReadOnlyError)

    def __init__(
        self,
        file: SQLiteFile,
        calls: Calls,
        loop: asyncio.AbstractEventLoop,
        on_death: OnDeath,
        close_within_s: float,
    ) -> None:
        self.took = Histogram(INSTANT)
        super().__init__(file, calls, loop, on_death, close_within_s)

    def connect(self) -> apsw.Connection:
        return self.file.reader()

    def attempt(self, call: Call) -> Outcome:
        operation, args, kwargs, future = call
        execute = self.link.db().cursor().execute
        began = time.perf_counter()
        execute("BEGIN")
        result = drive(operation(*args, **kwargs), execute)
        execute("COMMIT")
        self.took.add(time.perf_counter() - began)
        return future, result, None
