"""The gateway and the window that most tests of this folder want."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser

from tests.browser.browsing import Gateway, Screen, chromium, enter
from tests.house import ROOT


@pytest.fixture
def shots() -> Path:
    """Where pictures are kept, to be looked at after the tests: git does not see them."""
    return ROOT / "tests" / "browser" / "shots"


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    """A running gateway."""
    made = Gateway(tmp_path / "home")
    made.start()
    yield made
    made.stop()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def started() -> AsyncIterator[Browser]:
    """A real browser for all tests of this worker."""
    async with chromium() as browser:
        yield browser


@pytest_asyncio.fixture(loop_scope="session")
async def browser(started: Browser) -> AsyncIterator[Browser]:
    """A browser without any window. What a test opened in it ends with the test: pages would look for their gateway for ever."""
    yield started
    for context in started.contexts:
        await context.close()


@pytest_asyncio.fixture(loop_scope="session")
async def screen(browser: Browser, gateway: Gateway, shots: Path) -> AsyncIterator[Screen]:
    """A window of somebody who has logged in."""
    context = await browser.new_context(viewport={"width": 1200, "height": 800})
    yield await enter(context, gateway, shots)
    await context.close()
