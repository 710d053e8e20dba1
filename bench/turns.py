"""Turns a second with 64 conversations at once, in process, against the yardstick."""

from __future__ import annotations

from functools import partial

from bench.disk import folder
from bench.report import Line, at_least, at_most, say, shown
from bench.rounds import Sample, commits, cpu_us, in_turn, median_ratio, rate
from bench.running import Running
from bench.yardstick import Yardstick

METHOD = (
    "64 conversations at once, each sends its next message when the delivery of the last answer is recorded (accept, begin, "
    "response with one call, its result, answer, delivery); yardstick: one bare writer thread (apsw, WAL, synchronous=FULL, "
    "group commit), four single-row durable waits a turn; blocks of a second in turn, ratio of neighbours, median"
)
SESSIONS = 64
ROUNDS = 7
BLOCK_S = 1.0


async def measure() -> list[Line]:
    """Gateway, yardstick, yardstick with an index, in turn."""
    with folder() as path:
        bare, indexed = Yardstick(path / "bare.db"), Yardstick(path / "indexed.db", index=True)
        gateway = await Running.open(f"sqlite:///{path / 'everturn.db'}")
        sides = {
            "yardstick": partial(bare.measure, SESSIONS, BLOCK_S),
            "gateway": partial(gateway.measure, "chat-{}".format, SESSIONS, BLOCK_S),
            "indexed": partial(indexed.measure, SESSIONS, BLOCK_S),
        }
        samples = await in_turn(sides, ROUNDS)
        await gateway.close()
        bare.close()
        indexed.close()
    for name, each in samples.items():
        say(
            f"  {name:10} {shown(rate(each)):>7} turns/s, {cpu_us(each):4.0f} us of processor time, {commits(each):.3f} syncs a turn"
        )
    return lines_of(samples)


def lines_of(samples: dict[str, list[Sample]]) -> list[Line]:
    """The ratio, the syncs, and what they are made of."""
    ours, bare, indexed = samples["gateway"], samples["yardstick"], samples["indexed"]
    return [
        Line(name="turns/s of the yardstick", value=rate(bare), unit="turns/s"),
        Line(name="turns/s of the gateway in process", value=rate(ours), unit="turns/s"),
        Line(name="gateway / yardstick", value=median_ratio(ours, bare), target=at_least(0.3, aim=0.4)),
        Line(name="gateway / yardstick with an index", value=median_ratio(ours, indexed)),
        Line(name="processor time, gateway / yardstick", value=cpu_us(ours) / cpu_us(bare)),
        Line(name="syncs a turn, 64 at once", value=commits(ours), unit="", target=at_most(0.15)),
    ]
