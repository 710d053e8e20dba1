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


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    """A real browser."""
    async with chromium() as started:
        yield started


@pytest_asyncio.fixture(loop_scope="module")
async def screen(browser: Browser, gateway: Gateway, shots: Path) -> AsyncIterator[Screen]:
    """A window of somebody who has logged in."""
    context = await browser.new_context(viewport={"width": 1200, "height": 800})
    yield await enter(context, gateway, shots)
    await context.close()
