"""Rows of what an agent remembers."""

from __future__ import annotations

import msgspec

from everturn.store.interface import Op, sql
from everturn.turns.rows.turn_values import owned


class Memory(msgspec.Struct, frozen=True):
    """One memory: a name and a text."""

    name: str
    text: str
    at: float


def remember(key: str, turn: int, attempt: int, scope: str, memory: Memory, most: int) -> Op[bool]:
    """Save a memory, in place of one of the same name; False when the scope is full."""
    yield from owned(key, turn, attempt)
    known = yield sql("SELECT 1 FROM memory WHERE scope=$1 AND name=$2", scope, memory.name)
    count = yield sql("SELECT count(*) FROM memory WHERE scope=$1", scope)
    if not known and count[0][0] >= most:
        return False
    yield sql(
        "INSERT INTO memory (scope, name, text, at) VALUES ($1, $2, $3, $4)"
        " ON CONFLICT (scope, name) DO UPDATE SET text=excluded.text, at=excluded.at",
        scope,
        memory.name,
        memory.text,
        memory.at,
    )
    return True


def recall(scope: str, limit: int) -> Op[list[Memory]]:
    """The memories of a scope, newest first."""
    rows = yield sql("SELECT name, text, at FROM memory WHERE scope=$1 ORDER BY at DESC, name LIMIT $2", scope, limit)
    return [Memory(*row) for row in rows]


def forget_memory(key: str, turn: int, attempt: int, scope: str, name: str) -> Op[None]:
    """Delete a memory; whether it was there makes no difference, so that a repetition says the same."""
    yield from owned(key, turn, attempt)
    yield sql("DELETE FROM memory WHERE scope=$1 AND name=$2", scope, name)
