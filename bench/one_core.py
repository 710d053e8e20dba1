"""Fifty streams through a gateway that has one core and 512 MB: how late a token is, against the model server asked directly."""

from __future__ import annotations

import statistics

from bench.disk import folder
from bench.report import Line, at_most, say
from bench.shipped import shipped, small_memory, stage
from bench.streams import StreamLoad, spread

METHOD = (
    "a real `everturn run` after 100 turns with tools, which may use one core (its affinity) and 512 MB (a cgroup, where one can be made); 50 streams "
    "of 200 tokens begin within a second, 40 tokens/s each; how late a token is: the time it came to its reader less the time the model server "
    "wrote it, p99 of all tokens of a block; blocks of direct and everturn in turn, the difference of neighbours, median"
)
STREAMS, TEXT, WITHIN_S = 50, "#speak 200 40", 1.0
MEGABYTES = 512
ROUNDS = 2


async def measure() -> list[Line]:
    """Directly and through the gateway, in turn."""
    late: list[tuple[float, float]] = []
    with folder() as path, stage() as on, small_memory(MEGABYTES) as prefix:
        limit = f"a cgroup of {MEGABYTES} MB" if prefix else "no cgroup could be made: its memory is only measured"
        with shipped(path, on.model_url, prefix) as ours:
            await on.warm(ours)
            for _ in range(ROUNDS):
                found = []
                for side in (on.direct, ours):
                    load = StreamLoad(side.port, ((side.request(TEXT),),) * STREAMS, spread(STREAMS, WITHIN_S))
                    found.append(await on.read(side, TEXT, load))
                direct, through = found
                late.append((direct.late_ms(0.99), through.late_ms(0.99)))
                say(f"  p50 direct {direct.late_ms(0.5):.1f} ms, through {through.late_ms(0.5):.1f} ms")
            memory = ours.process.memory() / 1e6
    value = statistics.median(b - a for a, b in late)
    direct99, through99 = (statistics.median(each) for each in zip(*late, strict=True))
    detail = f"direct {direct99:.1f} ms, through {through99:.1f} ms; {limit}; RSS {memory:.0f} MB"
    return [
        Line(
            name=f"p99 lateness of a token added, one core, {STREAMS} streams", value=value, unit="ms", target=at_most(100),
            detail=detail,
        )
    ]  # fmt: skip
