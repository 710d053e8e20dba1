"""Homes with any number of conversations, each as one real turn leaves it: one is real, the rest are copies of its rows."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
import time
from pathlib import Path

import apsw

from bench.disk import kept
from bench.report import say
from bench.running import Running
from everturn.home.folder import Home
from everturn.store.engines import SCHEMA

PATTERN = "chat-00000000"
AT_ONCE = 50_000
FACTOR = 2_654_435_761
ID_STEP = 1 << 21  # ids of neighbours lie a millisecond apart
APPENDED = {"message": "id", "event": "id", "entry": "id", "session": "id"}  # numbered by the database
TABLES = ("entry", "session", "message", "inbox", "turn", "effect", "outbox", "event")
COPIES = (
    "WITH RECURSIVE number(n) AS (SELECT ?1 UNION ALL SELECT n + 1 FROM number WHERE n < ?2),"
    f" copy AS MATERIALIZED (SELECT printf('%08x', (n * {FACTOR}) & 0xFFFFFFFF) AS name, (?3 - n) * {ID_STEP} AS older FROM number)"
)


def chat_name(number: int) -> str:
    """The name of a chat; neighbours in time are not neighbours in an index."""
    return f"chat-{scrambled(number):08x}"


def scrambled(number: int) -> int:
    """Another number of 32 bits for each."""
    return (number * FACTOR) & 0xFFFFFFFF


async def home_with(sessions: int, *, fresh: bool = False) -> Path:
    """The directory of a home with so many conversations; a large one is built once and used again."""
    path = kept() / f"home-{sessions}-{_recipe()}"
    if fresh and path.exists():
        shutil.rmtree(path)
    if not (path / "complete").exists():
        shutil.rmtree(path, ignore_errors=True)
        for old in kept().glob(f"home-{sessions}-*"):
            shutil.rmtree(old)
        Home(path).create()
        await _live_once(path)
        await asyncio.to_thread(_multiply, path, sessions)
        (path / "complete").touch()
    return path


def database(home: Path) -> Path:
    """Its file."""
    return Home(home).database


def warm(home: Path) -> None:
    """Read the file once, so that a cold page cache is no part of the comparison."""
    with database(home).open("rb") as file:
        while file.read(1 << 24):
            pass


def _recipe() -> str:
    """Changes when the schema or this builder does."""
    texts = [*sorted((SCHEMA / "sqlite").glob("*.sql")), Path(__file__)]
    return hashlib.sha256(b"".join(text.read_bytes() for text in texts)).hexdigest()[:12]


async def _live_once(home: Path) -> None:
    running = await Running.open(f"sqlite:///{database(home)}", api=True)
    await running.turn(PATTERN)
    await running.close()


def _multiply(home: Path, sessions: int) -> None:
    """Write the copies, oldest first, so that tables are filled in the order in which a gateway fills them."""
    began, said_at = time.monotonic(), time.monotonic()
    db = apsw.Connection(str(database(home)))
    for pragma in ("journal_mode=off", "synchronous=off", "cache_size=-1000000", "locking_mode=exclusive"):
        db.execute(f"PRAGMA {pragma}").fetchall()
    session_id = str(db.execute("SELECT session_id FROM entry").get)
    indexes = db.execute("SELECT name, sql FROM sqlite_schema WHERE type='index' AND sql IS NOT NULL").fetchall()
    for name, _ in indexes:
        db.execute(f"DROP INDEX {name}")
    copies = [_copy_of(db, table, session_id) for table in TABLES]
    for first in range(1, sessions, AT_ONCE):
        numbers = range(first, min(first + AT_ONCE, sessions))
        with db:
            for copy in copies:
                db.execute(copy, (numbers[0], numbers[-1], sessions))
        if time.monotonic() > said_at + 5:
            said_at = time.monotonic()
            say(f"  building {home.name}: {numbers[-1]:,} of {sessions:,}")
    for _, text in indexes:
        db.execute(str(text))
    db.pragma("journal_mode", "wal")
    db.close()
    say(f"  built {home.name} in {time.monotonic() - began:.0f} s, {database(home).stat().st_size / 1e6:,.0f} MB")


def _copy_of(db: apsw.Connection, table: str, session_id: str) -> str:
    """A statement that stores the pattern's rows of a table again for the copies ?1 to ?2 of ?3."""
    names = [str(row[1]) for row in db.execute(f"PRAGMA table_info({table})")]
    names = [name for name in names if APPENDED.get(table) != name]
    rows = db.execute(f"SELECT {', '.join(names)} FROM {table}").fetchall()
    values = [f"SELECT {', '.join(_changed(value, session_id) for value in row)} FROM copy" for row in rows]
    return f"{COPIES} INSERT INTO {table} ({', '.join(names)}) {' UNION ALL '.join(values)}"


def _changed(value: object, session_id: str) -> str:
    """The value in a copy: names and ids are its own, all else is the pattern's."""
    if isinstance(value, int) and value > ID_STEP:
        return f"{value} - older"
    if not isinstance(value, str):
        return str(apsw.format_sql_value(value))
    text = str(apsw.format_sql_value(value))
    for known in (PATTERN[-8:], session_id[-8:]):
        text = text.replace(known, "' || name || '")
    return text
