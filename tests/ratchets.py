"""Numbers that only go down: every version of the file that keeps them, as git knows it."""

import subprocess
import tomllib
from pathlib import Path
from typing import Any

from tests.house import ROOT


def git(*arguments: str) -> str:
    """What git says of this project."""
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def versions(file: Path) -> list[tuple[str, dict[str, Any]]]:
    """Each version of a TOML file with its commit, from the newest, which has none yet, to the first."""
    path = file.relative_to(ROOT).as_posix()
    commits = git("log", "--format=%H", "--", path).split() if Path(ROOT, ".git").exists() else []
    texts = [("", file.read_text(encoding="utf-8")), *((each, git("show", f"{each}:{path}")) for each in commits)]
    return [(commit, tomllib.loads(text)) for commit, text in texts]
