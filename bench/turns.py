"""Turns with 64 conversations at once, in process, against the indexed yardstick: their processor time, their rate, their syncs."""

from __future__ import annotations

from functools import partial

from bench.disk import folder
from bench.report import Line, at_most, say, shown
from bench.rounds import Sample, commits, cpu_us, in_turn, median_cpu_ratio, median_ratio, rate
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
    samples = await side_by_side(ROUNDS, BLOCK_S)
    for name, each in samples.items():
        say(
            f"  {name:10} {shown(rate(each)):>7} turns/s, {cpu_us(each):4.0f} us of processor time, {commits(each):.3f} syncs a turn"
        )
    ours, yardstick = samples["gateway"], samples["yardstick"]
    return [
        Line(name="turns/s of the indexed yardstick", value=rate(yardstick), unit="turns/s"),
        Line(name="turns/s of the gateway in process", value=rate(ours), unit="turns/s"),
        Line(name="turns/s, gateway / indexed yardstick", value=median_ratio(ours, yardstick)),
        *costs(ours, yardstick),
    ]


async def side_by_side(rounds: int, block_s: float) -> dict[str, list[Sample]]:
    """Blocks of the yardstick and of a gateway, in turn; the first of each warms up."""
    with folder() as path:
        yardstick = Yardstick(path / "yardstick.db")
        gateway = await Running.open(f"sqlite:///{path / 'everturn.db'}")
        sides = {
            "yardstick": partial(yardstick.measure, SESSIONS, block_s),
            "gateway": partial(gateway.measure, "chat-{}".format, SESSIONS, block_s),
        }
        samples = await in_turn(sides, rounds)
        await gateway.close()
        yardstick.close()
    return samples


def costs(ours: list[Sample], yardstick: list[Sample]) -> list[Line]:
    """What has a target."""
    return [
        Line(
            name="processor time, gateway / indexed yardstick",
            value=median_cpu_ratio(ours, yardstick),
            target=at_most(4.5, aim=4),
        ),
        Line(name="syncs a turn, 64 at once", value=commits(ours), unit="", target=at_most(0.15)),
    ]
