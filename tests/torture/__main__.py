"""`make torture MINUTES=10`: draws scenarios and seeds until the time is over, two at once, and goes on after a failure.

`make torture KIND=growing-sqlite SEED=12345` runs one again.
"""

import argparse
import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from tests.postgres import memory
from tests.servers import Run
from tests.torture.kinds import DRAWN, KINDS

SHARE_S = 60  # longer than most scenarios take: when less is left, no other one begins
FAILURES = Path(".torture")


@dataclass(frozen=True)
class ScenarioResult:
    """The result of one scenario."""

    kind: str
    seed: int
    seconds: float
    output: str
    failed: bool


def main() -> int:
    """Draw scenarios, or run one again; 1 if anything failed."""
    asked = arguments()
    if asked.here:  # one scenario, in this process
        print(KINDS[asked.kind](Path(asked.here), asked.seed))
        return 0
    run = Run()
    try:
        return search(asked)
    finally:
        run.end()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long to draw (10)")
    parser.add_argument("--kind", choices=sorted(KINDS), help="only this kind")
    parser.add_argument("--seed", type=int, help="run this one, once")
    parser.add_argument("--here", help=argparse.SUPPRESS)
    return parser.parse_args()


def search(asked: argparse.Namespace) -> int:
    """Run scenarios on both cores; each failure is reported when it happens, and all of them in the end."""
    ended: list[ScenarioResult] = []
    cores, more = os.cpu_count() or 2, drawn(asked)
    with ThreadPoolExecutor(cores) as pool:
        running = {pool.submit(run_one, which) for which in islice(more, cores)}
        while running:
            done, running = wait(running, return_when=FIRST_COMPLETED)
            running |= {pool.submit(run_one, which) for which in islice(more, len(done))}
            for each in done:
                ended.append(each.result())
                say(ended[-1])
    failed = [result for result in ended if result.failed]
    counts = ", ".join(f"{kind} {times}" for kind, times in sorted(Counter(result.kind for result in ended).items()))
    print(f"{len(ended)} scenarios ({counts}), {len(failed)} failed")
    for result in failed:
        print(f"  make torture KIND={result.kind} SEED={result.seed}")
    if failed:
        print("Put each of them into FAILED of tests/torture/seeds.py: `make prove` then runs it every time.")
    return 1 if failed else 0


def drawn(asked: argparse.Namespace) -> Iterator[tuple[str, int]]:
    """Draw kinds by turns with new seeds, until the time is over; or the one that is asked for."""
    if asked.seed is not None:
        yield from ((kind, asked.seed) for kind in ([asked.kind] if asked.kind else DRAWN))
        return
    until = time.monotonic() + 60 * asked.minutes - SHARE_S
    while True:
        for kind in [asked.kind] if asked.kind else DRAWN:
            if time.monotonic() > until:
                return
            yield kind, secrets.randbelow(1_000_000)


def run_one(which: tuple[str, int]) -> ScenarioResult:
    """Run one scenario in a process of its own, with a folder that is deleted afterwards."""
    kind, seed = which
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="everturn-torture-", dir=memory()) as folder:
        command = [sys.executable, "-m", "tests.torture", "--kind", kind, "--seed", str(seed), "--here", folder]
        done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    failed = done.returncode != 0
    output = done.stdout + done.stderr if failed else (done.stdout.strip().splitlines() or [""])[-1]
    return ScenarioResult(kind, seed, time.monotonic() - began, output, failed)


def say(result: ScenarioResult) -> None:
    """Print a line for each; of one that failed, where its output is."""
    if not result.failed:
        print(f"{result.kind}, seed {result.seed}, {result.seconds:.0f} s: {result.output}", flush=True)
        return
    FAILURES.mkdir(exist_ok=True)
    file = FAILURES / f"{result.kind}-{result.seed}.log"
    file.write_text(result.output)
    last = result.output.strip().splitlines()[-1:]
    print(f"FAILED {result.kind}, seed {result.seed}: {last}; see {file}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
