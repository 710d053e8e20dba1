"""Fresh homes for processes that die: a folder, a database on one of the engines, and a platform with nothing on its screen."""

import itertools
from pathlib import Path

from everturn.outbox.rules.delivery import Surety
from tests.crash.gateway_process import CrashProcess, Death
from tests.crash.models import ModelProcess
from tests.empty import EmptyFile
from tests.postgres import empty_database


class Homes:
    """Makes one home after the other. On PostgreSQL they share a database, which is emptied for each."""

    def __init__(self, folder: Path, empty: EmptyFile, model: ModelProcess, database: str = "") -> None:
        self.model = model
        self._folder = folder
        self._empty = empty
        self._database = database
        self._count = itertools.count(1)

    def fresh(self, scenario: str, death: Death | None = None, surety: Surety = Surety.KEYED) -> CrashProcess:
        """A process in a new home."""
        folder = self._folder / str(next(self._count))
        folder.mkdir()
        return CrashProcess(scenario, self._new_database(folder), folder, death, surety)

    def _new_database(self, folder: Path) -> str:
        if not self._database:
            return self._empty.copy(folder)
        empty_database(self._database)
        return self._database
