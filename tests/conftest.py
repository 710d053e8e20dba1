"""Fixtures every folder may use: a real PostgreSQL, a fresh store address on each engine, and a real Matrix homeserver."""

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest
from hypothesis import settings

from tests.empty import EmptyFile
from tests.postgres import PostgresServer, empty_database
from tests.synapse import SynapseServer

pytest.register_assert_rewrite("everturn.testing_platform")  # what is asked of platforms tells what it found instead
settings.register_profile("everturn", deadline=None)  # no test asserts a time: a busy machine is no fault
settings.load_profile("everturn")


def pytest_configure() -> None:
    """Who runs the tests in the background ignores these signals, and every program that a test starts would as well."""
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


@pytest.fixture(scope="session", autouse=True)
def own_state(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Credentials are locked for the whole machine; a worker's gateways must not meet those of another, or yours."""
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """One running server for the whole session. A test that stops it must start it again."""
    with PostgresServer() as server:
        yield server


@pytest.fixture
def database_url(postgres: PostgresServer) -> Iterator[str]:
    """The address of an empty PostgreSQL database that this test alone uses."""
    postgres.start()
    url = postgres.create_database()
    yield url
    postgres.start()
    postgres.drop_database(url)


@pytest.fixture(scope="session")
def reused_database(postgres: PostgresServer) -> str:
    """One database for all tests that want an empty store: it is emptied for each."""
    return postgres.create_database()


@pytest.fixture(scope="session")
def empty_file(tmp_path_factory: pytest.TempPathFactory) -> EmptyFile:
    """What the stores of this session on SQLite begin as."""
    return EmptyFile(tmp_path_factory.mktemp("empty"))


@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty store, once on each engine."""
    if request.param == "sqlite":
        empty: EmptyFile = request.getfixturevalue("empty_file")
        return empty.copy(tmp_path)
    server: PostgresServer = request.getfixturevalue("postgres")
    url: str = request.getfixturevalue("reused_database")
    try:
        asyncio.run(empty_database(url))
    except (OSError, asyncpg.PostgresError):  # a test stopped it
        server.start()
        asyncio.run(empty_database(url))
    return url


@pytest.fixture(params=["sqlite", "postgres"])
def fresh_store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a store without any schema, once on each engine: for tests that bring their own."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'everturn.db'}"
    url: str = request.getfixturevalue("database_url")
    return url


@pytest.fixture(scope="session")
def synapse_server() -> Iterator[SynapseServer]:
    """One homeserver for the whole session. Its people stay: a test asks for strangers of its own."""
    with SynapseServer() as server:
        yield server


@pytest.fixture
def synapse(synapse_server: SynapseServer) -> SynapseServer:
    """The homeserver, running, whatever an earlier test did to it."""
    synapse_server.start()
    return synapse_server
