"""How long a gateway with a language model takes to start, and the memory it then has."""

from __future__ import annotations

import statistics

from bench.disk import folder
from bench.report import Line, at_most
from bench.shipped import Side, shipped, stage
from bench.streams import StreamLoad

METHOD = (
    "`everturn run` with a language model and tools as a process of its own on one core, in a home that was used before; from its start until "
    "GET /ready answers 200; the first token of its first answer; its resident memory (RSS) after 100 turns with tools, and the part that is its own "
    "(PSS); medians"
)
ROUNDS = 5
TEXT = "#speak 4 80"
MEGABYTE = 1e6


async def measure() -> list[Line]:
    """One start after the other; the first writes the home and warms the disk's cache."""
    ready, first, early, rss, pss = [], [], [], [], []
    with folder() as path, stage() as on:
        for number in range(1 + ROUNDS):
            with shipped(path, on.model_url) as ours:
                at_ready = ours.process.memory()
                answer = await on.read(ours, TEXT, _one(ours))
                await on.warm(ours)
                if number:
                    ready.append(ours.ready_s)
                    early.append(at_ready / MEGABYTE)
                    first.append(answer.first_ms)
                    rss.append(ours.process.memory() / MEGABYTE)
                    pss.append(ours.process.memory("Pss") / MEGABYTE)
    detail = f"PSS {statistics.median(pss):.1f} MB; RSS when ready {statistics.median(early):.1f} MB"
    return [
        Line(name="LLM gateway ready", value=statistics.median(ready), unit="s", target=at_most(0.9, aim=0.7)),
        Line(name="first token of its first answer", value=statistics.median(first), unit="ms"),
        Line(
            name="memory of an LLM gateway, RSS", value=statistics.median(rss), unit="MB", target=at_most(65, aim=60),
            detail=detail,
        ),
    ]  # fmt: skip


def _one(side: Side) -> StreamLoad:
    return StreamLoad(side.port, ((side.request(TEXT),),))
