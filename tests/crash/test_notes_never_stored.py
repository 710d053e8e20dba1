"""Promise 7: after very many random deaths no table of any home holds a word of any note. On PostgreSQL:
test_notes_never_stored_on_postgres.
"""

from pathlib import Path

import pytest

from tests.crash.random_deaths import die_at_random, files_in, kinds_missing

DEATHS = 720  # so many that every kind of note comes, though the machine, too, decides when a process dies
SEED = 20261115


@pytest.mark.prove
def test_no_table_holds_a_note_after_random_deaths(tmp_path: Path) -> None:
    """And every kind of note was really given to an agent."""
    homes = files_in(tmp_path)
    die_at_random(homes, DEATHS, SEED)
    assert kinds_missing(homes) == []
