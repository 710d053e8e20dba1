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
from tests.waiting import WAIT_S

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

    def __init__(self, clock: SystemClock, neighbours: int, steps: int) -> None:
        self._clock = clock
        self._neighbours = neighbours
        self._steps = steps
        self._at_work: set[str] = set()
        self._all_at_work = asyncio.Event()

    async def run(self, turn: TurnContext) -> Answer:
        """Work or kill."""
        await turn.calling()
        if turn.text == KILLER:
            await self._kill(turn.attempt)
        self._at_work.add(turn.text)
        if len(self._at_work) == self._neighbours:
            self._all_at_work.set()
        done = sum(row.role == "assistant" for row in await turn.own())
        for number in range(done, self._steps):
            await turn.step(f"step {number}", [], self._act)
            await self._clock.sleep(0.1)
        return Answer(answer_to(turn.text))

    async def _kill(self, attempt: int) -> None:
        if attempt < 3:  # later it runs alone among suspects, and does not wait for anybody
            await self._all_at_work.wait()
        kill_this_process()

    async def _act(self, call: ToolCall, key: str) -> str:
        raise AssertionError(f"no tool was asked for: {call} {key}")


def live(crowd: Crowd) -> None:
    """Run until every neighbour is answered, or the process is killed."""
    asyncio.run(_live(crowd))


async def _live(crowd: Crowd) -> None:
    platform = FakePlatform(file=crowd.folder / "platform")
    names, half = crowd.neighbours, crowd.size // 2
    unanswered = [name for name in names if not platform.texts(name)]
    async with World(crowd.url, Crowded(SystemClock(), len(unanswered), crowd.steps), [platform]):
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
