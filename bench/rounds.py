"""Measuring sides of one comparison in turn, A B A B, so that a busy machine harms all of them alike."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

Turn = Callable[[int, int], Awaitable[None]]
"""One turn of a session (first number); the second number counts that session's turns in this block."""
Block = Callable[[], Awaitable["Sample"]]


@dataclass(frozen=True, slots=True)
class Sample:
    """One block: how much was done, how long it took, and the processor time of this process for it."""

    done: int
    seconds: float
    cpu_s: float
    commits: int = 0

    @property
    def per_second(self) -> float:
        """How much a second."""
        return self.done / self.seconds


async def block(turn: Turn, sessions: int, seconds: float) -> Sample:
    """Let every session take one turn after the other for so long."""
    began, cpu = time.perf_counter(), time.process_time()
    until = began + seconds
    counts = await asyncio.gather(*(_session(turn, number, until) for number in range(sessions)))
    return Sample(sum(counts), time.perf_counter() - began, time.process_time() - cpu)


async def _session(turn: Turn, number: int, until: float) -> int:
    count = 0
    while time.perf_counter() < until:
        await turn(number, count)
        count += 1
    return count


async def in_turn(sides: Mapping[str, Block], rounds: int, warm_up: int = 1) -> dict[str, list[Sample]]:
    """Every side once, then again; the first rounds only warm up."""
    samples: dict[str, list[Sample]] = {name: [] for name in sides}
    for number in range(warm_up + rounds):
        for name, measure in sides.items():
            sample = await measure()
            if number >= warm_up:
                samples[name].append(sample)
    return samples


def rate(samples: Sequence[Sample]) -> float:
    """The median of what was done a second."""
    return statistics.median(sample.per_second for sample in samples)


def cpu_us(samples: Sequence[Sample]) -> float:
    """The median processor time of one, in microseconds."""
    return statistics.median(1e6 * sample.cpu_s / sample.done for sample in samples)


def commits(samples: Sequence[Sample]) -> float:
    """Commits for each that was done, over all blocks."""
    return sum(sample.commits for sample in samples) / sum(sample.done for sample in samples)


def median_ratio(ours: Sequence[Sample], others: Sequence[Sample]) -> float:
    """The median of the ratios of neighbours in time: what slows the machine down for a while drops out."""
    return statistics.median(a.per_second / b.per_second for a, b in zip(ours, others, strict=True))


def cpu_ratios(ours: Sequence[Sample], others: Sequence[Sample]) -> list[float]:
    """The processor time of one of ours in that of one of the others, of neighbours in time."""
    return [(a.cpu_s / a.done) / (b.cpu_s / b.done) for a, b in zip(ours, others, strict=True)]


def median_cpu_ratio(ours: Sequence[Sample], others: Sequence[Sample]) -> float:
    """The median of those: the same processor is slower in one second than in the next."""
    return statistics.median(cpu_ratios(ours, others))
