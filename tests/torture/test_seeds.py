"""Scenarios with fixed seeds: the same in every run. New ones are drawn by `make torture`."""

import sys
from pathlib import Path

import pytest

from tests.torture.kinds import KINDS
from tests.torture.seeds import TOLD_AGAIN


@pytest.mark.prove
@pytest.mark.parametrize(("kind", "seed"), TOLD_AGAIN)
def test_a_seed_is_told_again(tmp_path: Path, kind: str, seed: int, capsys: pytest.CaptureFixture[str]) -> None:
    figures = KINDS[kind](tmp_path, seed)
    with capsys.disabled():
        sys.stderr.write(f"\n  {kind}, seed {seed}: {figures}\n")  # also from a worker, whose output nobody reads
