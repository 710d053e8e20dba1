"""`python -m bench [NAME ...]`: measure speed as ratios of one run. Without a name every figure is measured."""

from __future__ import annotations

import asyncio
import importlib
import logging
import sys
import time

import structlog
import uvloop

from bench.disk import RESULTS
from bench.report import Line, keep, say, table
from everturn.app import tune_interpreter

FIGURES = (
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
    "watchers",
    "page",
    "telegram",
    "matrix",
)
OTHERS = ("profile", "reach")  # by name only


def main(names: list[str]) -> int:
    """Measure, print, keep."""
    unknown = set(names) - {*FIGURES, *OTHERS}
    if unknown:
        say(f"there is no figure {', '.join(sorted(unknown))}; there are: {', '.join((*FIGURES, *OTHERS))}")
        return 2
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    tune_interpreter()
    lines = [line for name in names or FIGURES for line in figure(name)]
    say(f"\n{table(lines)}\n")
    keep(lines, RESULTS)
    return 0


def figure(name: str) -> list[Line]:
    """One figure, in an event loop of its own."""
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
