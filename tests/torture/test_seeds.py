"""Scenarios with fixed seeds: the same in every run. New ones are drawn by `make torture`."""

import sys
from pathlib import Path

import pytest

from tests.torture.kinds import KINDS
from tests.torture.seeds import FIXED_SEEDS


@pytest.mark.prove
@pytest.mark.parametrize(("kind", "seed"), FIXED_SEEDS)
def test_a_fixed_seed_passes(tmp_path: Path, kind: str, seed: int, capsys: pytest.CaptureFixture[str]) -> None:
    summary = KINDS[kind](tmp_path, seed)
    with capsys.disabled():
        sys.stderr.write(f"\n  {kind}, seed {seed}: {summary}\n")  # also from a worker, whose output nobody reads
