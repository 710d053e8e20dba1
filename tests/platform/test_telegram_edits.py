"""Edits that Telegram posts by webhook: the last text counts while a message waits, in whatever order they arrive."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette

from everturn.lifecycle.settings import Settings
from everturn.platform.telegram import TelegramPlatform
from everturn.platform.telegram.adapter import SECRET_HEADER
from everturn.testing import World
from everturn.testing.telegram import BOT_ID
from everturn.web.app import Hooks
from tests.contracts.telegram import TelegramDriver
from tests.scenes import Actor, answer_to

ANN = {"id": 1001, "is_bot": False, "first_name": "Ann"}
PATH = f"/hooks/telegram/{BOT_ID}"
QUEUED = Settings(burst_s=0.0, drain_s=0.0, busy="queue")


def update(number: int, text: str, of: int | None = None) -> dict[str, Any]:
    """A message, or an edit of one; all edits are made within the same second."""
    message = {
        "message_id": of or number,
        "date": 5,
        "chat": {"id": 1001, "type": "private"},
        "from": ANN,
        "text": text,
    }
    if of is None:
        return {"update_id": number, "message": message}
    return {"update_id": number, "edited_message": message | {"edit_date": 9}}


HOLD, SAID = update(1, "hold"), update(2, "zero")
FIRST, SECOND = update(3, "one", of=2), update(4, "two", of=2)


class Hook:
    """A gateway to whose webhook updates are posted."""

    def __init__(self, world: World, platform: TelegramPlatform) -> None:
        app = Starlette(routes=Hooks([platform], world.gateway.intake.take).routes())
        self._client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://here")
        self._headers = {SECRET_HEADER.decode(): platform.secret}

    async def brings(self, *updates: dict[str, Any]) -> None:
        """One after the other."""
        for each in updates:
            answer = await self._client.post(PATH, json=each, headers=self._headers)
            assert answer.status_code == 200

    async def brings_at_once(self, *updates: dict[str, Any]) -> None:
        """In concurrent requests."""
        await asyncio.gather(*(self.brings(each) for each in updates))


@asynccontextmanager
async def at_the_webhook(folder: Path, driver: TelegramDriver, agent: Actor) -> AsyncIterator[Hook]:
    platform = driver.connected(hook_url="http://127.0.0.1:1/")
    url = f"sqlite:///{folder / 'everturn.db'}"
    async with World(url, agent, [platform], settings=QUEUED) as world:
        yield Hook(world, platform)


async def answered_with(driver: TelegramDriver, agent: Actor, text: str) -> None:
    agent.release("hold")
    await driver.until(lambda: len(driver.texts("Ann")) == 2)
    assert driver.texts("Ann")[1] == answer_to(text)


ORDERS = [
    [SAID, FIRST, SECOND],
    [SAID, SECOND, FIRST],
    [FIRST, SAID, SECOND],
    [SECOND, SAID, FIRST],
    [FIRST, SECOND, SAID],
    [SECOND, FIRST, SAID],
]


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("updates", ORDERS)
async def test_the_last_words_count_whatever_comes_first(
    tmp_path: Path, updates: Sequence[dict[str, Any]], *, at_once: bool
) -> None:
    agent = Actor()
    async with TelegramDriver() as driver, at_the_webhook(tmp_path, driver, agent) as hook:
        driver.person("Ann")
        await hook.brings(HOLD)
        await agent.held("hold")
        await (hook.brings_at_once if at_once else hook.brings)(*updates)
        await answered_with(driver, agent, "two")


async def test_an_edit_that_a_newer_one_overtook_is_without_effect_after_a_restart_too(tmp_path: Path) -> None:
    agent = Actor()
    async with TelegramDriver() as driver:
        driver.person("Ann")
        async with at_the_webhook(tmp_path, driver, agent) as hook:
            await hook.brings(HOLD)
            await agent.held("hold")
            await hook.brings(SAID, SECOND)
        async with at_the_webhook(tmp_path, driver, agent) as hook:
            await agent.held("hold")
            await hook.brings(FIRST)
            agent.release("hold")
            await driver.until(lambda: answer_to("two") in driver.texts("Ann"))
