"""Telegram posts its updates to our webhook: with the secret, answered after the commit, and closed to everybody else."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from everturn.errors import StoreUnavailable
from everturn.model import Inbound
from everturn.platform.posted import ApiPlatform
from everturn.platform.telegram import TelegramPlatform
from everturn.testing import ScriptedAgent, World
from everturn.testing.telegram import BOT_ID
from everturn.web.app import Hooks
from everturn.web.wire.server import make_app, serve
from tests.contracts.telegram import TelegramDriver
from tests.postgres import free_port
from tests.web.composition import Desk

PATH = f"/hooks/telegram/{BOT_ID}"
HEADER = "x-telegram-bot-api-secret-token"


@dataclass
class Scene:
    """A gateway with a webhook; what it stores is recorded as it is committed."""

    driver: TelegramDriver
    platform: TelegramPlatform
    url: str
    taken: list[Inbound]
    trouble: str = ""  # why nothing can be stored now


@asynccontextmanager
async def hooked(folder: Path, driver: TelegramDriver) -> AsyncIterator[Scene]:
    port = free_port()
    platform = driver.connected(hook_url=f"http://127.0.0.1:{port}{PATH}")
    async with World(f"sqlite:///{folder / 'everturn.db'}", ScriptedAgent(), [platform]) as world:
        scene = Scene(driver, platform, f"http://127.0.0.1:{port}", [])

        async def take(inbound: Inbound) -> None:
            if scene.trouble:
                raise StoreUnavailable(scene.trouble)
            await world.gateway.intake.take(inbound)
            scene.taken.append(inbound)

        gateway = world.gateway
        app = make_app(
            accept=gateway.intake.accept, chats=ApiPlatform(), hub=gateway.hub, store=world.store, token="t",
            key_of=gateway.settings.key_of, message_chars=1000, control=Desk(), hooks=Hooks([platform], take),
        )  # fmt: skip
        serving = await serve(app, "127.0.0.1", port)
        try:
            yield scene
        finally:
            await serving.close()


async def test_what_telegram_brings_is_taken_once_and_answered(tmp_path: Path) -> None:
    async with TelegramDriver() as driver, hooked(tmp_path, driver) as scene:
        driver.says("one")
        await driver.until(lambda: driver.texts() == ["echo: one"])
        driver.deliver_again()
        driver.says("two")
        await driver.until(lambda: len(driver.texts()) == 2)
        assert driver.texts() == ["echo: one", "echo: two"]
        assert [each.text for each in scene.taken] == ["one", "one", "two"]
        assert scene.platform.contact.received_at is not None


async def test_what_waits_when_polling_becomes_a_webhook_is_delivered(tmp_path: Path) -> None:
    """Read and not acknowledged, or never read: nothing is dropped by the switch, in either direction."""
    async with TelegramDriver() as driver:
        driver.says("read")
        reading = driver.connected().inbound(None)
        assert (await anext(reading)).text == "read"
        await reading.aclose()
        driver.says("not read")
        async with hooked(tmp_path, driver) as scene:
            await driver.until(lambda: len(driver.texts()) == 2)
            assert [each.text for each in scene.taken] == ["read", "not read"]
        driver.says("back")
        assert (await anext(driver.connected().inbound(None))).text == "back"


async def test_a_button_press_by_webhook_is_answered_too(tmp_path: Path) -> None:
    async with TelegramDriver() as driver, hooked(tmp_path, driver) as scene:
        ann = driver.person("Ann")
        await driver.until(lambda: driver.telegram.state.hook)
        sent = await scene.platform.ask(driver.place("Ann"), "May I?", [], "1-0")
        driver.telegram.screen(ann.id)[0]["reply_markup"] = {
            "inline_keyboard": [[{"text": "Status", "callback_data": "/status"}]]
        }
        query = ann.presses(int(sent), "Status")
        await driver.until(lambda: driver.telegram.state.presses[query])
        assert [each.text for each in scene.taken] == ["/status"]


async def test_what_cannot_be_stored_now_is_not_taken_and_nobody_waits_for_it(tmp_path: Path) -> None:
    """Promise 1: Telegram posts it again."""
    async with (
        TelegramDriver() as driver,
        hooked(tmp_path, driver) as scene,
        httpx.AsyncClient(base_url=scene.url) as client,
    ):
        await driver.until(lambda: driver.telegram.state.hook)
        person = {"id": 1, "is_bot": False, "first_name": "Ann"}
        message = {"message_id": 1, "date": 1, "chat": {"id": 1, "type": "private"}, "from": person, "text": "hello"}
        scene.trouble = "the disk is full"
        secret = {HEADER: scene.platform.secret}
        answer = await client.post(PATH, json={"update_id": 1, "message": message}, headers=secret)
        assert (answer.status_code, answer.json()["error"]) == (503, "the disk is full")
        scene.trouble = ""
        assert (await client.post(PATH, json={"update_id": 1, "message": message}, headers=secret)).status_code == 200
        assert [each.text for each in scene.taken] == ["hello"]


async def test_nobody_else_gets_in(tmp_path: Path) -> None:
    async with (
        TelegramDriver() as driver,
        hooked(tmp_path, driver) as scene,
        httpx.AsyncClient(base_url=scene.url) as client,
    ):
        await scene.driver.until(lambda: scene.driver.telegram.state.hook)
        update = {"update_id": 1, "message": {"message_id": 1, "chat": {"id": 1, "type": "private"}, "text": "forged"}}
        secret = {HEADER: scene.platform.secret}
        answers = await asyncio.gather(
            client.post(PATH, json=update),
            client.post(PATH, json=update, headers={HEADER: "guessed"}),
            client.post("/hooks/telegram/1", json=update, headers=secret),
            client.get(PATH, headers=secret),
            client.post(PATH, content=b"x" * (2 << 20), headers=secret),
            client.post(PATH, content=b"not json", headers=secret),
        )
        assert [each.status_code for each in answers] == [404, 404, 404, 405, 413, 200]
        assert scene.taken == []
