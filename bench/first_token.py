"""The time to the first token through /v1 above that of the same model server asked directly: one stream, and fifty."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Sequence

from bench.disk import folder
from bench.report import Line, Target, at_most
from bench.shipped import Side, Stage, shipped, stage
from bench.streams import StreamLoad, spread

METHOD = (
    "a real `everturn run` after 100 turns with tools, on a core of its own; standalone calls, from the request to the first token; the "
    "model server answers at once and goes on with 80 tokens/s; blocks of direct and everturn in turn, the difference of the p50 of "
    "neighbours, median; one stream: requests one after the other; 50: all together, or begun within 0.5 s at the same drawn times on both sides"
)
STREAMS = 50
WITHIN_S = 0.5
ROUNDS = 5
ALONE, ALONE_TEXT = 25, "#speak 4 80"
MANY_TEXT = "#speak 16 80"
PAUSE_S = 0.1  # between blocks, for what a turn still does after its answer
TARGETS = {
    "1 stream": at_most(5, aim=3),
    f"{STREAMS} streams together": at_most(45, aim=30),
    f"{STREAMS} streams within {WITHIN_S:g} s": at_most(8, aim=4),
}


async def measure() -> list[Line]:
    """Directly and through the gateway, in turn."""
    with folder() as path, stage() as on, shipped(path, on.model_url) as ours:
        for side in (on.direct, ours):
            await on.warm(side)
        return await first_tokens(on, [ours], ROUNDS, TARGETS)


async def first_tokens(
    on: Stage, sides: Sequence[Side], rounds: int, targets: dict[str, Target], where: str = ""
) -> list[Line]:
    """What each side adds, with one stream and with fifty. The first round only warms up. `where` begins the lines' names."""
    seen: dict[str, dict[str, list[float]]] = {}
    for number in range(1 + rounds):
        for side in (on.direct, *sides):
            for name, value in (await _round(on, side)).items():
                if number:
                    seen.setdefault(name, {}).setdefault(side.name, []).append(value)
    return [
        added(f"{where}first token by {side.name}, {name}", each["direct"], each[side.name], targets.get(name))
        for name, each in seen.items()
        for side in sides
    ]


async def _round(on: Stage, side: Side) -> dict[str, float]:
    """The p50 to the first token of each way to ask, in milliseconds."""
    request = side.request(ALONE_TEXT)
    blocks = {
        "1 stream": on.read(side, ALONE_TEXT, StreamLoad(side.port, ((request,) * ALONE,))),
        f"{STREAMS} streams together": on.once(side, MANY_TEXT, STREAMS),
        f"{STREAMS} streams within {WITHIN_S:g} s": on.once(side, MANY_TEXT, STREAMS, spread(STREAMS, WITHIN_S)),
    }
    found = {}
    for name, block in blocks.items():
        found[name] = (await block).first_ms
        await asyncio.sleep(PAUSE_S)
    return found


def added(name: str, direct: Sequence[float], through: Sequence[float], target: Target | None) -> Line:
    """The difference of neighbours in time, with both sides beside it."""
    value = statistics.median(b - a for a, b in zip(direct, through, strict=True))
    detail = f"direct {statistics.median(direct):.2f} ms, through {statistics.median(through):.2f} ms"
    return Line(name=f"{name}, p50 added", value=value, unit="ms", target=target, detail=detail)
