"""How SQLite runs operations: many share one transaction and one sync, and one that fails takes no other with it.

Nothing here knows a thread or the event loop: the writer's thread uses it, and so does the simulation.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import Callable
from enum import Enum, auto
from typing import Any

import apsw

from everturn.store.interface import Op
from everturn.store.sqlite_file import DAMAGED, ENVIRONMENTAL
from everturn.telemetry.meters import GROUPS, INSTANT, Histogram

Call = tuple[Callable[..., Op[Any]], tuple[Any, ...], dict[str, Any], "asyncio.Future[Any]"]
Outcome = tuple["asyncio.Future[Any]", Any, Exception | None]
Execute = Callable[..., apsw.Cursor]
One = Callable[[Call, apsw.Connection, Execute], Outcome]

KEPT_TEXTS = 4096
PARAMETER = re.compile(r"'[^']*'|\$(\d+)")  # what is quoted stays as it is
WRITES = re.compile(r"\s*(INSERT|UPDATE|DELETE)\b", re.IGNORECASE)
RETURNS = re.compile(r"\bRETURNING\b", re.IGNORECASE)


class WroteThenFailedError(Exception):
    """An operation failed after it had written, in a group without savepoints."""


class SQLiteLink:
    """One connection to SQLite, opened when it is needed and reopened after a fault."""

    def __init__(self, connect: Callable[[], apsw.Connection]) -> None:
        self._connect = connect
        self._db: apsw.Connection | None = None

    def db(self) -> apsw.Connection:
        if self._db is None:
            self._db = self._connect()
        return self._db

    def drop(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            with contextlib.suppress(apsw.Error):  # it is closed in any case
                db.close()

    def roll_back(self) -> None:
        """Roll back the open transaction, if there is one."""
        try:
            if self._db is not None and self._db.in_transaction:
                self._db.execute("ROLLBACK")
        except apsw.Error:
            self.drop()


class SQLiteGroups:
    """Commits groups of operations on one connection. A group runs without savepoints until one of its operations fails
    half-way.
    """

    def __init__(self, link: SQLiteLink) -> None:
        self._link = link
        self.took = Histogram(INSTANT)
        self.sizes = Histogram(GROUPS)
        self.commits = 0
        self.operations = 0

    def run(self, calls: list[Call]) -> list[Outcome]:
        """Run all calls in one transaction; returns an outcome for each. Raises what made the transaction fail as a whole."""
        try:
            return self._transact(calls, self._without_savepoint)
        except WroteThenFailedError:
            self._link.roll_back()
            return self._transact(calls, self._with_savepoint)

    def run_alone(self, call: Call) -> Outcome:
        """Run one call in a transaction of its own."""
        return self._transact([call], self._with_savepoint)[0]

    def _transact(self, calls: list[Call], one: One) -> list[Outcome]:
        db = self._link.db()
        execute = db.cursor().execute
        began = time.perf_counter()
        execute("BEGIN IMMEDIATE")
        outcomes = [one(call, db, execute) for call in calls]
        execute("COMMIT")
        self.took.add(time.perf_counter() - began)
        self.sizes.add(len(calls))
        self.commits += 1
        self.operations += len(calls)
        return outcomes

    def _without_savepoint(self, call: Call, db: apsw.Connection, execute: Execute) -> Outcome:
        """Run without a savepoint: an operation that fails before it wrote anything leaves nothing to undo."""
        operation, args, kwargs, future = call
        before = db.total_changes()
        try:
            return future, drive(operation(*args, **kwargs), execute), None
        except Exception as error:
            if self._fails_the_group(error, db):
                raise
            if db.total_changes() != before:
                raise WroteThenFailedError from error
            return future, None, error

    def _with_savepoint(self, call: Call, db: apsw.Connection, execute: Execute) -> Outcome:
        operation, args, kwargs, future = call
        execute("SAVEPOINT operation")
        try:
            outcome: Outcome = future, drive(operation(*args, **kwargs), execute), None
        except Exception as error:
            if self._fails_the_group(error, db):
                raise
            execute("ROLLBACK TO operation")
            outcome = future, None, error
        execute("RELEASE operation")
        return outcome

    def _fails_the_group(self, error: Exception, db: apsw.Connection) -> bool:
        """Tell whether the whole group failed: a fault of the disk, or an error that ended the transaction."""
        return isinstance(error, ENVIRONMENTAL + DAMAGED) or not db.in_transaction


class Gives(Enum):
    """What a statement returns."""

    ROWS = auto()
    COUNT = auto()  # a row for each that was written, without RETURNING, which costs more
    NOTHING = auto()


class SQLiteTexts(dict[str, tuple[str, Gives]]):
    """Translates `$1` into SQLite's `?1`, which binds by position, and says what the statement returns; each text once."""

    def __missing__(self, text: str) -> tuple[str, Gives]:
        if len(self) >= KEPT_TEXTS:
            self.clear()
        native = PARAMETER.sub(lambda found: f"?{found[1]}" if found[1] else found[0], text)
        if text.endswith("/*did*/"):
            gives = Gives.COUNT
        else:
            gives = Gives.NOTHING if WRITES.match(text) and not RETURNS.search(text) else Gives.ROWS
        known = self[text] = native, gives
        return known


texts = SQLiteTexts()


def drive(operation: Op[Any], execute: Execute) -> Any:
    """Run an operation's statements until it returns."""
    send = operation.send
    rows: Any = None  # a generator starts with None
    try:
        while True:
            text, args = send(rows)
            native, gives = texts[text]
            cursor = execute(native, args)
            if gives is Gives.ROWS:
                rows = cursor.fetchall()
            elif gives is Gives.NOTHING:
                rows = []
            else:
                rows = [()] * cursor.connection.changes()
    except StopIteration as end:
        return end.value


def settle(outcomes: list[Outcome]) -> None:
    """Settle the futures, on the event loop. A cancelled caller gets no outcome; its operation stays committed."""
    for future, result, error in outcomes:
        if future.done():
            continue
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)
