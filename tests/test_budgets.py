"""The seconds that tests may take only go down."""

from itertools import pairwise
from typing import Any

import pytest

from tests.budget import BUDGETS, raised
from tests.ratchets import git, versions

SLOW = "tests/test_slow.py"


def test_no_budget_was_ever_raised() -> None:
    since = [(commit, budgets) for commit, budgets in versions(BUDGETS) if budgets.get("only_down")]
    for (_, now), (commit, before) in pairwise(since):
        assert raised(before, now, git("ls-tree", "-r", "--name-only", commit, "tests").split()) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"seconds": 301}, ["test: seconds had 300 s and now has 301"]),
        ({"other_files": 21}, ["test: other_files had 20 s and now has 21"]),
        ({"files": {SLOW: 41}}, [f"test: {SLOW} had 40 s and now has 41"]),
        ({"files": {SLOW: 40, "tests/test_quick.py": 21}}, ["test: tests/test_quick.py had 20 s and now has 21"]),
        ({"files": {SLOW: 40, "tests/test_new.py": 90}}, []),
        ({"seconds": 200, "other_files": 10, "files": {}}, []),
    ],
)
def test_what_rises_is_seen(change: dict[str, Any], said: list[str]) -> None:
    before = {"seconds": 300, "other_files": 20, "files": {SLOW: 40}}
    there = [SLOW, "tests/test_quick.py"]
    assert raised({"only_down": True, "test": before}, {"test": before | change}, there) == said
