"""Runs seeds: each in a fork, so that what it leaves behind goes with it and no `finally` of the dead ever runs."""

from __future__ import annotations

import gc
import os
import pickle
import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import apsw
import structlog

from everturn.store.engines import SCHEMA, load
from tests.sim.checking import problems_of, strictly_judged
from tests.sim.operators import dump
from tests.sim.plan import Plan
from tests.sim.world import SimWorld

LONGEST_S = 60  # of real time; most take a fifth of a second


@dataclass(frozen=True)
class SimResult:
    """What came of one plan. The digest is that of its whole log, and of every row in the end."""

    problems: tuple[str, ...]
    digest: str = ""
    virtual_s: float = 0.0
    deaths: int = 0
    commits: int = 0
    judged: tuple[int, int] = (0, 0)  # the messages that must have been answered, whatever happened, and all
    lines: tuple[str, ...] = ()


def empty_database() -> bytes:
    """A database with the schema and nothing else."""
    made = apsw.Connection(":memory:")
    for migration in load(SCHEMA / "sqlite"):
        made.execute(migration.text)
    return made.serialize("main")


def simulate(plan: Plan, image: bytes, *, keep: bool = False) -> SimResult:
    """Run a plan, in this process."""
    gc.disable()
    world = SimWorld(plan, image, keep=keep)
    structlog.configure(processors=[_log_to(world)], cache_logger_on_first_use=False)
    world.run()
    problems = problems_of(world)
    for line in dump(world.database):
        world.digest.update(line.encode())
    return SimResult(
        tuple(problems), world.digest.hexdigest(), world.loop.at, world.deaths, world.commits, strictly_judged(world),
        tuple(world.lines),
    )  # fmt: skip


def in_a_fork(plan: Plan, image: bytes, *, keep: bool = False) -> SimResult:
    """The same in a process of its own."""
    read, write = os.pipe()
    if not (child := os.fork()):
        code = 1
        signal.alarm(LONGEST_S)
        try:
            result = simulate(plan, image, keep=keep)
            with os.fdopen(write, "wb") as out:
                pickle.dump(result, out)
            code = 0
        finally:
            os._exit(code)
    os.close(write)
    with os.fdopen(read, "rb") as data:
        raw = data.read()
    _, status = os.waitpid(child, 0)
    if status or not raw:
        return SimResult((f"the simulation itself failed or took {LONGEST_S} s: status {status}",))
    found: SimResult = pickle.loads(raw)
    return found


def _log_to(world: SimWorld) -> Callable[..., Any]:
    """What is logged becomes a part of the log of the run. One instance alone neglects nothing."""

    def log(_logger: object, _method: str, event: dict[str, Any]) -> Any:
        if world.alone and event["event"] == "neglected work found":
            world.problem(f"neglected: {event['session_key']}")
        world.trace("log", *(f"{name}={event[name]}" for name in sorted(event) if name != "exc_info"))
        raise structlog.DropEvent

    return log
