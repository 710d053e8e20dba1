"""The shared gateway of the tests in this folder."""

from collections.abc import AsyncIterator
from dataclasses import replace

import httpx
import pytest
import pytest_asyncio

from tests.web.composition import AUTHORIZED, PLAIN, Web, running


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Web]:
    """One gateway for all tests of this worker that want nothing special of it."""
    async with running(tmp_path_factory.mktemp("shared")) as started:
        yield started


@pytest_asyncio.fixture(loop_scope="session")
async def shared(gateway: Web) -> AsyncIterator[Web]:
    """That gateway, for a test that is marked `SHARED`: with its own chats and keys, and connections of its own, as those of an
    earlier test may have ended by now.
    """
    async with httpx.AsyncClient(base_url=gateway.serving.url, headers=AUTHORIZED, **PLAIN) as client:
        yield replace(gateway, client=client)
