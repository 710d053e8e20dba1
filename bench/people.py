"""Fifty people who read answers at the pace of a model: how much of the pace is kept, and what a token costs the gateway."""

from __future__ import annotations

import statistics

from bench.disk import folder
from bench.report import Line, at_least, at_most, say
from bench.shipped import Side, Stage, shipped, stage
from bench.streams import Streamed, StreamLoad, spread

METHOD = (
    "a real `everturn run` after 100 turns with tools, on a core of its own; 50 people ask for one answer of 400 tokens each within a second, the "
    "model server writes 80 tokens/s to each; rate: of each stream from its first token to its last, the median, as a share of the same stream's "
    "asked directly; processor time: what the gateway's process used from the first request to the last end, by all tokens; blocks in turn, median"
)
PEOPLE, TEXT, WITHIN_S = 50, "#speak 400 80", 1.0
ROUNDS = 3


async def measure() -> list[Line]:
    """Directly and through the gateway, in turn."""
    shares, slowest, costs, late = [], [], [], []
    with folder() as path, stage() as on, shipped(path, on.model_url) as ours:
        await on.warm(ours)
        for _ in range(ROUNDS):
            direct = await _block(on, on.direct)
            before = ours.process.cpu_s()
            through = await _block(on, ours)
            costs.append(1e6 * (ours.process.cpu_s() - before) / through.tokens)
            pairs = zip(direct.answers, through.answers, strict=True)
            kept = sorted(b.rate / a.rate for a, b in pairs)
            shares.append(statistics.median(kept))
            slowest.append(kept[0])
            late.append((direct.late_ms(0.5), through.late_ms(0.5), direct.late_ms(0.99), through.late_ms(0.99)))
        on.say_costs()
    direct50, ours50, direct99, ours99 = (statistics.median(each) for each in zip(*late, strict=True))
    say(
        f"  age of a token when it comes: direct p50 {direct50:.1f}, p99 {direct99:.1f} ms, through p50 {ours50:.1f}, p99 {ours99:.1f} ms"
    )
    return [
        Line(
            name="rate kept, 50 people x 80 tokens/s", value=statistics.median(shares), target=at_least(0.95, aim=0.98),
            detail=f"the slowest stream kept {statistics.median(slowest):.3f}",
        ),
        Line(
            name="processor time of a token, turn included", value=statistics.median(costs), unit="us",
            target=at_most(60, aim=40),
        ),
    ]  # fmt: skip


async def _block(on: Stage, side: Side) -> Streamed:
    requests = ((side.request(TEXT),),) * PEOPLE
    return await on.read(side, TEXT, StreamLoad(side.port, requests, spread(PEOPLE, WITHIN_S)))
