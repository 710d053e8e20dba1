"""One life of a gateway that talks to a homeserver in another process, and dies at the k-th hit of a crash point."""

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
from everturn.decide.admission import Verdict
from everturn.media import Media
from everturn.model import SessionSource
from everturn.platform.matrix import MatrixPlatform, MatrixSettings
from everturn.platform.matrix.wire import MARKS
from everturn.testing import World
from tests.crash.growing import SETTINGS, Growing
from tests.crash.pressing import QUESTION, Careful, Notes
from tests.synapse import Person
from tests.waiting import WAIT_S

DIED, DONE = 137, 0


@dataclass(frozen=True)
class MatrixLife:
    """What one process does: it lives until the answer is on the screen of the room, or dies before."""

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
    asks: bool = False  # whether the watcher is asked before a tool is used, and presses an emoji


def pressed(life: MatrixLife, watcher: Person) -> bool:
    """Press the first emoji of the newest question that they have seen; whether that was done, in this life or an earlier one."""

    def press() -> bool:
        asked = [each.id for each in watcher.seen.screen(life.room).by(life.user) if QUESTION in each.text]
        return bool(asked) and bool(watcher.reacts(life.room, asked[-1], MARKS[0]))

    return Notes.of(life.database).pressed(press)


async def _press(life: MatrixLife) -> None:
    with closing(Person(life.homeserver, *life.watcher)) as watcher:
        await watcher.until(lambda: pressed(life, watcher), WAIT_S)


async def _seen(life: MatrixLife, words: str) -> None:
    """Somebody in the room sees a message of ours that begins so."""
    with closing(Person(life.homeserver, *life.watcher)) as watcher:
        seen = watcher.seen
        await watcher.until(
            lambda: any(text.startswith(words) for text in seen.screen(life.room).texts(life.user)), WAIT_S
        )


def live(life: MatrixLife) -> None:
    """The process's whole life. A death runs no except, no finally, no callback."""
    reached: Counter[str] = Counter()
    points.install(_hook(life, reached))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_live(life))
    if life.visited:
        Path(life.visited).write_bytes(msgspec.json.encode(reached))
    os._exit(DONE)


async def _live(life: MatrixLife) -> None:
    settings = MatrixSettings(homeserver=life.homeserver, user=life.user, token=life.token)
    platform = MatrixPlatform(settings, SystemClock(), _everybody)
    media = Media(Path(f"{life.database.removeprefix('sqlite:///')}.files"))
    agent = Careful(Notes.of(life.database)) if life.asks else Growing(partial(_seen, life))
    world = World(life.database, agent, [platform], settings=SETTINGS, media=media)
    await world.start()
    if life.asks:
        await _press(life)
    await _seen(life, life.answer)
    await world.stop()


async def _everybody(_: SessionSource) -> Verdict:
    return Verdict.ALLOWED


def _hook(life: MatrixLife, reached: Counter[str]) -> Callable[[str], None]:
    def count(name: str) -> None:
        reached[name] += 1
        if name == life.point and reached[name] == life.hit:
            os._exit(DIED)

    return count
