"""Loading the newest messages of a long conversation against those of a short one."""

from __future__ import annotations

import asyncio
import statistics
import time
from pathlib import Path

import apsw

from bench.disk import folder
from bench.report import Line, at_most, say
from everturn.sessions.rows.entries import last_messages
from everturn.store.interface import Store
from everturn.store.open import open_store

METHOD = (
    "a conversation with 1,000 and one with 100,000 messages in one database; the last 100 of each through "
    "the store, in turn, 50 loads a block, medians"
)
ROUNDS = 25
LOADS = 50
SIZES = {"short": 1_000, "long": 100_000}
FILL = (
    "WITH RECURSIVE number(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < ?2)"
    " INSERT INTO message (session_id, seq, role, content, at)"
    " SELECT ?1, n, CASE n % 2 WHEN 1 THEN 'user' ELSE 'assistant' END, printf('message %d, %080d', n, n), n FROM number"
)


async def measure() -> list[Line]:
    """Short and long in turn."""
    with folder() as path:
        file = path / "everturn.db"
        await (await open_store(f"sqlite:///{file}")).close()
        await asyncio.to_thread(_fill, file)
        store = await open_store(f"sqlite:///{file}")
        times: dict[str, list[float]] = {name: [] for name in SIZES}
        for _ in range(1 + ROUNDS):
            for name in SIZES:
                times[name].append(await _load(store, name))
        await store.close()
    short, long = (statistics.median(times[name][1:]) for name in SIZES)
    say(f"  the last 100 of 1,000: {1e3 * short:.3f} ms, of 100,000: {1e3 * long:.3f} ms")
    return [Line(name="last 100 of 100,000 / of 1,000 messages", value=long / short, target=at_most(1.2))]


def _fill(file: Path) -> None:
    db = apsw.Connection(str(file))
    for name, messages in SIZES.items():
        db.execute(FILL, (name, messages))
    db.close()


async def _load(store: Store, session: str) -> float:
    began = time.perf_counter()
    for _ in range(LOADS):
        found = await store.read(last_messages, session, 100)
        if len(found) != 100:
            raise RuntimeError("messages are missing")
    return (time.perf_counter() - began) / LOADS
