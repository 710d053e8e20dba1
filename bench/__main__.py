"""`python -m bench [NAME ...]`: measure speed as ratios of one run. Without a name every benchmark is run."""

from __future__ import annotations

import asyncio
import importlib
import logging
import sys
import time
import traceback

import structlog
import uvloop

from bench.disk import RESULTS
from bench.report import Line, keep, say, table
from everturn.app.composition import tune_interpreter

BENCHMARKS = (
    "turns",
    "http_turns",
    "size",
    "start",
    "history",
    "crash",
    "accepting",
    "beside",
    "start_help",
    "start_loads",
    "model_turns",
    "waiting_calls",
    "first_token",
    "token_rate",
    "people",
    "long_history",
    "llm_start",
    "one_core",
    "litellm_proxy",
    "watchers",
    "page",
    "telegram",
    "matrix",
)
OTHERS = ("profile", "reach")  # by name only


def main(names: list[str]) -> int:
    """Run the benchmarks, print and keep their numbers. One that fails does not stop the others."""
    unknown = set(names) - {*BENCHMARKS, *OTHERS}
    if unknown:
        say(f"there is no benchmark {', '.join(sorted(unknown))}; there are: {', '.join((*BENCHMARKS, *OTHERS))}")
        return 2
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    tune_interpreter()
    lines: list[Line] = []
    failed: list[str] = []
    for name in names or BENCHMARKS:
        try:
            lines += run_benchmark(name)
        except Exception:  # noqa: BLE001  the others are worth their minutes
            traceback.print_exc()
            failed.append(name)
    say(f"\n{table(lines)}\n")
    keep(lines, RESULTS)
    if failed:
        say(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


def run_benchmark(name: str) -> list[Line]:
    """Run one benchmark, in an event loop of its own."""
    module = importlib.import_module(f"bench.{name}")
    say(f"\n{name}: {module.METHOD}")
    began = time.perf_counter()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        lines: list[Line] = runner.run(module.measure())
    for line in lines:
        say(f"  {line.name}: {line.shown()}  {line.target or ''} {line.verdict} {line.detail}".rstrip())
    say(f"  ({time.perf_counter() - began:.0f} s)")
    return lines


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
