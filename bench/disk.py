"""Where benchmarks write: `.bench/` beside the sources, on the real disk; what takes long to build stays there."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
KEPT = ROOT / ".bench"
RESULTS = ROOT / "bench" / "results.json"


def kept() -> Path:
    """The folder that outlives a run; its own .gitignore hides it from git."""
    KEPT.mkdir(exist_ok=True)
    (KEPT / ".gitignore").write_text("*\n", encoding="utf-8")
    return KEPT


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """A folder for one measurement."""
    path = Path(tempfile.mkdtemp(prefix="run-", dir=kept()))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
