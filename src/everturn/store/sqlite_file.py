"""Checks, migrates and opens the SQLite file, and explains its errors.

A file that must not be used is refused before anything is written, so its bytes stay as they are.
"""

from __future__ import annotations

import errno
import os
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import apsw

from everturn.errors import StoreError, StoreUnavailable, StoreUnusable
from everturn.store.engines import CREATE_TABLE, INSERT_VERSION, SELECT_VERSION, TABLE, Migration, missing

STATEMENTS = 64  # apsw looks through all of them for each execution, so not more than we use
BUSY_MS = 1000  # how long to wait for another program that locks the file
WAL_LIMIT = 16 * 1024 * 1024  # bytes the WAL file is cut back to when it starts anew
WRITER_CACHE_KIB = 65_536  # the upper levels of every index of a large home
READER_CACHE_KIB = 4 * 1024

_MAGIC = b"SQLite format 3\0"
_SENTENCES: tuple[tuple[type[apsw.Error], str], ...] = (
    (apsw.FullError, "the disk is full: free some space for {path}"),
    (apsw.ReadOnlyError, "{path} is read-only: make the file and its directory writable"),
    (apsw.CantOpenError, "{path} cannot be opened: see that it exists and that its directory is writable"),
    (apsw.BusyError, "another program holds {path} locked: end it"),
    (apsw.LockedError, "another program holds {path} locked: end it"),
    (apsw.ProtocolError, "another program holds {path} locked: end it"),
    (apsw.NoMemError, "there is not enough memory to use {path}"),
    (apsw.PermissionsError, "access to {path} was denied: see its owner and mode"),
    (apsw.AuthError, "access to {path} was denied: see its owner and mode"),
    (apsw.IOError, "the disk reports an error for {path} ({error}): see the system's log"),
)
ENVIRONMENTAL = tuple(kind for kind, _ in _SENTENCES)
DAMAGED = (apsw.CorruptError, apsw.NotADBError, apsw.FormatError)


