"""How often each scenario passes each crash point, as it was recorded. A death is tried at every hit on this list.

The list is part of the source, so that a point that is passed more or less often than before is a change somebody sees:
`make points` records it again.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path

LIST = Path(__file__).with_name("hits.json")
RECORDING = "EVERTURN_RECORD_POINTS"  # the variable that makes `check` write what it would compare


def recorded() -> dict[str, dict[str, int]]:
    """The hits of each point, by scenario."""
    found: dict[str, dict[str, int]] = json.loads(LIST.read_text(encoding="utf-8")) if LIST.exists() else {}
    return found


def hits_of(scenario: str) -> dict[str, int]:
    """The hits of each point in this scenario; none of one that was never recorded."""
    return recorded().get(scenario, {})


def visits(scenarios: Mapping[str, str], points: tuple[str, ...]) -> list[tuple[str, str]]:
    """Of each of these (by a name of its own) the points that begin so. One that was never recorded has a visit, which says so."""
    return [
        (name, point)
        for name, scenario in scenarios.items()
        for point in hits_of(scenario) or [f"{points[0]}not recorded"]
        if point.startswith(points)
    ]


def check(scenario: str, hits: Mapping[str, int]) -> None:
    """Compare what was counted with the list, or record it."""
    found = dict(sorted(hits.items()))
    if os.environ.get(RECORDING):
        text = json.dumps({**recorded(), scenario: found}, indent=2, sort_keys=True)
        LIST.write_text(f"{text}\n", encoding="utf-8")
    known = hits_of(scenario)
    differing = {point: (known.get(point, 0), found.get(point, 0)) for point in sorted({*known, *found})}
    wrong = [
        f"{point}: {before} recorded, {now} counted" for point, (before, now) in differing.items() if before != now
    ]
    assert not wrong, "\n".join([f"the scenario {scenario!r} passes other points (record again: make points):", *wrong])
