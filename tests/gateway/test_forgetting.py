"""What was kept long enough is forgotten; what a clock only claims to be old is not."""

from everturn.store.operations.upkeep import DAY_S
from everturn.testing import FakePlatform, ManualClock, World
from tests.gateway.scenes import Actor, ask, life_of


async def test_one_run_of_upkeep_with_a_wild_clock_forgets_no_message(store_url: str) -> None:
    """Promise 2: a message that its platform delivers again is recognised by its id."""
    platform, clock = FakePlatform(), ManualClock()
    async with World(store_url, Actor(), [platform], clock) as world:
        message = await ask(platform, "one", "hello")
        await world.gateway.upkeep.forget_once()
        clock.advance(38 * DAY_S)
        await world.gateway.upkeep.forget_once()
        clock.set_back(38 * DAY_S)
        assert (await life_of(world, message))["state"] == "done"
