"""The full-text index of past conversations: a file of its own, apart from the journal, that can be deleted.

It stores which rows contain which words, but no text. Results are read from the journal again, so that an index that is
old, damaged or missing never shows hidden text and never stops a turn: it is built again.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import apsw
import structlog

log = structlog.get_logger()
T = TypeVar("T")
SCHEMA = 1
MOST_WORDS = 16
_WORDS = re.compile(r"\w+")
_TABLES = """
CREATE TABLE place (id INTEGER PRIMARY KEY, session_id TEXT NOT NULL, seq INTEGER NOT NULL, UNIQUE (session_id, seq));
CREATE TABLE progress (session_id TEXT PRIMARY KEY, seq INTEGER NOT NULL) WITHOUT ROWID;
CREATE VIRTUAL TABLE words USING fts5(text, session, content='', tokenize='unicode61 remove_diacritics 2');
"""


class IndexLost(Exception):
    """The index could not be used and was deleted: start again with an empty one."""


@dataclass(frozen=True, slots=True)
class IndexedRow:
    """A row of a transcript, as the index takes it."""

    session_id: str
    seq: int
    text: str


class SearchIndex:
    """The index of one home. It works in a thread, one call after the other."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._db: apsw.Connection | None = None
        self._turn = asyncio.Lock()

    async def progress(self, sessions: Sequence[str]) -> dict[str, int]:
        """How far each of these sessions is indexed; those that are not indexed are missing."""
        return await self._safely(lambda db: _progress(db, sessions))

    async def add(self, rows: Sequence[IndexedRow], progress: Mapping[str, int]) -> None:
        """Index rows and record how far their sessions are indexed; rows that are indexed already are skipped."""
        await self._safely(lambda db: _add(db, rows, progress))

    async def find(self, text: str, sessions: Sequence[str], limit: int) -> list[tuple[str, int]]:
        """Find rows of these sessions with all words of the text, else with any of them; the best first."""
        return await self._safely(lambda db: _find(db, text, sessions, limit))

    async def close(self) -> None:
        """Close the file."""
        async with self._turn:
            await asyncio.to_thread(self._close)

    async def _safely(self, work: Callable[[apsw.Connection], T]) -> T:
        async with self._turn:
            try:
                return await asyncio.to_thread(self._run, work)
            except (apsw.Error, OSError) as error:
                log.warning("search index deleted", file=str(self._path), error=str(error))
                await asyncio.to_thread(self._discard)
                raise IndexLost(str(error)) from error

    def _run(self, work: Callable[[apsw.Connection], T]) -> T:
        if self._db is None:
            self._db = self._open()
        return work(self._db)

    def _discard(self) -> None:
        with suppress(apsw.Error):
            self._close()
        with suppress(OSError):  # a folder that cannot be written to: the next try fails again
            for suffix in ("", "-wal", "-shm", "-journal"):
                self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)

    def _open(self) -> apsw.Connection:
        with suppress(FileExistsError):  # made by us first, so that nobody else can ever read it
            os.close(os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        db = apsw.Connection(str(self._path))
        try:
            db.set_busy_timeout(1000)
            db.pragma("journal_mode", "wal")
            db.pragma("synchronous", "normal")
            if db.pragma("user_version") != SCHEMA:
                _make_tables(db)
        except apsw.Error:
            db.close(True)
            raise
        return db

    def _close(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            db.close(True)


def _make_tables(db: apsw.Connection) -> None:
    """Create the tables in an empty file; another version's file is deleted like a damaged one."""
    if db.execute("SELECT count(*) FROM sqlite_schema").get:
        raise apsw.SchemaChangeError("another version made this index")
    with db:
        db.execute(_TABLES)
        db.pragma("user_version", SCHEMA)


def _progress(db: apsw.Connection, sessions: Sequence[str]) -> dict[str, int]:
    known: dict[str, int] = {}
    for session in sessions:
        seq = db.execute("SELECT seq FROM progress WHERE session_id=?", (session,)).get
        if seq is not None:
            known[session] = int(seq)
    return known


def _add(db: apsw.Connection, rows: Sequence[IndexedRow], progress: Mapping[str, int]) -> None:
    with db:
        for row in rows:
            place = db.execute(
                "INSERT INTO place (session_id, seq) VALUES (?, ?) ON CONFLICT DO NOTHING RETURNING id",
                (row.session_id, row.seq),
            ).get
            if place is not None:
                values = (place, row.text, _token(row.session_id))
                db.execute("INSERT INTO words (rowid, text, session) VALUES (?, ?, ?)", values)
        for session, seq in progress.items():
            db.execute(
                "INSERT INTO progress (session_id, seq) VALUES (?, ?) ON CONFLICT (session_id)"
                " DO UPDATE SET seq=max(seq, excluded.seq)",
                (session, seq),
            )


def _find(db: apsw.Connection, text: str, sessions: Sequence[str], limit: int) -> list[tuple[str, int]]:
    words = [f'"{word}"*' if len(word) > 2 else f'"{word}"' for word in _WORDS.findall(text)[:MOST_WORDS]]
    if not words or not sessions:
        return []
    here = " OR ".join(_token(session) for session in sessions)
    for joined in (" AND ", " OR "):
        query = f"session:({here}) AND text:({joined.join(words)})"
        found = db.execute(
            "SELECT p.session_id, p.seq FROM words w JOIN place p ON p.id=w.rowid WHERE words MATCH ?"
            " ORDER BY bm25(words, 1.0, 0.0), w.rowid DESC LIMIT ?",
            (query, limit),
        ).fetchall()
        if found:
            return [(str(session), int(str(seq))) for session, seq in found]
    return []


def _token(session_id: str) -> str:
    """A session as one word of the index."""
    return "s" + hashlib.sha256(session_id.encode()).hexdigest()[:24]
