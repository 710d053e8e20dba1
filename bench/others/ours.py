"""The gateway's whole path in a process of its own, on the database that a url names."""

from __future__ import annotations

import logging

import structlog
import uvloop

from bench.others.told import report, task
from bench.running import Running
from everturn.app.composition import tune_interpreter


async def main() -> None:
    """On a platform of class A."""
    what = task()
    running = await Running.open(what.place)

    async def turn(session: int, _count: int) -> None:
        await running.turn(f"chat-{session}")

    await report(turn, what)
    await running.close()


structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
tune_interpreter()
uvloop.run(main())
