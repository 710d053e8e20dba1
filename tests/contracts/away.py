"""What people wrote while the gateway was disconnected, as they see it afterwards: the scenarios that platforms share.

The platform dates what was said by the machine's clock; the gateway comes back an hour later, and its time passes by hand, so
that nothing is settled before all of it is stored.
"""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from everturn.inbox.rows.inbox import move_cursor
from everturn.inbox.rules import BacklogRule
from everturn.lifecycle.settings import Settings
from everturn.store.open import open_store
from everturn.testing import ManualClock, ScriptedAgent, World
from everturn.testing.platform import Driver
from tests.crash.streaming import UNHURRIED
from tests.scenes import while_time_passes

HOUR = 3600.0


@asynccontextmanager
async def back_after_an_hour(driver: Driver, folder: Path, backlog: BacklogRule) -> AsyncIterator[World]:
    """A gateway that had read up to `driver.after` and reconnects. Two messages were left; both are stored."""
    for text in ("one", "two"):
        driver.says(text)
    here, url = driver.place(), f"sqlite:///{folder / 'everturn.db'}"
    if driver.after is not None:
        store = await open_store(url)
        await store.run(move_cursor, here.platform, here.account, driver.after, time.time())
        await store.close()
    settings = Settings(burst_s=0.0, busy="queue", backlog={here.platform: backlog}, patience=UNHURRIED)
    clock = ManualClock(time.time() + HOUR)
    async with World(url, ScriptedAgent(), [driver.connected()], clock, settings) as world:
        await driver.until(lambda: driver.acknowledged() == 2)
        yield world
        await world.gateway.outbox.quiet()


async def begin_one_turn(driver: Driver, folder: Path) -> None:
    """All of it together."""
    async with back_after_an_hour(driver, folder, BacklogRule(policy="digest")) as world:
        await while_time_passes(world, driver.until(driver.texts))
    (answer,) = driver.texts()
    assert answer.split() == ["echo:", "one", "two"]


async def are_asked_about(driver: Driver, folder: Path, choose: Callable[[str], object]) -> None:
    """Their sender is asked, and chooses the newest by the buttons beneath the request."""
    async with back_after_an_hour(driver, folder, BacklogRule(policy="ask")) as world:
        await while_time_passes(world, driver.until(driver.texts))
        (question,) = driver.texts()
        choose("Only the newest")
        await driver.until(lambda: any("echo:" in text for text in driver.texts()))
    assert question.startswith("2 messages came")
    assert [text for text in driver.texts() if "echo:" in text] == ["echo: two"]


async def are_too_old(driver: Driver, folder: Path) -> None:
    """Nothing is answered, and the sender gets one notice."""
    async with back_after_an_hour(driver, folder, BacklogRule(policy="all", age_s=HOUR / 2)):
        await driver.until(driver.texts)
    (told,) = driver.texts()
    assert "too old" in told
