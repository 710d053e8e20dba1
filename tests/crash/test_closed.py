"""Ring two: a real gateway that another instance took for dead starts again by itself, and nothing is lost or done twice."""

from collections import Counter
from pathlib import Path

import pytest

from tests.crash.gateways import BREAKERS_OFF, Gateway
from tests.crash.held import HELD
from tests.crash.test_ends import held
from tests.postgres import PostgresServer

CLOSE = "UPDATE instance SET ended_at=1, ended='unclean'"


@pytest.mark.prove
async def test_a_gateway_that_was_closed_starts_again_under_a_new_number(
    tmp_path: Path, postgres: PostgresServer, database_url: str
) -> None:
    settings = BREAKERS_OFF | HELD | {"EVERTURN_STORE_URL": database_url}
    async with Gateway(tmp_path, settings=settings) as gateway:
        await held(gateway, "one")
        postgres.execute(CLOSE, database_url.rpartition("/")[2])
        await gateway.ready(times=2)
        assert "instance 1 was closed by another one" in gateway.output
        assert (await gateway.reply("one", "one-long")).startswith("done: 3 steps")
        assert max(Counter(gateway.ledger()).values()) == 1
        assert await gateway.stopped() == 0
