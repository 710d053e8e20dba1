"""The indexed yardstick: a bare writer thread that stores the four messages of a turn under the index by which a transcript is read,
with a durable wait for each and group commit for what waits.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from pathlib import Path

import apsw

from bench.rounds import Sample, block

Row = tuple[str, int, str, str, float]
Call = tuple[Row, "asyncio.Future[None]"]

TABLE = (
    "CREATE TABLE message (id INTEGER PRIMARY KEY, session_id TEXT NOT NULL, seq INTEGER NOT NULL, role TEXT NOT NULL,"
    " content TEXT NOT NULL, at REAL NOT NULL)"
)
INDEX = "CREATE UNIQUE INDEX message_of_session ON message(session_id, seq)"
INSERT = "INSERT INTO message (session_id, seq, role, content, at) VALUES (?, ?, ?, ?, ?)"
MESSAGES = (
    ("user", "please look at this for me"),
    ("assistant", '[{"id":"call-1","name":"look"}]'),
    ("tool", "look done"),
    ("assistant", "echo: please look at this for me"),
)


class Yardstick:
    """Nothing but a table, its index, a thread and futures."""

    def __init__(self, path: Path) -> None:
        self._db = apsw.Connection(str(path))
        self._db.pragma("journal_mode", "wal")
        self._db.pragma("synchronous", "full")
        self._db.execute(TABLE)
        self._db.execute(INDEX)
        self._loop = asyncio.get_running_loop()
        self._calls: queue.SimpleQueue[Call | None] = queue.SimpleQueue()
        self._seq: dict[int, int] = {}
        self.commits = 0
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    async def turn(self, session: int, _count: int) -> None:
        """The four messages of a turn, each waited for."""
        seq = self._seq.get(session, 0)
        for role, content in MESSAGES:
            seq += 1
            future = self._loop.create_future()
            self._calls.put(((f"20260101_000000_{session:08x}", seq, role, content, time.time()), future))
            await future
        self._seq[session] = seq

    async def measure(self, sessions: int, seconds: float) -> Sample:
        """One block of turns."""
        before = self.commits
        sample = await block(self.turn, sessions, seconds)
        return Sample(sample.done, sample.seconds, sample.cpu_s, self.commits - before)

    def close(self) -> None:
        """End the thread."""
        self._calls.put(None)
        self._thread.join()
        self._db.close()

    def _work(self) -> None:
        execute = self._db.cursor().execute
        while (first := self._calls.get()) is not None:
            group = [first]
            group += [call for _ in range(self._calls.qsize()) if (call := self._calls.get()) is not None]
            execute("BEGIN IMMEDIATE")
            for row, _ in group:
                execute(INSERT, row)
            execute("COMMIT")
            self.commits += 1
            self._loop.call_soon_threadsafe(settle, group)


def settle(group: list[Call]) -> None:
    """On the event loop, all in one hop."""
    for _, future in group:
        future.set_result(None)
