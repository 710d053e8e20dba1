"""Fixtures every folder may use: a real PostgreSQL, and a fresh store address on each engine."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.postgres import PostgresServer


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


@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty store, once on each engine."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'everturn.db'}"
    url: str = request.getfixturevalue("database_url")
    return url
