"""A platform that is away is said to be, with why and since when, and never as one that is read (promise 13)."""

from pathlib import Path
from typing import Any

from tests.contracts.telegram import TelegramDriver
from tests.gateway.scenes import until_read
from tests.web.composition import Web, running


async def reach(web: Web) -> Any:
    told = (await web.client.get("/ops/api/overview")).json()
    return next(each for each in told["platforms"] if each["name"] == "telegram")


async def test_a_telegram_that_is_away_is_not_said_to_be_read(tmp_path: Path) -> None:
    async with TelegramDriver() as driver:
        telegram = driver.connected(poll_s=1.0)
        async with running(tmp_path, others=[telegram]) as web:
            well = await until_read(lambda: reach(web), lambda seen: seen["state"] == "reading")
            assert (well["trouble"], well["since"]) == (None, None)
            await driver.away()
            away = await until_read(lambda: reach(web), lambda seen: seen["state"] == "trouble")
            assert away["trouble"]
            assert away["since"] == telegram.contact.received_at
            await driver.back()
            again = await until_read(lambda: reach(web), lambda seen: seen["state"] == "reading")
            assert again["since"] is None
