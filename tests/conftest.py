"""Fixtures every folder may use: a real PostgreSQL, a fresh store address on each engine, and a real Matrix homeserver."""

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import structlog
import uvloop
from hypothesis import settings

from tests.empty import EmptyFile
from tests.postgres import PostgresServer, empty_database, memory
from tests.servers import Run, shared_postgres, shared_synapse
from tests.synapse import SynapseServer

pytest_plugins = ["tests.budget"]
pytest.register_assert_rewrite("everturn.testing.platform")  # what is asked of platforms tells what it found instead
# No test asserts a time: a busy machine is no fault. No test draws lots: `make torture` does.
settings.register_profile("everturn", deadline=None, derandomize=True, database=None)
settings.load_profile("everturn")
# The files of tests are where no disk slows them down; what a killed process wrote there stays.
os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", memory() or "")
# Each connection to PostgreSQL would begin with a question about TLS, and a TLS context made for the answer "no".
os.environ["PGSSLMODE"] = "disable"
# What a test logs is printed if it fails. A traceback in frames and colours, structlog's own, takes half a second.
structlog.configure(
    processors=[
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.format_exc_info,
        structlog.dev.ConsoleRenderer(colors=False),
    ]
)

RUN = pytest.StashKey[Run]()


def pytest_configure(config: pytest.Config) -> None:
    """Restore signals that a background shell ignores: every program that a test starts would ignore them as well."""
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)
    if not hasattr(config, "workerinput"):  # the process that began the run, not one of its workers
        config.stash[RUN] = Run()


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the servers that the tests shared."""
    run = config.stash.get(RUN, None)
    if run is not None:
        run.end()


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Tests run on the loop that the gateway runs on."""
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture(scope="session", autouse=True)
def own_state(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Credentials are locked for the whole machine; a worker's gateways must not meet those of another, or yours."""
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))


@pytest.fixture(scope="session")
def postgres() -> PostgresServer:
    """The server that all tests share. A test that stops one uses `own_postgres`."""
    return shared_postgres()


@pytest.fixture
def own_postgres() -> Iterator[PostgresServer]:
    """A running server that this test alone uses, and may stop."""
    with PostgresServer() as server:
        yield server


@pytest.fixture
def database_url(postgres: PostgresServer) -> Iterator[str]:
    """The address of an empty PostgreSQL database that this test alone uses."""
    url = postgres.create_database()
    yield url
    postgres.drop_database(url)


@pytest.fixture(scope="session")
def reused_database(postgres: PostgresServer) -> str:
    """One database of this worker for all tests that want an empty store: it is emptied for each."""
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
    url: str = request.getfixturevalue("reused_database")
    empty_database(url)
    return url


@pytest.fixture(params=["sqlite", "postgres"])
def fresh_store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a store without any schema, once on each engine: for tests that bring their own."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'everturn.db'}"
    url: str = request.getfixturevalue("database_url")
    return url


@pytest.fixture(scope="session")
def synapse() -> Iterator[SynapseServer]:
    """The homeserver that all tests share. Its people stay: a test asks for strangers of its own. A test that stops one uses
    `own_synapse`.
    """
    server = shared_synapse()
    yield server
    server.disconnect()


@pytest.fixture
def own_synapse() -> Iterator[SynapseServer]:
    """A running homeserver that this test alone uses, and may stop."""
    with SynapseServer() as server:
        yield server
