"""The turn's four messages in `SQLiteSession` of openai-agents, one `add_items` each."""

from __future__ import annotations

import asyncio
from typing import Any

from agents import SQLiteSession

from bench.others.told import MESSAGES, report, task


async def main() -> None:
    """One session object for each conversation, one file for all."""
    what = task()
    sessions = [SQLiteSession(f"session-{number}", what.place) for number in range(what.sessions)]

    async def turn(session: int, _count: int) -> None:
        for message in MESSAGES:
            item: Any = message
            await sessions[session].add_items([item])

    await report(turn, what)


asyncio.run(main())
