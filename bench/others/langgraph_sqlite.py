"""The turn's four messages as four checkpoints of langgraph-checkpoint-sqlite; a checkpoint holds the last 20 messages."""

from __future__ import annotations

import asyncio
from typing import Any

from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from bench.others.told import MESSAGES, report, task

KEPT = 20  # a graph would carry the whole history in every checkpoint, which would only make it slower


async def main() -> None:
    """One saver, a thread id for each conversation."""
    what = task()
    configs: dict[int, Any] = {}
    histories: dict[int, list[Any]] = {}
    async with AsyncSqliteSaver.from_conn_string(what.place) as saver:
        await saver.setup()

        async def turn(session: int, _count: int) -> None:
            start = {"configurable": {"thread_id": f"session-{session}", "checkpoint_ns": ""}}
            config, history = configs.get(session, start), histories.setdefault(session, [])
            for number, message in enumerate(MESSAGES):
                history.append(message)
                checkpoint = empty_checkpoint()
                checkpoint["channel_values"] = {"messages": history[-KEPT:]}
                config = await saver.aput(config, checkpoint, {"source": "loop", "step": number}, {})
            configs[session] = config

        await report(turn, what)


asyncio.run(main())
