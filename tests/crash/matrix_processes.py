"""One gateway that talks to a homeserver in another process, and dies at the k-th hit of a crash point."""

import asyncio
import os
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec
import uvloop

from everturn import points
from everturn.clock import SystemClock
from everturn.home.files import Media
from everturn.model import SessionSource
from everturn.people.rules.access import AccessVerdict
from everturn.platform.matrix import MatrixPlatform, MatrixSettings
from everturn.platform.matrix.wire import MARKS
from everturn.testing import World
from tests.crash.growing import SETTINGS, Growing
from tests.crash.pressing import REQUEST, Careful, Notes
from tests.synapse import Person
from tests.waiting import WAIT_S

DIED, DONE = 137, 0


@dataclass(frozen=True)
class MatrixCrashProcess:
    """What one process does: it runs until the answer is on the screen of the room, or dies before."""

    database: str
    homeserver: str
    user: str
    token: str
    watcher: tuple[str, str]  # a person in the room, and their token
    room: str
    answer: str  # how it begins
    point: str = ""
    hit: int = 0
    visited: str = ""  # a file for how often each point was reached
    asks: bool = False  # whether a tool needs the watcher's approval, who presses an emoji


def pressed(process: MatrixCrashProcess, watcher: Person) -> bool:
    """Press the first emoji of the newest approval request; whether that was done, in this process or an earlier one."""

    def press() -> bool:
        asked = [each.id for each in watcher.seen.screen(process.room).by(process.user) if REQUEST in each.text]
        return bool(asked) and bool(watcher.reacts(process.room, asked[-1], MARKS[0]))

    return Notes.of(process.database).pressed(press)


async def _press(process: MatrixCrashProcess) -> None:
    with closing(Person(process.homeserver, *process.watcher)) as watcher:
        await watcher.until(lambda: pressed(process, watcher), WAIT_S)


async def _seen(process: MatrixCrashProcess, text: str) -> None:
    """Wait until somebody in the room sees a message of ours that begins so."""
    with closing(Person(process.homeserver, *process.watcher)) as watcher:
        seen = watcher.seen
        await watcher.until(
            lambda: any(shown.startswith(text) for shown in seen.screen(process.room).texts(process.user)), WAIT_S
        )


def run_to_exit(process: MatrixCrashProcess) -> None:
    """Run the whole process. A death runs no except, no finally, no callback."""
    reached: Counter[str] = Counter()
    points.install(_hook(process, reached))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_run(process))
    if process.visited:
        Path(process.visited).write_bytes(msgspec.json.encode(reached))
    os._exit(DONE)


async def _run(process: MatrixCrashProcess) -> None:
    settings = MatrixSettings(homeserver=process.homeserver, user=process.user, token=process.token)
    platform = MatrixPlatform(settings, SystemClock(), _everybody)
    media = Media(Path(f"{process.database.removeprefix('sqlite:///')}.files"))
    agent = Careful(Notes.of(process.database)) if process.asks else Growing(partial(_seen, process))
    world = World(process.database, agent, [platform], settings=SETTINGS, media=media)
    await world.start()
    if process.asks:
        await _press(process)
    await _seen(process, process.answer)
    await world.stop()


async def _everybody(_: SessionSource) -> AccessVerdict:
    return AccessVerdict.ALLOWED


def _hook(process: MatrixCrashProcess, reached: Counter[str]) -> Callable[[str], None]:
    def count(name: str) -> None:
        reached[name] += 1
        if name == process.point and reached[name] == process.hit:
            os._exit(DIED)

    return count
