"""Every platform is asked the questions of `everturn.testing.platform`. A new one joins by its driver, and one line here."""

from pathlib import Path

import pytest

from everturn.testing.platform import ContractQuestion, Driver, questions_for
from tests.contracts.folder import FolderDriver
from tests.contracts.matrix import MatrixDriver
from tests.contracts.platform import CardDriver, EditingDriver, FakeDriver, FileDriver, RemoteDriver
from tests.contracts.telegram import HookDriver, TelegramDriver

Kind = type[FakeDriver | FolderDriver | TelegramDriver | MatrixDriver]
DRIVERS: dict[str, Kind] = {
    "fake": FakeDriver,
    "editing": EditingDriver,
    "cards": CardDriver,
    "files": FileDriver,
    "remote": RemoteDriver,
    "folder": FolderDriver,
    "telegram": TelegramDriver,
    "telegram-hook": HookDriver,
    "matrix": MatrixDriver,
}
ASKED = [
    pytest.param(kind, question, id=f"{kind}-{question}")
    for kind, each in DRIVERS.items()
    for question in questions_for(each.offers, each.failures)
]


@pytest.fixture
def driver(request: pytest.FixtureRequest, kind: str, tmp_path: Path) -> Driver:
    made = DRIVERS[kind]
    if issubclass(made, MatrixDriver):
        return made(tmp_path, request.getfixturevalue("synapse"))
    return made(tmp_path)


@pytest.mark.parametrize(("kind", "question"), ASKED)
async def test_every_platform_keeps_the_contract(question: ContractQuestion, driver: Driver, tmp_path: Path) -> None:
    async with driver:
        await question(driver, tmp_path)
