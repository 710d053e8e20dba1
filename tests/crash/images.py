"""Images of what a process that died at a point would leave behind: it is stopped there, everything that outlives it is
copied, and it goes on to the next point.

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

from tests.crash.gateway_process import DONE, CrashProcess, run_to_exit
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

    def restored(self, gateway_process: CrashProcess) -> CrashProcess:
        """The process that starts with what was left here."""
        if not self.rows:
            return replace(gateway_process, url=f"sqlite:///{self.folder / 'everturn.db'}", folder=self.folder)
        caretaker(gateway_process.url).put(self.rows)
        return replace(gateway_process, folder=self.folder)


def run_with_stops(gateway_process: CrashProcess, reporter: Connection, points: Collection[str]) -> None:
    """Run the whole process: it reports each point that it reaches, and stops where an image is taken."""

    def reached(name: str) -> None:
        reporter.send_bytes(name.encode())
        if name in points:
            os.kill(os.getpid(), signal.SIGSTOP)

    run_to_exit(gateway_process, reached)


def images_of(gateway_process: CrashProcess, points: Collection[str]) -> Iterator[Image]:
    """Run it to its end, and take an image at each hit of these points."""
    reports, reporter = CONTEXT.Pipe(duplex=False)
    process = CONTEXT.Process(target=run_with_stops, args=(gateway_process, reporter, points))
    process.start()
    reporter.close()
    try:
        yield from _taken(gateway_process, points, reports, process.pid or 0)
        process.join(LONGEST_S)
        assert process.exitcode == DONE, process.exitcode
    finally:
        process.kill()
        process.join()
        process.close()
        reports.close()


def _taken(
    gateway_process: CrashProcess, points: Collection[str], reports: Connection, process: int
) -> Iterator[Image]:
    hits: Counter[str] = Counter()
    for point in _reached(reports):
        hits[point] += 1
        if point not in points:
            continue
        asyncio.run(poll(lambda: is_stopped(process), every_s=0.0005))
        folder = gateway_process.folder.with_name(f"{gateway_process.folder.name}-{point}-{hits[point]}")
        shutil.copytree(gateway_process.folder, folder)
        rows = {} if gateway_process.url.startswith("sqlite") else caretaker(gateway_process.url).rows()
        os.kill(process, signal.SIGCONT)
        yield Image(point, hits[point], folder, rows)


def _reached(reports: Connection) -> Iterator[str]:
    """The points, one after the other, until the process ends."""
    while reports.poll(LONGEST_S):
        try:
            yield reports.recv_bytes().decode()
        except EOFError:
            return


def is_stopped(process: int) -> bool:
    """Whether none of its threads runs any more."""
    tasks = [task / "stat" for task in Path(f"/proc/{process}/task").iterdir()]
    return all(task.read_text().rpartition(")")[2].split()[0] == "T" for task in tasks)
