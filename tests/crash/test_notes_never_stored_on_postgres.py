"""Promise 7 on PostgreSQL: after many random deaths no table holds a word of any note."""

from pathlib import Path

import pytest

from tests.crash.random_deaths import KINDS, Home, die_at_random, kinds_missing

DEATHS = 240
SEED = 20261116


@pytest.mark.prove
def test_no_table_of_postgresql_holds_a_note_after_random_deaths(tmp_path: Path, database_url: str) -> None:
    """Notes were really given to an agent; that every kind of them comes is asked of the many deaths on SQLite."""
    homes = [Home(database_url, tmp_path / "postgres")]
    die_at_random(homes, DEATHS, SEED)
    assert len(kinds_missing(homes)) < len(KINDS)
