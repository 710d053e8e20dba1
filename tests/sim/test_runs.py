"""Whole runs: the same seed is the same run, and what fails is made shorter."""

import os
import re
import subprocess
import sys

import pytest

from tests.house import ROOT
from tests.sim.plan import Plan, drawn
from tests.sim.shrinking import shrunk


def digest_of(seed: int, hash_seed: str) -> str:
    """The digest of the whole log of a seed, and of every row in the end, from a process of its own."""
    environment = {
        **os.environ,
        "PYTHONHASHSEED": hash_seed,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
    }
    command = [sys.executable, "-m", "tests.sim", "--seed", str(seed), "--brief"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.fullmatch(r"digest ([0-9a-f]+)\n", done.stdout)
    assert found is not None, done.stdout
    return found[1]


@pytest.mark.parametrize("seed", [3, 4, 5], ids=["one instance", "two instances", "three instances"])
def test_the_same_seed_gives_the_same_log_in_every_process(seed: int) -> None:
    assert digest_of(seed, "1") == digest_of(seed, "2")


def test_another_seed_gives_another_log() -> None:
    assert digest_of(6, "1") != digest_of(9, "1")


def test_a_seed_decides_everything_that_happens() -> None:
    assert drawn(7) == drawn(7)
    assert drawn(7) != drawn(8)
    assert [drawn(seed).instances for seed in range(6)] == [1, 2, 3, 1, 2, 3]


def test_a_plan_that_fails_is_left_with_what_it_needs() -> None:
    """Here it fails while two messages of one chat and one fault are in it."""
    plan = drawn(7)
    chat = plan.said[0].chat
    needed = [each.number for each in plan.said if each.chat == chat][:2]
    fault = plan.faults[4].number

    def fails(tried: Plan) -> bool:
        return set(needed) <= {each.number for each in tried.said} and fault in {each.number for each in tried.faults}

    short = shrunk(plan, fails)
    assert ([each.number for each in short.said], [each.number for each in short.faults]) == (needed, [fault])


def test_shortening_gives_up_after_so_many_tries() -> None:
    tried: list[Plan] = []

    def fails(plan: Plan) -> bool:
        tried.append(plan)
        return True

    shrunk(drawn(7), fails, tries=5)
    assert len(tried) == 5


def test_a_scenario_is_told_in_lines_that_people_can_read() -> None:
    lines = str(drawn(7)).splitlines()
    assert lines[0].startswith("2 instance(s), seed 7; c0 on ")
    assert len(lines) == 1 + len(drawn(7).said) + len(drawn(7).faults)
    assert any(re.search(r"^ +\d+\.\d s  c\d says 'm\d+", line) for line in lines)
    assert any(re.search(r"^ +\d+\.\d s  \w[\w ]+ at instance \d, size 0\.\d+$", line) for line in lines)
