"""The task of each script of this folder: turns of many sessions at once for a while, then one line of JSON."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass

from bench.rounds import Turn, block

MESSAGES = (
    {"role": "user", "content": "please look at this for me"},
    {"role": "assistant", "content": "", "tool_calls": [{"id": "call-1", "name": "look", "arguments": ""}]},
    {"role": "tool", "content": "look done", "tool_call_id": "call-1"},
    {"role": "assistant", "content": "echo: please look at this for me"},
)
WARM_UP_S = 0.5


@dataclass(frozen=True, slots=True)
class Task:
    """The place of the store, how many sessions at once, how long."""

    place: str
    sessions: int
    seconds: float


def task() -> Task:
    """From the command line."""
    place, sessions, seconds = sys.argv[1:]
    return Task(place, int(sessions), float(seconds))


async def report(turn: Turn, what: Task) -> None:
    """Measure and print the result."""
    await block(turn, what.sessions, WARM_UP_S)
    sample = await block(turn, what.sessions, what.seconds)
    print(json.dumps({"turns": sample.done, "seconds": sample.seconds, "cpu_s": sample.cpu_s}), flush=True)
