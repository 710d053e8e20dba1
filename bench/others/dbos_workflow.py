"""The turn's four messages in a dbos workflow: its input, two steps, its result."""

from __future__ import annotations

import asyncio
from typing import Any

from dbos import DBOS, DBOSConfig

from bench.others.told import MESSAGES, report, task


@DBOS.step()
async def say(message: dict[str, Any]) -> dict[str, Any]:
    """Stored by dbos when it returns."""
    return message


@DBOS.workflow()
async def answer(_user: dict[str, Any]) -> dict[str, Any]:
    """The user's message is stored when it starts, the answer when it ends."""
    for message in MESSAGES[1:3]:
        await say(message)
    return MESSAGES[3]


async def main() -> None:
    """`place` is a database url."""
    what = task()
    config: DBOSConfig = {"name": "bench", "system_database_url": what.place, "log_level": "ERROR"}
    DBOS(config=config)
    DBOS.launch()

    async def turn(_session: int, _count: int) -> None:
        await answer(MESSAGES[0])

    await report(turn, what)
    DBOS.destroy()


asyncio.run(main())
