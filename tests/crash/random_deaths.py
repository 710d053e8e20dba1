"""Processes that do random things and die at random, one after the other in the same homes; and what is then in their tables."""

import asyncio
import signal
from multiprocessing.process import BaseProcess
from pathlib import Path

from everturn.store.interface import Op, sql
from everturn.store.open import open_store
from everturn.testing import FakePlatform
from tests.crash.processes import CONTEXT
from tests.crash.random_processes import RandomCrashProcess, run_to_exit
from tests.promises import NOTE
from tests.waiting import WAIT_S

SQLITE_HOMES = 3
KINDS = ("interruption", "restart.", "shutdown", "tool result", "suspended", "inactive", "too long ago")
COLUMNS = {
    "sqlite": "SELECT m.name, c.name FROM sqlite_master m JOIN pragma_table_info(m.name) c WHERE m.type='table' AND c.type='TEXT'",
    "postgresql": "SELECT table_name, column_name FROM information_schema.columns"
    " WHERE table_schema='public' AND data_type='text'",
}


class Home:
    """A home in which one process follows another."""

    def __init__(self, url: str, folder: Path) -> None:
        folder.mkdir()
        self.url = url
        self.folder = folder
        self._process: BaseProcess | None = None

    def start_next(self, seed: int) -> bool:
        """Start the next process when the last one has ended; whether that one ended as it should."""
        fine = self.ended()
        self._process = CONTEXT.Process(target=run_to_exit, args=(RandomCrashProcess(self.url, self.folder, seed),))
        self._process.start()
        return fine

    def ended(self) -> bool:
        """Wait for the end of the last process; anything but a death or a planned end is a fault."""
        if self._process is None:
            return True
        self._process.join(4 * WAIT_S)
        code = self._process.exitcode
        self._process.kill()
        return code in {0, -signal.SIGKILL}

    def notes(self) -> list[str]:
        """The notes that agents were really given here."""
        file = self.folder / "notes"
        return file.read_text().splitlines() if file.exists() else []

    def accepted(self) -> set[str]:
        """What people wrote here and a gateway acknowledged. Some processes die before they read anything."""
        platform = FakePlatform(file=self.folder / "platform")
        return {said.text for said in platform.said()[: platform.acknowledged]}


def kinds_missing(homes: list[Home]) -> list[str]:
    """The kinds of notes that no agent was given yet."""
    notes = [note for home in homes for note in home.notes()]
    return [text for text in KINDS if not any(text in note for note in notes)]


def text_columns(engine: str) -> Op[list[tuple[str, str]]]:
    rows = yield sql(COLUMNS[engine])
    return [(row[0], row[1]) for row in rows]


def holding(table: str, column: str, text: str) -> Op[int]:
    rows = yield sql(f'SELECT count(*) FROM "{table}" WHERE "{column}" LIKE $1', f"%{text}%")
    return int(rows[0][0])


async def found_in(url: str, text: str) -> dict[str, int]:
    """Where a text is stored, column by column."""
    store = await open_store(url)
    try:
        columns = await store.read(text_columns, url.partition(":")[0])
        return {f"{table}.{column}": await store.read(holding, table, column, text) for table, column in columns}
    finally:
        await store.close()


def files_in(folder: Path) -> list[Home]:
    """Several homes on SQLite."""
    return [Home(f"sqlite:///{folder / str(n) / 'everturn.db'}", folder / str(n)) for n in range(SQLITE_HOMES)]


def die_at_random(homes: list[Home], deaths: int, seed: int) -> None:
    """Promise 7: after so many deaths no table of any home holds a word of any note."""
    for number in range(deaths):
        assert homes[number % len(homes)].start_next(seed + number), f"process {number - len(homes)}"
    assert all(home.ended() for home in homes)
    for home in homes:
        found = asyncio.run(found_in(home.url, NOTE))
        assert len(found) > 30
        assert {column: rows for column, rows in found.items() if rows} == {}
        for text in home.accepted():  # a text that was taken is found: so a note would have been
            assert sum(asyncio.run(found_in(home.url, text)).values()) > 0, text
    assert any(home.accepted() for home in homes)
