"""A disconnected platform is shown as such, with cause and time, and never as reading (promise 13)."""

from pathlib import Path
from typing import Any

from tests.contracts.telegram import TelegramDriver
from tests.scenes import until_read
from tests.web.composition import Web, running


async def reach(web: Web) -> Any:
    told = (await web.client.get("/ops/api/overview")).json()
    return next(each for each in told["platforms"] if each["name"] == "telegram")


async def test_a_disconnected_telegram_is_not_shown_as_reading(tmp_path: Path) -> None:
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
