"""What a turn costs only goes down. What is switched off costs nothing: `test_switched_off.py`."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from everturn.home.files import Media
from tests.empty import EmptyFile
from tests.house import ROOT
from tests.ratchets import versions
from tests.turn_costs import COSTS, Costs, Meter, recorded, risen
from tests.turn_scenes import Looking, StillClock, by_api, on_telegram
from tests.web.composition import running

WRITTEN_DOWN = 0.98  # of the calls: other versions of Python need a few less


async def test_a_turn_by_the_api_costs_no_more_than_it_did(store_url: str) -> None:
    meter = Meter()
    async with running(store_url, Looking(), clock=StillClock(), opened=meter.open) as web, by_api(web) as turn:
        check("api", store_url, await meter.of(turn), meter)


async def test_a_turn_by_telegram_costs_no_more_than_it_did(store_url: str) -> None:
    meter = Meter()
    async with on_telegram(store_url, meter) as turn:
        check("telegram", store_url, await meter.of(turn), meter)


def check(way: str, url: str, costs: Costs, meter: Meter) -> None:
    """Cheaper is a failure as well, until the number is written down: else the next change could spend what this one saved."""
    name = f"{way}-{url.partition(':')[0]}"
    allowed = recorded()[name]
    print(*meter.statements_of_last, *sorted(meter.functions_of_last.items()), sep="\n")  # noqa: T201  for who looks why
    found = f"{name} costs {costs}; {COSTS.name} has {allowed}"
    assert replace(costs, calls=0) == replace(allowed, calls=0), found
    assert costs.calls <= allowed.calls, found
    assert costs.calls >= allowed.calls * WRITTEN_DOWN, f"{found}: write it down"


async def test_a_folder_for_files_costs_nothing_while_no_file_comes(empty_file: EmptyFile, tmp_path: Path) -> None:
    meter, media = Meter(), Media(tmp_path / "files", 1000, 3000)
    async with on_telegram(empty_file.copy(tmp_path), meter, media=media) as turn:
        check("telegram", "sqlite", await meter.of(turn), meter)


def test_no_cost_was_ever_raised_without_a_decision() -> None:
    found = versions(COSTS)
    assert [line for (_, now), (_, before) in pairwise(found) for line in risen(before, now)] == []
    assert all(Path(ROOT, page).is_file() for page in found[0][1].get("raised", {}).values())


@pytest.mark.parametrize(
    ("now", "said"),
    [
        ({"api": {"tasks": 3}}, ["api.tasks was 2 and now is 3"]),
        ({"api": {"tasks": 2}, "telegram": {"tasks": 9}}, []),
        ({"api": {"tasks": 3}, "raised": {"api.tasks": "docs/decisions/0001.md"}}, ["api.tasks was 2 and now is 3"]),
        ({"api": {"tasks": 3}, "raised": {"api.tasks": "docs/decisions/0002.md"}}, []),
    ],
)
def test_a_cost_that_rises_is_seen_unless_a_new_decision_says_why(now: dict[str, Any], said: list[str]) -> None:
    before = {"api": {"tasks": 2}, "raised": {"api.tasks": "docs/decisions/0001.md"}}
    assert risen(before, now) == said
