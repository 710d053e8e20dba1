"""The simulation finds what is broken: each variant has a fault, and a seed that shows it."""

from pathlib import Path

import pytest

from tests.sim.seeds import FIXED
from tests.sim.variants import STRANGER, Variant, simulate_copy, variants

VARIANTS = variants()
NAMES = [each.name for each in VARIANTS]


@pytest.mark.prove
@pytest.mark.parametrize("variant", VARIANTS, ids=NAMES)
def test_a_variant_is_caught(variant: Variant, tmp_path: Path) -> None:
    done = simulate_copy(variant.plant(tmp_path), "--seed", str(variant.seed))
    assert variant.shows in done.stdout, done.stdout + done.stderr


@pytest.mark.prove
@pytest.mark.parametrize("seed", sorted({each.seed for each in VARIANTS} - set(FIXED)))
def test_a_seed_that_catches_a_variant_passes_without_it(seed: int) -> None:
    """Of the fixed seeds `test_seeds.py` says the same."""
    done = simulate_copy(None, "--seed", str(seed))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("variant", VARIANTS, ids=NAMES)
def test_the_text_of_a_variant_stands_in_its_file(variant: Variant) -> None:
    """When the code has changed, so has its variant: plant the fault there again, or tell why it can be no more."""
    assert variant.times() == 1


def test_a_copy_without_a_fault_passes(tmp_path: Path) -> None:
    """It is the fault that is caught, not the copy."""
    harmless = Variant(
        name="harmless", what="", by="us", file="src/everturn/errors.py", before="", after="", seed=1, shows=""
    )
    done = simulate_copy(harmless.plant(tmp_path), "--seed", "1")
    assert done.returncode == 0, done.stdout + done.stderr


def test_there_are_enough_variants_and_some_are_of_strangers() -> None:
    assert len(VARIANTS) >= 20
    assert len({each.name for each in VARIANTS}) == len(VARIANTS)
    assert sum(each.by == STRANGER for each in VARIANTS) >= 5
