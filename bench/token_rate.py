"""Tokens a second through one gateway, as fast as they are taken, as a share of what the same readers take from the model server."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from bench.disk import folder
from bench.report import Line, Target, at_least, say, shown
from bench.shipped import Side, Stage, shipped, stage
from bench.streams import StreamLoad

METHOD = (
    "a real `everturn run` after 100 turns with tools, on a core of its own; 20 streams, each asks for its next answer of 500 tokens when "
    "the last one has ended; the model server writes each token by itself, as fast as it can; tokens that come in a second, turns included; "
    "blocks of direct and everturn in turn, ratio of neighbours, median"
)
STREAMS, TEXT = 20, "#speak 500 0"
SECONDS, WARM_UP_S = 2.5, 0.5
ROUNDS = 3
MOST = 1_000  # requests of one stream


async def measure() -> list[Line]:
    """Directly and through the gateway, in turn."""
    with folder() as path, stage() as on, shipped(path, on.model_url) as ours:
        await on.warm(ours)
        lines = await token_rates(on, [ours], ROUNDS, at_least(0.7, aim=0.85))
        on.say_costs()
    return lines


async def token_rates(
    on: Stage, sides: Sequence[Side], rounds: int, target: Target | None, where: str = ""
) -> list[Line]:
    """The share of each side. `where` begins the lines' names."""
    rates: dict[str, list[float]] = {}
    costs: dict[str, list[float]] = {}
    for _ in range(rounds):
        for side in (on.direct, *sides):
            before = side.process.cpu_s()
            load = StreamLoad(
                side.port, ((side.request(TEXT),) * MOST,) * STREAMS, seconds=SECONDS, warm_up_s=WARM_UP_S
            )
            seen = await on.read(side, TEXT, load)
            rates.setdefault(side.name, []).append(seen.rate)
            costs.setdefault(side.name, []).append(1e6 * (side.process.cpu_s() - before) / seen.tokens)
    for name, each in rates.items():
        cost = statistics.median(costs[name])
        say(f"  {name:8} {shown(statistics.median(each)):>7} tokens/s, {cost:.1f} us of its processor time for each")
    return [_line(f"{where}tokens/s by {side.name}", rates["direct"], rates[side.name], target) for side in sides]


def _line(name: str, direct: Sequence[float], through: Sequence[float], target: Target | None) -> Line:
    share = statistics.median(b / a for a, b in zip(direct, through, strict=True))
    detail = f"{shown(statistics.median(through))} of {shown(statistics.median(direct))} tokens/s"
    return Line(name=f"{name} / direct, {STREAMS} streams", value=share, target=target, detail=detail)
