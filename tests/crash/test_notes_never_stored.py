"""Promise 7: after very many random deaths no table of any home holds a word of any note."""

from pathlib import Path

import pytest

from tests.crash.random_deaths import die_at_random, unheard

DEATHS = 960  # so many that every kind of note comes, though when a process dies is also the machine's affair
SEED = 20261115


@pytest.mark.prove
def test_no_table_holds_a_note_after_random_deaths(tmp_path: Path, database_url: str) -> None:
    """And every kind of note was really given to an agent."""
    assert unheard(die_at_random(tmp_path, database_url, DEATHS, SEED)) == []
