"""`make sim SEEDS=1000`: simulates new seeds on all cores. Of one that fails it prints the command and a short scenario.

`make sim SEED=12345` runs one again and writes its whole log to `.sim`.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import secrets
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.sim.plan import Plan, drawn
from tests.sim.run import SimResult, empty_database, in_a_fork
from tests.sim.shrinking import shrunk

LOGS = Path(".sim")
SAY_EVERY_S = 5.0
DAY_S = 86_400.0


@dataclass
class Totals:
    """What was simulated so far."""

    seeds: int = 0
    virtual_s: float = 0.0
    deaths: int = 0
    commits: int = 0
    messages: int = 0
    strict: int = 0  # of them: nothing excuses that they are not answered
    failed: int = 0

    def add(self, result: SimResult) -> None:
        """Count a run."""
        self.seeds += 1
        self.virtual_s += result.virtual_s
        self.deaths += result.deaths
        self.commits += result.commits
        self.strict += result.judged[0]
        self.messages += result.judged[1]
        self.failed += bool(result.problems)

    def __str__(self) -> str:
        return (
            f"{self.virtual_s / DAY_S:.1f} virtual days, {self.deaths} deaths, {self.commits} commits,"
            f" {100 * self.strict / max(1, self.messages):.0f} % of {self.messages} messages under the strict rule; {self.failed} failed"
        )


def main() -> int:
    """Simulate; 1 if anything failed."""
    asked = arguments()
    image = empty_database()
    if asked.seed is not None:
        return one_again(asked.seed, image, brief=asked.brief)
    first = asked.first if asked.first is not None else secrets.randbelow(1_000_000_000)
    seeds = range(first, first + asked.seeds)
    failed = search(results(seeds, image, asked.jobs), asked.seeds, until_one=asked.until_one)
    for seed, problems in failed.items():
        print(f"\nSeed {seed} fails: {'; '.join(problems)}\n  make sim SEED={seed}")
    if failed and not asked.brief:
        tell(min(failed), image)
        print("Put each of them into FAILED of tests/sim/seeds.py: `make prove` then runs it every time.")
    return 1 if failed else 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many seeds to simulate (1000)")
    parser.add_argument("--first", type=int, help="the first of them (drawn)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 2, help="how many at a time (one for each core)")
    parser.add_argument("--until-one", action="store_true", help="stop at the first seed that fails")
    parser.add_argument("--seed", type=int, help="run this one again")
    parser.add_argument("--brief", action="store_true", help="say only what is wrong: no scenario, no log")
    return parser.parse_args()


def search(each: Iterable[tuple[int, SimResult]], of: int, *, until_one: bool) -> dict[int, tuple[str, ...]]:
    """Simulate; returns what is wrong with the seeds that fail. Says from time to time how far it is."""
    failed: dict[int, tuple[str, ...]] = {}
    totals, began, said = Totals(), time.monotonic(), 0.0
    for seed, result in each:
        totals.add(result)
        if result.problems:
            failed[seed] = result.problems
            print(f"  seed {seed} fails: {result.problems[0]}", flush=True)
            if until_one:
                break
        if (now := time.monotonic() - began) - said > SAY_EVERY_S:
            said = now
            print(f"  {totals.seeds} of {of}, {60 * totals.seeds / now:.0f} a minute; {totals}", flush=True)
    took = time.monotonic() - began
    print(f"{totals.seeds} seeds in {took:.0f} s, {60 * totals.seeds / took:.0f} a minute; {totals}")
    return failed


def results(seeds: range, image: bytes, jobs: int) -> Iterator[tuple[int, SimResult]]:
    """What came of each seed, in their order. Ends its processes when nobody wants more."""
    print(f"{len(seeds)} seeds from {seeds[0]}", flush=True)
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        yield from pool.imap(partial(simulated, image), seeds)


def simulated(image: bytes, seed: int) -> tuple[int, SimResult]:
    """Simulate a seed."""
    return seed, in_a_fork(drawn(seed), image)


def one_again(seed: int, image: bytes, *, brief: bool) -> int:
    """Run one seed, and say what is wrong."""
    result = in_a_fork(drawn(seed), image, keep=not brief)
    print(*result.problems, f"digest {result.digest}", sep="\n")
    if not brief:
        print(
            f"{log_of(seed, result)} has its log; {result.virtual_s:.0f} virtual seconds, {result.deaths} deaths,"
            f" {'something is' if result.problems else 'nothing'} wrong"
        )
        if result.problems:
            tell(seed, image)
    return 1 if result.problems else 0


def tell(seed: int, image: bytes) -> None:
    """Print the shortest scenario that fails like this seed, and write its log."""
    plan = drawn(seed)
    kinds = kinds_of(in_a_fork(plan, image))

    def fails(tried: Plan) -> bool:
        return bool(kinds & kinds_of(in_a_fork(tried, image)))

    print(f"\nMaking seed {seed} shorter ...", flush=True)
    short = shrunk(plan, fails)
    result = in_a_fork(short, image, keep=True)
    print(short, *result.problems, f"{log_of(seed, result, 'short')} has its log.", sep="\n")


def kinds_of(result: SimResult) -> set[str]:
    """The promises that are broken: the first word of each sentence."""
    return {problem.split()[0] for problem in result.problems}


def log_of(seed: int, result: SimResult, which: str = "whole") -> Path:
    """Write the log of a run."""
    LOGS.mkdir(exist_ok=True)
    file = LOGS / f"{seed}-{which}.log"
    file.write_text("".join(result.lines))
    return file


if __name__ == "__main__":
    sys.exit(main())
