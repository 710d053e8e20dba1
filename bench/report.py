"""The report of benchmarks: one line for each number, with its target; and the table and file at the end."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Target:
    """What must be reached; `aim` is what we would like."""

    limit: float
    at_most: bool
    aim: float | None = None

    def reached(self, value: float) -> bool:
        """Whether the value is on the right side of the limit."""
        return value <= self.limit if self.at_most else value >= self.limit

    def __str__(self) -> str:
        sign = "<=" if self.at_most else ">="
        return f"{sign} {self.limit:g}" + (f" (aim {self.aim:g})" if self.aim is not None else "")


def at_most(limit: float, aim: float | None = None) -> Target:
    """Not more than."""
    return Target(limit, at_most=True, aim=aim)


def at_least(limit: float, aim: float | None = None) -> Target:
    """Not less than."""
    return Target(limit, at_most=False, aim=aim)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One measured number."""

    name: str
    value: float
    unit: str = "x"
    target: Target | None = None
    detail: str = ""

    @property
    def verdict(self) -> str:
        """Reached, missed, or nothing to reach."""
        if self.target is None:
            return ""
        return "reached" if self.target.reached(self.value) else "MISSED"

    def shown(self) -> str:
        """The value with its unit."""
        return f"{shown(self.value)} {self.unit}"


Measure = Callable[[], Coroutine[Any, Any, list[Line]]]


def shown(value: float) -> str:
    """Three digits that matter, thousands with a separator."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def say(text: str) -> None:
    """Progress, at once."""
    print(text, flush=True)


def table(lines: Sequence[Line]) -> str:
    """All numbers, one under the other."""
    rows = [("what", "measured", "target", "")]
    rows += [(line.name, line.shown(), str(line.target or ""), line.verdict) for line in lines]
    widths = [max(len(row[place]) for row in rows) for place in range(3)]
    return "\n".join("  ".join([*map(str.ljust, row[:3], widths), row[3]]).rstrip() for row in rows)


def keep(lines: Sequence[Line], file: Path) -> None:
    """Write the numbers for later comparison; benchmarks that were not run this time keep their last ones."""
    known = json.loads(file.read_text(encoding="utf-8"))["figures"] if file.exists() else {}
    known |= {line.name: asdict(line) | {"verdict": line.verdict, "measured_at": time.time()} for line in lines}
    machine = {"cores": os.cpu_count(), "python": platform.python_version(), "system": platform.platform()}
    file.write_text(json.dumps({"machine": machine, "figures": known}, indent=1) + "\n", encoding="utf-8")
