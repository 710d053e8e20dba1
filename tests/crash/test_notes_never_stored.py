"""Promise 7: after very many random deaths no table of any home holds a word of any note."""

import asyncio
import multiprocessing
import signal
from collections.abc import Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from everturn.store.interface import Op, sql
from everturn.store.open import open_store
from tests.crash.random_lives import RandomLife, live
from tests.history import NOTE
from tests.postgres import PostgresServer

DEATHS = 240
TORTURE_DEATHS = 1000
SQLITE_HOMES = 3
POSTGRES_HOMES = 1
SEED = 20261115
KINDS = ("interruption", "restart.", "shutdown", "tool result", "suspended", "inactive", "too long ago")
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    ["tests.crash.lives", "tests.crash.random_lives", "everturn.store.sqlite", "everturn.store.postgres"]
)
COLUMNS = {
    "sqlite": "SELECT m.name, c.name FROM sqlite_master m JOIN pragma_table_info(m.name) c WHERE m.type='table' AND c.type='TEXT'",
    "postgresql": "SELECT table_name, column_name FROM information_schema.columns"
    " WHERE table_schema='public' AND data_type='text'",
}


class Home:
    """A home in which one life follows another."""

    def __init__(self, url: str, folder: Path) -> None:
        folder.mkdir()
        self.url = url
        self.folder = folder
        self._process: BaseProcess | None = None

    def live(self, seed: int) -> bool:
        """Begin the next life when the last one is over; whether that one ended as it should."""
        fine = self.ended()
        self._process = CONTEXT.Process(target=live, args=(RandomLife(self.url, self.folder, seed),))
        self._process.start()
        return fine

    def ended(self) -> bool:
        """Wait for the last life's end; anything but a death or a planned end is a fault."""
        if self._process is None:
            return True
        self._process.join(120)
        code = self._process.exitcode
        self._process.kill()
        return code in {0, -signal.SIGKILL}

    def notes(self) -> list[str]:
        """The notes that agents were really given here."""
        file = self.folder / "notes"
        return file.read_text().splitlines() if file.exists() else []


@pytest.fixture
def homes(tmp_path: Path, postgres: PostgresServer) -> Iterator[list[Home]]:
    found = [Home(f"sqlite:///{tmp_path / str(n) / 'everturn.db'}", tmp_path / str(n)) for n in range(SQLITE_HOMES)]
    found += [Home(postgres.create_database(), tmp_path / f"postgres{n}") for n in range(POSTGRES_HOMES)]
    yield found
    for home in found[SQLITE_HOMES:]:
        postgres.drop_database(home.url)


def unheard(homes: list[Home]) -> list[str]:
    """The kinds of notes that no agent was given yet."""
    notes = [note for home in homes for note in home.notes()]
    return [words for words in KINDS if not any(words in note for note in notes)]


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


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("deaths", [DEATHS, pytest.param(TORTURE_DEATHS, marks=pytest.mark.torture)])
def test_no_table_holds_a_note_after_random_deaths(homes: list[Home], deaths: int) -> None:
    for number in range(4 * deaths):
        if number >= deaths and not unheard(homes):  # when a life dies is chance: some kinds may take longer to come
            break
        assert homes[number % len(homes)].live(SEED + number), f"seed {SEED + number - len(homes)}"
    assert all(home.ended() for home in homes)
    assert unheard(homes) == []
    for home in homes:
        found = asyncio.run(found_in(home.url, NOTE))
        assert len(found) > 30
        assert {column: rows for column, rows in found.items() if rows} == {}
        assert sum(asyncio.run(found_in(home.url, "hello")).values()) > 10