@dataclass(frozen=True, slots=True)
class SQLiteFile:
    """The path of the database, and the VFS through which it is opened (None: the system's own)."""

    path: Path
    vfs: str | None = None

    def prepare(self, migrations: list[Migration]) -> apsw.Connection:
        """Check the file, create it if it is missing, migrate its schema. Returns the anchor connection."""
        made = self._create_if_missing()
        try:
            self._check_header()
            self._check_schema(migrations)
            self._migrate(migrations)
            self._make_owner_only()
            return self.anchor()
        except (apsw.Error, OSError, StoreError) as error:
            if made:
                self._remove()
            raise error if isinstance(error, StoreError) else self.explain(error) from error

    def writer(self) -> apsw.Connection:
        """Open the one connection that writes; it never creates the file."""
        db = self._connect(apsw.SQLITE_OPEN_READWRITE)
        if db.readonly("main"):
            raise apsw.ReadOnlyError(f"{self.path} is read-only")
        db.pragma("synchronous", "full")
        db.pragma("cache_size", -WRITER_CACHE_KIB)
        db.pragma("journal_size_limit", WAL_LIMIT)
        return db

    def reader(self) -> apsw.Connection:
        """Open a connection that can only read."""
        db = self._connect(apsw.SQLITE_OPEN_READONLY)
        db.pragma("cache_size", -READER_CACHE_KIB)
        return db

    def anchor(self) -> apsw.Connection:
        """Open a connection that only stays open: while there is one, SQLite does not read the WAL again, and what a failed
        sync left there is rewritten instead of being taken for committed.
        """
        db = self.reader()
        db.execute("SELECT count(*) FROM sqlite_schema").fetchall()
        return db

    def explain(self, error: Exception) -> StoreError:
        """Return the error for the owner: what is wrong, and what to do."""
        if isinstance(error, DAMAGED):
            return StoreUnusable(f"{self.path} is damaged ({error}): restore a backup, or move it away to start empty")
        if isinstance(error, (apsw.FullError, apsw.BusyError, apsw.IOError, apsw.NoMemError)) or is_full(error):
            return StoreUnavailable(self.sentence(error))
        return StoreUnusable(self.sentence(error))

    def sentence(self, error: Exception) -> str:
        """Return one sentence for an error of the disk or the system."""
        kind = apsw.FullError() if is_full(error) else error
        text = next((text for known, text in _SENTENCES if isinstance(kind, known)), "{path} cannot be used: {error}")
        return text.format(path=self.path, error=error)

    def _connect(self, flags: int, name: str | None = None) -> apsw.Connection:
        db = apsw.Connection(name or str(self.path), flags=flags, vfs=self.vfs, statementcachesize=STATEMENTS)
        db.set_busy_timeout(BUSY_MS)
        # A plan never depends on what is bound: else SQLite prepares a statement anew for each value of a parameter that a partial
        # index might need.
        db.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        db.pragma("temp_store", "memory")
        return db

    def _create_if_missing(self) -> bool:
        """Create the file before SQLite opens it, so that no other user can ever read it."""
        if not self.path.parent.is_dir():
            raise StoreUnusable(f"the directory {self.path.parent} does not exist: create it, or correct store.url")
        try:
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        except FileExistsError:
            return False
        except OSError as error:
            raise self.explain(error) from error
        return True

    def _check_header(self) -> None:
        if self.path.is_dir():
            raise StoreUnusable(f"{self.path} is a directory: correct store.url")
        with self.path.open("rb") as file:
            header = file.read(100)
        if header and not header.startswith(_MAGIC):
            raise StoreUnusable(f"{self.path} is not an Everturn database: move it away, or correct store.url")
        if header and not self._has_wal() and self.path.stat().st_size < claimed_size(header):
            raise StoreUnusable(f"{self.path} is cut short: restore a backup, or move it away to start empty")

    def _check_schema(self, migrations: list[Migration]) -> None:
        """Check the schema version without writing: a read-only connection, and no lock files where there is no WAL."""
        if self._is_empty() and not self._has_wal():
            return
        name = f"file:{quote(str(self.path))}?mode=ro" + ("" if self._has_wal() else "&immutable=1")
        db = self._connect(apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI, name)
        try:
            missing(migrations, self._version(db), str(self.path))
        finally:
            db.close(True)

    def _version(self, db: apsw.Connection) -> int:
        tables = {name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
        if TABLE not in tables:
            if tables:
                raise StoreUnusable(f"{self.path} belongs to another program: correct store.url")
            return 0
        return int(db.execute(SELECT_VERSION).get)

    def _migrate(self, migrations: list[Migration]) -> None:
        db = self.writer()
        try:
            if self._is_empty():
                db.pragma("auto_vacuum", 2)  # incremental: free pages can be given back bit by bit
            db.pragma("journal_mode", "wal")
            if wanted := missing(migrations, self._version(db), str(self.path)):
                with db:
                    db.execute(CREATE_TABLE)
                    for migration in wanted:
                        db.execute(migration.text)
                        db.execute(INSERT_VERSION.replace("$", "?"), (migration.version, time.time()))
        finally:
            db.close(True)

    def _make_owner_only(self) -> None:
        """Restrict the file and its side files to the owner; SQLite gives new side files the mode of the database."""
        for path in (self.path, self._side("-wal"), self._side("-shm")):
            if path.exists() and path.stat().st_mode & 0o077:
                path.chmod(0o600)

    def _remove(self) -> None:
        for suffix in ("", "-wal", "-shm", "-journal"):
            self._side(suffix).unlink(missing_ok=True)

    def _is_empty(self) -> bool:
        return self.path.stat().st_size == 0

    def _has_wal(self) -> bool:
        wal = self._side("-wal")
        return wal.exists() and wal.stat().st_size > 0

    def _side(self, suffix: str) -> Path:
        return self.path.with_name(self.path.name + suffix)


def is_full(error: Exception) -> bool:
    """Tell whether the disk is full, or a quota used up."""
    return isinstance(error, apsw.FullError) or getattr(error, "errno", None) in {errno.ENOSPC, errno.EDQUOT}


def claimed_size(header: bytes) -> int:
    """Return the file size that the header claims; 0 when an old SQLite wrote it last, as the field is then stale."""
    if header[24:28] != header[92:96]:
        return 0
    page = int.from_bytes(header[16:18], "big")
    return int.from_bytes(header[28:32], "big") * (65536 if page == 1 else page)
