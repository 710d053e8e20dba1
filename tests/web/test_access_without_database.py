"""Authentication while the database does not answer: the number of waiting look-ups is bounded, other requests get 503."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest
from starlette.applications import Starlette

from everturn.clock import SystemClock
from everturn.errors import StoreError
from everturn.people.rules.rights import GatewayAddress
from everturn.store.open import open_store
from everturn.store.postgres import PostgresStore
from everturn.testing import ManualClock
from everturn.web.access import LOOK_UPS, Access, NotAdmitted
from everturn.web.keys import Visits
from everturn.web.wire.server import HANDLERS
from tests.postgres import PostgresServer
from tests.store.cutting_proxy import CuttingProxy
from tests.store.engine_operations import closing
from tests.waiting import read_until, within

CLIENT = ("192.0.2.7", 4711)


async def status_of(access: Access, secret: str) -> int:
    """The response status for this key."""
    headers = [(b"authorization", b"Bearer " + secret.encode())]
    try:
        await access.admit({"path": "/control/status", "method": "GET", "headers": headers, "client": CLIENT})
    except NotAdmitted as refused:
        return refused.reply.status
    except StoreError:
        return 503  # that is how the application answers it
    return 200


@pytest.mark.prove
async def test_look_ups_are_bounded_while_the_database_is_silent(postgres: PostgresServer, database_url: str) -> None:
    async with CuttingProxy(postgres.port) as proxy:
        url = proxy.url(database_url)
        async with closing(await PostgresStore.open(url, close_within_s=0.3)) as store:
            access = Access(token="t" * 43, store=store, clock=SystemClock(), place=GatewayAddress(), per_minute=0)
            assert await status_of(access, "nobody's") == 401
            proxy.frozen = True
            asking = [asyncio.ensure_future(status_of(access, f"key {number}")) for number in range(LOOK_UPS)]
            await read_until(lambda: waiting(store), lambda number: number > LOOK_UPS / 2)
            async with within():
                assert await status_of(access, "one more") == 503
            for each in asking[1:]:
                each.cancel()  # they hang up
            assert await status_of(access, "yet one more") == 503
            assert await waiting(store) < LOOK_UPS
            async with within():
                assert await asking[0] == 503


async def test_logins_are_bounded_while_the_database_is_silent(postgres: PostgresServer, database_url: str) -> None:
    async with CuttingProxy(postgres.port) as proxy:
        url = proxy.url(database_url)
        async with closing(await PostgresStore.open(url, close_within_s=0.3)) as store, logging_in(store) as client:
            assert await login(client, "wrong") == 403
            proxy.frozen = True
            asking = [asyncio.ensure_future(login(client, f"{number}")) for number in range(LOOK_UPS + 50)]
            await read_until(lambda: waiting(store), lambda number: number > LOOK_UPS / 2)
            async with within():
                assert await login(client, "one more") == 503
            for each in asking[1:]:
                each.cancel()  # they hang up
            assert await login(client, "yet one more") == 503
            assert await waiting(store) < LOOK_UPS
            async with within():
                assert await asking[0] == 503


async def test_no_secret_is_called_wrong_where_others_guess_and_it_cannot_be_looked_up(
    store_url: str,
) -> None:
    store = await open_store(store_url)
    access = Access(token="t" * 43, store=store, clock=ManualClock(), place=GatewayAddress(), per_minute=2)
    assert [await status_of(access, "guess") for _ in range(2)] == [401, 401]
    await store.close()
    assert [await status_of(access, "right") for _ in range(3)] == [503, 503, 503]


@asynccontextmanager
async def logging_in(store: PostgresStore) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the login endpoint."""
    access = Access(token="t" * 43, store=store, clock=SystemClock(), place=GatewayAddress(), per_minute=0)
    app = Starlette(routes=Visits(access, store, SystemClock()).routes(), exception_handlers=HANDLERS)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://here", timeout=None) as client:
        yield client


async def login(client: httpx.AsyncClient, code: str) -> int:
    """The response status for this login code."""
    return (await client.post("/login", json={"code": code})).status_code


async def waiting(store: PostgresStore) -> int:
    """How many look-ups wait for the database."""
    return store.meters().waiting
