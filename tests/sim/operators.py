"""What operators see of a simulated run: what is left to do, what was answered, the dead letters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tests.promises import NOTE
from tests.sim.platforms import ReadablePlatform, SimPlatform
from tests.sim.store import SimDatabase

ANSWERED = (
    "SELECT i.ext_id FROM inbox i JOIN turn t ON t.id=i.turn"
    " WHERE i.state='done' AND t.state='answered' AND instr(i.ext_id, '@')>0"
)
OPEN = {
    "inbox": "SELECT key, id, state FROM inbox WHERE ended_at IS NULL AND coalesce(why, '')<>'suspended'",
    "turn": "SELECT key, id, state FROM turn WHERE ended_at IS NULL",
    "outbox": "SELECT key, id, state FROM outbox WHERE ended_at IS NULL",
    "entry": "SELECT key, holder FROM entry WHERE holder IS NOT NULL",
}


def open_work(database: SimDatabase, platforms: Mapping[str, SimPlatform]) -> dict[str, list[tuple[Any, ...]]]:
    """What is left to do. What waits behind a suspended turn waits for its user, and so does a delivery request."""
    left = {name: rows for name, text in OPEN.items() if (rows := database.rows(text))}
    for name, platform in platforms.items():
        if isinstance(platform, ReadablePlatform) and platform.acknowledged < len(platform.updates):
            left[f"not read on {name}"] = [(platform.acknowledged, len(platform.updates))]
    return left


def answered(database: SimDatabase) -> frozenset[int]:
    """The numbers of the messages whose turn was answered."""
    return frozenset(int(number.partition("@")[0]) for (number,) in database.rows(ANSWERED))


def dead_letters(database: SimDatabase) -> list[str]:
    """The texts of messages that are dead letters."""
    return [text for (text,) in database.rows("SELECT body FROM inbox WHERE dead_at IS NOT NULL")]


def with_notes(database: SimDatabase) -> list[str]:
    """The rows, of whatever table, that hold a word of a note for the model."""
    return [row for row in dump(database) if NOTE in row]


def dump(database: SimDatabase) -> Iterator[str]:
    """Every row of the database."""
    tables = database.rows("SELECT name FROM sqlite_schema WHERE type='table' ORDER BY name")
    for (table,) in tables:
        yield from map(repr, database.rows(f"SELECT * FROM {table}"))
