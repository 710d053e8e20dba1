"""Run long turns beside one that kills the process every time, as a process of its own."""

import asyncio
import multiprocessing
import signal
from dataclasses import dataclass
from pathlib import Path

from everturn.agent.demo import kill_this_process
from everturn.agent.interface import Answer, TurnContext
from everturn.clock import SystemClock
from everturn.model import ToolCall
from everturn.testing import FakePlatform, World
from tests.scenes import answer_to
from tests.waiting import WAIT_S, poll

KILLER = "killer"
DIED = -signal.SIGKILL
LONGEST_S = 4 * WAIT_S  # of a process: all turns take turns on the machine
_context = multiprocessing.get_context("forkserver")


@dataclass(frozen=True)
class Crowd:
    """The number of neighbours, the steps each takes, and where all of it is stored."""

    url: str
    folder: Path
    size: int
    steps: int

    @property
    def neighbours(self) -> list[str]:
        """The names of the neighbours."""
        return [f"neighbour {number}" for number in range(self.size)]


class Crowded:
    """Neighbours take a step now and then; the killer waits until as many run beside it as can, then ends everything."""

    def __init__(self, clock: SystemClock, platform: FakePlatform, crowd: Crowd) -> None:
        self._clock = clock
        self._platform = platform
        self._crowd = crowd
        self._at_work: set[str] = set()

    async def run(self, turn: TurnContext) -> Answer:
        """Work or kill."""
        await turn.calling()
        if turn.text == KILLER:
            await self._kill(turn.attempt)
        self._at_work.add(turn.text)
        done = sum(row.role == "assistant" for row in await turn.own())
        for number in range(done, self._crowd.steps):
            await turn.step(f"step {number}", [], self._act)
            await self._clock.sleep(0.1)
        return Answer(answer_to(turn.text))

    async def _kill(self, attempt: int) -> None:
        if attempt < 3:  # later it runs alone among suspects, and does not wait for anybody
            await poll(self._all_at_work, LONGEST_S)
        kill_this_process()

    def _all_at_work(self) -> bool:
        """Whether every neighbour runs, or has its answer: one that an earlier process committed is only sent now."""
        return all(name in self._at_work or self._platform.texts(name) for name in self._crowd.neighbours)

    async def _act(self, call: ToolCall, key: str) -> str:
        raise AssertionError(f"no tool was asked for: {call} {key}")


def live(crowd: Crowd) -> None:
    """Run until every neighbour is answered, or the process is killed."""
    asyncio.run(_live(crowd))


async def _live(crowd: Crowd) -> None:
    platform = FakePlatform(file=crowd.folder / "platform")
    names, half = crowd.neighbours, crowd.size // 2
    async with World(crowd.url, Crowded(SystemClock(), platform, crowd), [platform]):
        for name in (*names[:half], KILLER, *names[half:]):
            platform.say_once(name, name)
        await platform.until(lambda: all(answer_to(name) in platform.texts(name) for name in names), LONGEST_S)


def run(crowd: Crowd) -> int:
    """Run one process; returns its exit code."""
    process = _context.Process(target=live, args=(crowd,))
    process.start()
    process.join(2 * LONGEST_S)  # it says itself what did not come in time
    process.kill()
    return -1 if process.exitcode is None else process.exitcode
