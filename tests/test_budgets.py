"""The seconds that tests may take only go down."""

import subprocess
import tomllib
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.budget import BUDGETS, raised
from tests.house import ROOT

SLOW = "tests/test_slow.py"


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def versions() -> list[tuple[str, dict[str, Any]]]:
    """Where each version of the budgets is found, from the newest to the one that began to go only down."""
    path = BUDGETS.relative_to(ROOT).as_posix()
    commits = git("log", "--format=%H", "--", path).split() if Path(ROOT, ".git").exists() else []
    texts = [("", BUDGETS.read_text(encoding="utf-8")), *((each, git("show", f"{each}:{path}")) for each in commits)]
    found = [(commit, tomllib.loads(text)) for commit, text in texts]
    return [(commit, budgets) for commit, budgets in found if budgets.get("only_down")]


def test_no_budget_was_ever_raised() -> None:
    for (_, now), (commit, before) in pairwise(versions()):
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
