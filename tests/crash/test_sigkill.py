"""A few real kills under load on each engine, a supervised child that is killed, and planned restarts. `make prove` and `make torture`
kill more often (tests.torture).
"""

from pathlib import Path

import pytest

from tests.crash.kills import KillScenario, kill_under_load
from tests.history import totals

KILLS = 3
CHILD_KILLS = 3
SEED = 20261117


async def test_kills_under_load_lose_and_double_nothing(tmp_path: Path, store_url: str) -> None:
    assert await kill_under_load(tmp_path / "home", store_url, KILLS, SEED)


async def lose_children(folder: Path, url: str, kills: int) -> None:
    """A supervisor starts a killed child again, each time after a longer pause."""
    scenario = KillScenario(folder / "home", url, SEED, "--supervise")
    async with scenario.gateway:
        await scenario.gateway.up()
        async with scenario.people.writing():
            await scenario.lose_children(kills)
        watched = await scenario.end()
    assert scenario.checked_summary(watched)


async def test_a_supervisor_restarts_a_killed_child_and_nothing_is_lost(tmp_path: Path) -> None:
    await lose_children(tmp_path, f"sqlite:///{tmp_path / 'everturn.db'}", 1)


@pytest.mark.prove
async def test_a_supervisor_restarts_a_child_that_is_killed_again_and_again(tmp_path: Path, store_url: str) -> None:
    await lose_children(tmp_path, store_url, CHILD_KILLS)


@pytest.mark.prove
async def test_planned_restarts_under_load_lose_nothing_and_interrupt_nobody(tmp_path: Path, store_url: str) -> None:
    scenario = KillScenario(tmp_path / "home", store_url, SEED, "--supervise")
    async with scenario.gateway:
        await scenario.gateway.up()
        async with scenario.people.writing():
            await scenario.restart(times=3)
        watched = await scenario.end()
    assert scenario.checked_summary(watched)
    assert totals(watched).interrupted == 0
