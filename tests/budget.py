"""Time budgets of the tests: print the slowest, and fail a run whose files or whose whole took longer than they may.

`pytest --stage NAME` checks the seconds that budgets.toml has for this stage. They are a ratchet (`raised`): a file that is not
listed has a few seconds, and a number there may only go down. EVERTURN_TEST_PATIENCE stretches them, as it does every wait.
"""

import time
import tomllib
from collections import defaultdict
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import pytest

from everturn.testing.clock import PATIENCE

BUDGETS = Path(__file__).with_name("budgets.toml")
SLOWEST = 30


def raised(before: Mapping[str, Any], now: Mapping[str, Any], files: Collection[str]) -> list[str]:
    """What may take longer than it might before. `files` are those that there were: a new one may have what it needs."""
    found = []
    for stage, then in before.items():
        if not isinstance(then, Mapping) or stage not in now:
            continue
        limits = {"seconds": then["seconds"], "other_files": then["other_files"]}
        limits |= {name: then["files"].get(name, then["other_files"]) for name in now[stage]["files"] if name in files}
        found += [
            f"{stage}: {name} had {limit:g} s and now has {allowed:g}"
            for name, limit in limits.items()
            if (allowed := (now[stage]["files"] | now[stage])[name]) > limit
        ]
    return found


def pytest_addoption(parser: pytest.Parser) -> None:
    """The stage whose budget counts."""
    parser.addoption("--stage", help="check the time budget of this stage of tests/budgets.toml")


def pytest_configure(config: pytest.Config) -> None:
    """Only the process that began the run knows how long it took."""
    stage = config.getoption("--stage")
    if stage and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Budget(stage), "everturn-budget")


class Budget:
    """What a stage may take, and what it took."""

    def __init__(self, stage: str) -> None:
        budgets = tomllib.loads(BUDGETS.read_text(encoding="utf-8"))[stage]
        self._stage = stage
        self._whole_s: float = budgets["seconds"]
        self._other_s: float = budgets["other_files"]
        self._files: dict[str, float] = budgets["files"]
        self._began = time.monotonic()
        self._tests: defaultdict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test, its preparation and its end count together."""
        self._tests[report.nodeid] += report.duration

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """A run that took too long has failed."""
        self.too_long = self._too_long(time.monotonic() - self._began)
        if self.too_long and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the slowest tests, each file's seconds, and what took too long."""
        write = terminalreporter.write_line
        terminalreporter.section(f"the {SLOWEST} slowest tests, with their fixtures")
        for name, seconds in sorted(self._tests.items(), key=lambda each: -each[1])[:SLOWEST]:
            write(f"{seconds:7.2f} s  {name}")
        terminalreporter.section("the files that have a budget of their own")
        for name, seconds in sorted(self._seconds().items(), key=lambda each: -each[1]):
            if name in self._files or seconds > self._other_s / 2:
                write(f"{seconds:7.1f} s of {self._allowed(name):g}  {name}")
        for line in self.too_long:
            write(f"TOO LONG: {line}", red=True)

    def _seconds(self) -> dict[str, float]:
        """What each file took, added up over the workers."""
        files: defaultdict[str, float] = defaultdict(float)
        for name, seconds in self._tests.items():
            files[name.partition("::")[0]] += seconds
        return files

    def _allowed(self, file: str) -> float:
        return self._files.get(file, self._other_s)

    def _too_long(self, whole_s: float) -> list[str]:
        found = [
            f"{name} took {seconds:.1f} s of {self._allowed(name):g} (make it faster; tests/budgets.toml only goes down)"
            for name, seconds in self._seconds().items()
            if seconds > self._allowed(name) * PATIENCE
        ]
        if whole_s > self._whole_s * PATIENCE:
            found.append(f"the stage {self._stage} took {whole_s:.0f} s of {self._whole_s:g}")
        return found
