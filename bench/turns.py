"""Turns with 64 conversations at once, in process, against the indexed yardstick: their processor time, their rate, their syncs."""

from __future__ import annotations

from functools import partial

from bench.disk import folder
from bench.report import Line, at_most, say, shown
from bench.rounds import Sample, commits, cpu_us, in_turn, median_ratio, rate
from bench.running import Running
from bench.yardstick import Yardstick

METHOD = (
    "64 conversations at once, each sends its next message when the delivery of the last answer is recorded (accept, begin, "
    "response with one call, its result, answer, delivery); indexed yardstick: one bare writer thread (apsw, WAL, synchronous=FULL, "
    "group commit) and the index of a transcript, four single-row durable waits a turn; blocks of a second in turn, ratio of neighbours, median"
)
SESSIONS = 64
ROUNDS = 7
BLOCK_S = 1.0


async def measure() -> list[Line]:
    """Yardstick and gateway, in turn."""
    with folder() as path:
        yardstick = Yardstick(path / "yardstick.db")
        gateway = await Running.open(f"sqlite:///{path / 'everturn.db'}")
        sides = {
            "yardstick": partial(yardstick.measure, SESSIONS, BLOCK_S),
            "gateway": partial(gateway.measure, "chat-{}".format, SESSIONS, BLOCK_S),
        }
        samples = await in_turn(sides, ROUNDS)
        await gateway.close()
        yardstick.close()
    for name, each in samples.items():
        say(
            f"  {name:10} {shown(rate(each)):>7} turns/s, {cpu_us(each):4.0f} us of processor time, {commits(each):.3f} syncs a turn"
        )
    return lines_of(samples)


def lines_of(samples: dict[str, list[Sample]]) -> list[Line]:
    """The ratios, the syncs, and what they are made of."""
    ours, yardstick = samples["gateway"], samples["yardstick"]
    spent = cpu_us(ours) / cpu_us(yardstick)
    return [
        Line(name="turns/s of the indexed yardstick", value=rate(yardstick), unit="turns/s"),
        Line(name="turns/s of the gateway in process", value=rate(ours), unit="turns/s"),
        Line(name="turns/s, gateway / indexed yardstick", value=median_ratio(ours, yardstick)),
        Line(name="processor time, gateway / indexed yardstick", value=spent, target=at_most(4.5, aim=4)),
        Line(name="syncs a turn, 64 at once", value=commits(ours), unit="", target=at_most(0.15)),
    ]
