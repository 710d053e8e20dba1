"""Ring two: a planned stop of a real gateway ends in time although its database does not answer, and nothing is lost."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.crash.gateways import BREAKERS_OFF, Gateway
from tests.crash.test_ends import CUT_OFF, busy, held
from tests.postgres import PostgresServer
from tests.store.cutting_proxy import CuttingProxy

CHATS = ("one", "two", "three", "four")


@pytest.mark.prove
@pytest.mark.parametrize("away", ["refused", "silent"])
async def test_a_stop_ends_in_time_while_the_database_is_down(
    tmp_path: Path, postgres: PostgresServer, database_url: str, away: str
) -> None:
    async with AsyncExitStack() as stack:
        proxy = await stack.enter_async_context(CuttingProxy(postgres.port))
        settings = CUT_OFF | BREAKERS_OFF | {"EVERTURN_STORE_URL": proxy.url(database_url)}
        async with Gateway(tmp_path, settings=settings) as gateway:
            await held(gateway, "one")
            await asyncio.gather(*(busy(gateway, chat, "work 3", effects=2) for chat in CHATS[1:]))
            if away == "refused":
                await stack.aclose()
            proxy.frozen = True
            assert await gateway.stopped() == 0
    async with Gateway(tmp_path, settings=settings | {"EVERTURN_STORE_URL": database_url}) as again:
        await again.up()
        for chat in CHATS:
            assert (await again.reply(chat, f"{chat}-long")).startswith("done: 3 steps")
        assert await again.stopped() == 0
