"""What a process that died at a point would leave behind, without its death: it is stopped there, everything that outlives it is
copied, and it goes on to the next one.

A stopped process does nothing any more, in any of its threads; what it had not given to the disk, the database or the platform is
not in the copy. A death could leave nothing else, and takes a process for each hit.
"""

import asyncio
import os
import shutil
import signal
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path

from tests.crash.lives import DONE, Life, live
from tests.crash.processes import CONTEXT, LONGEST_S
from tests.postgres import Rows, caretaker
from tests.waiting import poll


@dataclass(frozen=True)
class Image:
    """The home at the k-th hit of a point: its folder, and on PostgreSQL the rows."""

    point: str
    hit: int
    folder: Path
    rows: Rows

    def restored(self, life: Life) -> Life:
        """The life that begins with what was left here."""
        if not self.rows:
            return replace(life, url=f"sqlite:///{self.folder / 'everturn.db'}", folder=self.folder)
        caretaker(life.url).put(self.rows)
        return replace(life, folder=self.folder)


def live_with_stops(life: Life, tells: Connection, points: Collection[str]) -> None:
    """The whole process: it says what it reaches, and stops where somebody takes an image of it."""

    def reached(name: str) -> None:
        tells.send_bytes(name.encode())
        if name in points:
            os.kill(os.getpid(), signal.SIGSTOP)

    live(life, reached)


def images_of(life: Life, points: Collection[str]) -> Iterator[Image]:
    """Live it to its end, and take an image at each hit of these points."""
    told, tells = CONTEXT.Pipe(duplex=False)
    process = CONTEXT.Process(target=live_with_stops, args=(life, tells, points))
    process.start()
    tells.close()
    try:
        yield from _taken(life, points, told, process.pid or 0)
        process.join(LONGEST_S)
        assert process.exitcode == DONE, process.exitcode
    finally:
        process.kill()
        process.join()
        process.close()
        told.close()


def _taken(life: Life, points: Collection[str], told: Connection, process: int) -> Iterator[Image]:
    hits: Counter[str] = Counter()
    for point in _reached(told):
        hits[point] += 1
        if point not in points:
            continue
        asyncio.run(poll(lambda: is_stopped(process), every_s=0.0005))
        folder = life.folder.with_name(f"{life.folder.name}-{point}-{hits[point]}")
        shutil.copytree(life.folder, folder)
        rows = {} if life.url.startswith("sqlite") else caretaker(life.url).rows()
        os.kill(process, signal.SIGCONT)
        yield Image(point, hits[point], folder, rows)


def _reached(told: Connection) -> Iterator[str]:
    """The points, one after the other, until the process ends."""
    while told.poll(LONGEST_S):
        try:
            yield told.recv_bytes().decode()
        except EOFError:
            return


def is_stopped(process: int) -> bool:
    """Whether none of its threads runs any more."""
    tasks = [task / "stat" for task in Path(f"/proc/{process}/task").iterdir()]
    return all(task.read_text().rpartition(")")[2].split()[0] == "T" for task in tasks)
