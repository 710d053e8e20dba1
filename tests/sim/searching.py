"""`python -m tests.sim.searching`: looks for the first seed that catches each variant, and writes it into their file.

Needed after a change of the plans or of the checker, as both decide which seed shows what. A variant that none of the seeds
catches is named and stays as it was: it then fails in `make prove`.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from pathlib import Path

from tests.sim.variants import FILE, Variant, simulate_copy, variants

MOST = 450  # seeds
CAUGHT = re.compile(r"^ {2}seed (\d+) fails: (.*)$", re.MULTILINE)
WORDS = 4  # of what is wrong: they tell it from other failures


def main() -> int:
    """Look for all variants, or for some by their names; 1 if one was not caught."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim.searching", description=__doc__)
    parser.add_argument("names", nargs="*", help="variants (all)")
    parser.add_argument("--most", type=int, default=MOST, help=f"how many seeds are tried ({MOST})")
    parser.add_argument("--file", type=Path, default=FILE, help="the file of the variants")
    asked = parser.parse_args()
    missed = 0
    for variant in variants(asked.file):
        if asked.names and variant.name not in asked.names:
            continue
        found = caught(variant, asked.most)
        print(f"{variant.name}: {found or 'not caught'}, was {variant.seed}", flush=True)
        missed += found is None
        if found is not None:
            write(asked.file, variant, *found)
    return 1 if missed else 0


def caught(variant: Variant, most: int) -> tuple[int, str] | None:
    """The first seed that shows a variant, and how what is wrong begins."""
    with tempfile.TemporaryDirectory() as folder:
        copy = variant.plant(Path(folder))
        done = simulate_copy(copy, "--first", "1", "--seeds", str(most), "--until-one")
    found = CAUGHT.search(done.stdout)
    if found is None:
        return None
    if simulate_copy(None, "--seed", found[1]).returncode:
        sys.exit(f"seed {found[1]} fails without a fault as well: mend that first")
    return int(found[1]), shown(found[2])


def shown(problem: str) -> str:
    """The beginning of a problem, up to where numbers and quotes begin, which belong to the one run."""
    words = re.split(r"[\d'\"{:]", problem, maxsplit=1)[0].split()
    return " ".join(words[:WORDS]) or problem


def write(file: Path, variant: Variant, seed: int, shows: str) -> None:
    """Write what catches a variant into its table."""
    before, name, rest = file.read_text(encoding="utf-8").partition(f'name = "{variant.name}"\n')
    rest = re.sub(r"^seed = \d+$", f"seed = {seed}", rest, count=1, flags=re.MULTILINE)
    rest = re.sub(r'^shows = ".*"$', lambda _: f'shows = "{shows}"', rest, count=1, flags=re.MULTILINE)
    file.write_text(f"{before}{name}{rest}", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
