"""Processes that do random things and die at random: for what must hold after any number of deaths, in any order.

Everything random comes from the seed; only the order in which tasks and threads meet is the machine's.
"""

import asyncio
import os
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from everturn import points
from everturn.agent.demo import kill_this_process
from everturn.agent.interface import Answer, TurnContext
from everturn.lifecycle.settings import Policies, Settings
from everturn.model import Effect, ToolCall
from everturn.sessions.rules.notes import with_note
from everturn.sessions.rules.reset_policy import ResetPolicy
from everturn.testing import FakePlatform, World

CHATS = ("one", "two", "three")
TEXTS = ("hello", "tool", "tool tool", "tool fail", "fail", "wait", "tool wait", "/stop", "/new", "/resume", "/status")
MOMENTS_MOST = (12, 60)
LONGEST_S = 0.1
SETTINGS = (
    Settings(drain_s=0.0, burst_s=0.0, in_flight_s=0.0),
    Settings(drain_s=0.0, burst_s=0.0, in_flight_s=0.0, stuck_after=0, unclean_boots=0),
    Settings(drain_s=0.0, burst_s=0.0, in_flight_s=0.0, resume="on_message"),
    Settings(
        drain_s=0.0,
        burst_s=0.0,
        in_flight_s=0.0,
        unclean_boots=0,
        policies=Policies(default=ResetPolicy("idle", idle_minutes=0.002)),
    ),
    Settings(
        drain_s=0.0,
        burst_s=0.0,
        in_flight_s=0.0,
        fresh_s=0.05,
        policies=Policies(default=ResetPolicy("idle", idle_minutes=1)),
    ),
)


@dataclass(frozen=True)
class RandomCrashProcess:
    """One process in a home that has seen others."""

    url: str
    folder: Path
    seed: int


class Listener:
    """Makes a request with the note for a model that is not there, and logs the note to a file that outlives the process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def run(self, turn: TurnContext) -> Answer:
        """Do what the text says; the request with the note is made, and stored nowhere."""
        turn.calling()
        request = with_note(turn.note, turn.text)
        if turn.note:
            self._log(turn.note)
        if turn.attempt > 1:
            await turn.settle(self._act)
        for place, word in enumerate(turn.text.split()):
            if word == "tool":
                await turn.step("", [ToolCall(f"{turn.attempt}/{place}", "tool", effect=Effect.IDEMPOTENT)], self._act)
            elif word == "wait" and turn.attempt == 1:
                await asyncio.Event().wait()
            elif word == "fail":
                raise RuntimeError("the model is not there")
        return Answer(f"{len(request)} characters read: {turn.text}")

    async def _act(self, call: ToolCall, key: str) -> str:
        return f"{call.id} {key} done"

    def _log(self, note: str) -> None:
        number = os.open(self._folder / "notes", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(number, f"{note}\n".encode())
        os.close(number)


def run_to_exit(process: RandomCrashProcess) -> None:
    """Run the whole process: it dies at a random moment, or a little later wherever it is."""
    chance = random.Random(process.seed)
    points.install(_die_at(chance.randint(1, chance.choice(MOMENTS_MOST))))
    asyncio.run(_run(process, chance))


def _die_at(moment: int) -> Callable[[str], None]:
    hits = 0

    def reached(_name: str) -> None:
        nonlocal hits
        hits += 1
        if hits == moment:
            kill_this_process()

    return reached


async def _run(process: RandomCrashProcess, chance: random.Random) -> None:
    platform = FakePlatform(file=process.folder / "platform")
    world = World(process.url, Listener(process.folder), [platform], settings=chance.choice(SETTINGS))
    await world.start()
    for _ in range(chance.randint(1, 4)):
        platform.say(chance.choice(CHATS), chance.choice(TEXTS))
    ending, shown = chance.choice(("restart", "stop", "death")), len(platform.screen) + chance.randint(0, 3)
    with suppress(TimeoutError):
        await platform.until(lambda: heard_all(platform) and len(platform.screen) >= shown, LONGEST_S)
    if ending == "death":
        kill_this_process()
    await world.stop(ending)


def heard_all(platform: FakePlatform) -> bool:
    """Whether everything people said was taken."""
    return platform.acknowledged == len(platform.said())
