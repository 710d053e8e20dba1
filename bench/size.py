"""What a turn costs in a large home against a small one, and what the first message of an unseen chat costs."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from functools import partial
from itertools import count

from bench.homes import chat_name, database, home_with, warm
from bench.report import Line, at_most, say, shown
from bench.rounds import Sample, cpu_us, in_turn, median_ratio, rate
from bench.running import Running

METHOD = (
    "two gateways in one process on homes with 1,000 and 1,000,000 idle conversations (each as one turn leaves it); 64 turns at "
    "once in chats chosen at random from all; blocks in turn, ratio of neighbours, median; then the same with 1,000 "
    "active chats of the million; then lonely turns; then first messages of unseen chats against first steps of known ones"
)
SMALL, LARGE = 1_000, 1_000_000
SESSIONS = 64
ROUNDS = 9
BLOCK_S = 1.0


async def measure() -> list[Line]:
    """Small and large in turn."""
    homes = {SMALL: await home_with(SMALL, fresh=True), LARGE: await home_with(LARGE)}
    for home in homes.values():
        await asyncio.to_thread(warm, home)
    running = {size: await Running.open(f"sqlite:///{database(home)}", api=True) for size, home in homes.items()}
    try:
        return [
            *await _many(running[SMALL], running[LARGE]),
            *await _lonely(running[SMALL], running[LARGE]),
            *[line for size, each in running.items() for line in await _unseen(each, size)],
        ]
    finally:
        for each in running.values():
            await each.close()


async def _many(small: Running, large: Running) -> list[Line]:
    chosen = random.sample(range(LARGE), SMALL)
    sides = {
        "small": partial(small.measure, anywhere(range(SMALL)), SESSIONS, BLOCK_S),
        "large": partial(large.measure, anywhere(range(LARGE)), SESSIONS, BLOCK_S),
        "large, 1,000 active": partial(large.measure, anywhere(chosen), SESSIONS, BLOCK_S),
    }
    samples = await in_turn(sides, ROUNDS)
    for name, each in samples.items():
        say(f"  {name:20} {shown(rate(each)):>6} turns/s, {cpu_us(each):4.0f} us of processor time a turn")
    small_ones = samples["small"]
    return [
        Line(name=f"a turn of 1,000,000 / of 1,000{which}", value=median_ratio(small_ones, samples[name]), target=target,
             detail=f"processor time {cpu_us(samples[name]) / cpu_us(small_ones):.2f} x")
        for name, which, target in (
            ("large", ", 64 at once", at_most(1.2, aim=1.1)),
            ("large, 1,000 active", ", 64 at once, 1,000 active", None),
        )
    ]  # fmt: skip


async def _lonely(small: Running, large: Running) -> list[Line]:
    sides = {
        "small": partial(small.measure, anywhere(range(SMALL)), 1, BLOCK_S / 2),
        "large": partial(large.measure, anywhere(range(LARGE)), 1, BLOCK_S / 2),
    }
    samples = await in_turn(sides, ROUNDS)
    ratio = median_ratio(samples["small"], samples["large"])
    return [Line(name="a lonely turn of 1,000,000 / of 1,000", value=ratio, target=at_most(1.2, aim=1.1))]


async def _unseen(running: Running, size: int) -> list[Line]:
    """The first commit of a turn (accept and begin) in chats nobody saw before, against chats that are stored."""
    numbers = count(size + random.getrandbits(31))
    known = random.sample(range(size), min(size, 20_000))
    sides = {
        "known": lambda: _first_steps(running, lambda place: chat_name(known[place % len(known)]), known),
        "unseen": lambda: _first_steps(running, lambda _: chat_name(next(numbers)), known),
    }
    samples = await in_turn(sides, ROUNDS)
    ratio = median_ratio(samples["known"], samples["unseen"])
    detail = f"{shown(rate(samples['unseen']))}/s against {shown(rate(samples['known']))}/s"
    return [
        Line(name=f"first message, unseen / known chat of {size:,}", value=ratio, target=at_most(1.5), detail=detail)
    ]


async def _first_steps(running: Running, chat_of: Callable[[int], str], known: list[int]) -> Sample:
    """Groups of 64 first steps; their turns are finished before the next group, off the clock."""
    random.shuffle(known)
    spent = cpu = 0.0
    for group in range(8):
        chats = [chat_of(group * SESSIONS + place) for place in range(SESSIONS)]
        began, cpu_began = time.perf_counter(), time.process_time()
        keys = await asyncio.gather(*map(running.accept, chats))
        spent += time.perf_counter() - began
        cpu += time.process_time() - cpu_began
        await asyncio.gather(*map(running.store.ended, keys))
    return Sample(8 * SESSIONS, spent, cpu)


def anywhere(numbers: range | list[int]) -> Callable[[int], str]:
    """A chat at random, never one that another session has chosen at the same time."""

    def choose(session: int) -> str:
        place = random.randrange(len(numbers) // SESSIONS) * SESSIONS + session
        return chat_name(numbers[place])

    return choose
