"""Rows that were kept long enough are deleted; rows that only a wrong clock makes old are not."""

from everturn.lifecycle.rows import DAY_S
from everturn.testing import FakePlatform, ManualClock, World
from tests.scenes import Actor, ask, trace_of


async def test_one_run_of_upkeep_with_a_wild_clock_forgets_no_message(store_url: str) -> None:
    """Promise 2: a message that its platform delivers again is recognised by its id."""
    platform, clock = FakePlatform(), ManualClock()
    async with World(store_url, Actor(), [platform], clock) as world:
        message = await ask(platform, "one", "hello")
        await world.gateway.upkeep.forget_once()
        clock.advance(38 * DAY_S)
        await world.gateway.upkeep.forget_once()
        clock.set_back(38 * DAY_S)
        assert (await trace_of(world, message))["state"] == "done"
