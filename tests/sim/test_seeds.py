"""Fixed seeds of the simulated world. New ones are drawn by `make sim` and `make torture`."""

import pytest

from tests.sim.seeds import CHUNKS, FAILED
from tests.sim.variants import simulate_copy


@pytest.mark.prove
@pytest.mark.parametrize("seeds", CHUNKS, ids=lambda seeds: f"{seeds.start}-{seeds.stop - 1}")
def test_fixed_seeds_pass(seeds: range) -> None:
    done = simulate_copy(None, "--first", str(seeds.start), "--seeds", str(len(seeds)), "--jobs", "1")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.prove
@pytest.mark.parametrize("seed", [seed for seed, _ in FAILED])
def test_a_seed_that_failed_passes(seed: int) -> None:
    done = simulate_copy(None, "--seed", str(seed))
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_few_seeds_pass() -> None:
    """One instance, two and three; `make prove` has more."""
    done = simulate_copy(None, "--first", "1", "--seeds", "12", "--jobs", "1")
    assert done.returncode == 0, done.stdout + done.stderr
