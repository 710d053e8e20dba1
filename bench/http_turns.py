"""Turns over real HTTP: 64 chats at once, and one lonely chat with its syncs."""

from __future__ import annotations

import time

from bench.disk import folder
from bench.report import Line, at_most, say
from bench.rounds import Sample, commits, in_turn, median_ratio, rate
from bench.running import Running
from bench.serving import HOST, TOKEN, front_of
from bench.watching import Talk, talk
from bench.yardstick import Yardstick
from everturn.web.wire.server import Serving

METHOD = (
    "a client process posts a message, waits for the turn's `answered` on the chat's event stream, posts the next; "
    "64 chats at once against the indexed yardstick in turn, then one chat alone (syncs = commits of the store)"
)
SESSIONS = 64
ROUNDS = 3
BLOCK_S = 2.0
LONELY_TURNS = 200


class HttpTurns:
    """Blocks of turns over HTTP with one gateway."""

    def __init__(self, running: Running, serving: Serving) -> None:
        self._running = running
        self._serving = serving
        self._blocks = 0

    async def measure(self, chats: int, turns: int | None = None) -> Sample:
        """One block."""
        self._blocks += 1
        before, cpu = self._running.store.commits, time.process_time()
        port, name = self._serving.port, f"chat-{self._blocks}"
        done, seconds = await talk(Talk(HOST, port, TOKEN, chats, BLOCK_S if turns is None else 60.0, name, turns))
        return Sample(done, seconds, time.process_time() - cpu, self._running.store.commits - before)


async def measure() -> list[Line]:
    """Many, then one."""
    with folder() as path:
        yardstick = Yardstick(path / "yardstick.db")
        running = await Running.open(f"sqlite:///{path / 'everturn.db'}", api=True)
        async with front_of(running) as serving:
            http = HttpTurns(running, serving)
            sides = {"yardstick": lambda: yardstick.measure(SESSIONS, BLOCK_S), "http": lambda: http.measure(SESSIONS)}
            samples = await in_turn(sides, ROUNDS)
            say("  64 chats measured; now one alone")
            lonely = [await http.measure(1, LONELY_TURNS) for _ in range(2)]
        await running.close()
        yardstick.close()
    ours = samples["http"]
    return [
        Line(name="turns/s of the gateway over HTTP", value=rate(ours), unit="turns/s"),
        Line(name="gateway over HTTP / indexed yardstick", value=median_ratio(ours, samples["yardstick"])),
        Line(name="syncs a turn over HTTP, 64 at once", value=commits(ours), unit="", target=at_most(0.15)),
        Line(name="syncs a turn over HTTP, one lonely chat", value=commits(lonely), unit="", target=at_most(5)),
        Line(name="one lonely turn over HTTP", value=1000 / rate(lonely), unit="ms"),
    ]
