"""The three numbers with a target that decides (ADR 59), and nothing else: five runs of each side in turn, medians. About a minute."""

from __future__ import annotations

import os

from bench.accepting import accept_line, held_and_hello
from bench.report import Line, say, shown
from bench.rounds import commits, cpu_ratios, cpu_us, rate
from bench.turns import costs, side_by_side

METHOD = (
    "64 conversations at once in process against the indexed yardstick, runs of three seconds in turn; then accepting over HTTP "
    "against a route that says hello; the ratio of each two neighbours, the median of five. Let nothing else run"
)
ROUNDS = 5
BLOCK_S = 3.0


async def measure() -> list[Line]:
    """Turns first, then accepting."""
    _say_load()
    turns = await side_by_side(ROUNDS, BLOCK_S)
    ours, yardstick = turns["gateway"], turns["yardstick"]
    for name, each in turns.items():
        say(f"  {name:10} {shown(rate(each)):>7} turns/s, {cpu_us(each):4.0f} us, {commits(each):.3f} syncs a turn")
    say("  processor time, each pair: " + ", ".join(map(shown, cpu_ratios(ours, yardstick))))
    accepting = await held_and_hello(ROUNDS)
    pairs = zip(accepting["held"], accepting["hello"], strict=True)
    say("  accept / hello, each pair: " + ", ".join(shown(a.per_second / b.per_second) for a, b in pairs))
    _say_load()
    return [*costs(ours, yardstick), accept_line(accepting["held"], accepting["hello"])]


def _say_load() -> None:
    say(f"  load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
