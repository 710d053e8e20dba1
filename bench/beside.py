"""The same turn on other libraries that store conversations or workflows, each in a process of its own, beside ours."""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench.disk import ROOT, folder
from bench.report import Line, say, shown
from tests.postgres import PostgresServer

METHOD = (
    "64 conversations at once, each stores a turn's four messages durably, one wait each (ours: the gateway's whole path, "
    "delivery included), each library in a process of its own, as it is configured by default; in turn, medians"
)
SESSIONS = 64
BLOCK_S = 2.5
ROUNDS = 3
OTHERS_PYTHON = ROOT / ".venv-bench" / "bin" / "python"
PATIENCE_S = 120


@dataclass(frozen=True, slots=True)
class Contender:
    """A script and where it stores."""

    name: str
    module: str
    python: Path
    place: Callable[[Path, PostgresServer], str]


def _file(path: Path, _: PostgresServer) -> str:
    return str(path / "data.db")


def _sqlite_url(path: Path, _: PostgresServer) -> str:
    return f"sqlite:///{path / 'data.db'}"


def _postgres_url(_: Path, server: PostgresServer) -> str:
    return server.create_database()


OURS = Path(sys.executable)
CONTENDERS = (
    Contender("everturn, SQLite", "bench.others.ours", OURS, _sqlite_url),
    Contender("openai-agents SQLiteSession", "bench.others.openai_agents", OTHERS_PYTHON, _file),
    Contender("langgraph-checkpoint-sqlite", "bench.others.langgraph_sqlite", OTHERS_PYTHON, _file),
    Contender("dbos, SQLite", "bench.others.dbos_workflow", OTHERS_PYTHON, _sqlite_url),
    Contender("everturn, PostgreSQL", "bench.others.ours", OURS, _postgres_url),
    Contender("dbos, PostgreSQL", "bench.others.dbos_workflow", OTHERS_PYTHON, _postgres_url),
)


async def measure() -> list[Line]:
    """Every library once, then again."""
    rates = await asyncio.to_thread(_rates)
    medians = {name: statistics.median(each) for name, each in rates.items()}
    return [_line(name, value, medians) for name, value in medians.items()]


def _line(name: str, value: float, medians: dict[str, float]) -> Line:
    ours = "everturn, PostgreSQL" if "PostgreSQL" in name else "everturn, SQLite"
    detail = "" if name == ours else f"we are at {medians[ours] / value:.1f} x"
    return Line(name=f"turns/s: {name}", value=value, unit="turns/s", detail=detail)


def _rates() -> dict[str, list[float]]:
    rates: dict[str, list[float]] = {each.name: [] for each in CONTENDERS}
    with PostgresServer(durable=True) as server:
        for number in range(ROUNDS):
            for each in CONTENDERS:
                with folder() as path:
                    rates[each.name].append(_run(each, path, server))
            say(f"  round {number + 1}: " + ", ".join(f"{name} {shown(seen[-1])}" for name, seen in rates.items()))
    return rates


def _run(contender: Contender, path: Path, server: PostgresServer) -> float:
    command = [
        str(contender.python),
        "-m",
        contender.module,
        contender.place(path, server),
        str(SESSIONS),
        str(BLOCK_S),
    ]
    env = os.environ | {"PYTHONPATH": str(ROOT), "OPENAI_AGENTS_DISABLE_TRACING": "1"}
    done = subprocess.run(command, cwd=path, env=env, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    if done.returncode != 0:
        raise RuntimeError(f"{contender.name} failed:\n{done.stdout}{done.stderr}")
    found = json.loads(done.stdout.strip().splitlines()[-1])
    return float(found["turns"] / found["seconds"])
