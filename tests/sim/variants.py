"""Broken variants of the gateway: each is a small replacement in a copy of its source, and the simulation has to catch it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

from tests.house import ROOT

FILE = Path(__file__).with_name("variants.toml")
STRANGER = "somebody who has not seen the checker"


@dataclass(frozen=True)
class Variant:
    """A fault, the text in whose place it is planted, and the first seed from 1 on that catches it: so many seeds it took."""

    name: str
    what: str
    by: str
    file: str
    before: str
    after: str
    seed: int
    shows: str  # the beginning of what is wrong then

    def times(self) -> int:
        """How often the text stands in its file: once, unless the file has changed."""
        return (ROOT / self.file).read_text(encoding="utf-8").count(self.before)

    def plant(self, folder: Path) -> Path:
        """A copy of the source with this fault, beneath a folder."""
        copy = folder / "src"
        shutil.copytree(ROOT / "src", copy)
        file = folder / self.file
        file.write_text(file.read_text(encoding="utf-8").replace(self.before, self.after), encoding="utf-8")
        return copy


def variants(file: Path = FILE) -> list[Variant]:
    """All of them."""
    return [Variant(**each) for each in tomllib.loads(file.read_text(encoding="utf-8"))["variant"]]


def simulate_copy(copy: Path | None, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the simulation in a process of its own, on a copy of the source or on ours."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, [copy or ROOT / "src", ROOT]))}
    command = [sys.executable, "-m", "tests.sim", "--brief", *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
