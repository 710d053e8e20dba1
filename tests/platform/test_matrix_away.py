"""What was said on a real Synapse while the gateway was away, as the platform's `backlog` says."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from everturn.clock import SystemClock
from everturn.decide.backlog import Backlog
from everturn.gateway.parts import Settings
from everturn.store.open import open_store
from everturn.store.operations.inbox import move_cursor
from everturn.testing import ScriptedAgent, World
from tests.contracts.matrix import MatrixDriver
from tests.synapse import SynapseServer

HOUR = 3600.0


@pytest.fixture
async def driver(synapse: SynapseServer) -> AsyncIterator[MatrixDriver]:
    async with MatrixDriver(None, synapse) as driver:
        yield driver


class HourLater(SystemClock):
    """What people say now, they said an hour ago."""

    def now(self) -> float:
        return super().now() + HOUR


@asynccontextmanager
async def back_after_an_hour(driver: MatrixDriver, folder: Path, backlog: Backlog) -> AsyncIterator[None]:
    """A gateway that had read up to `driver.after` and is back."""
    url = f"sqlite:///{folder / 'everturn.db'}"
    store = await open_store(url)
    await store.run(move_cursor, "matrix", driver.bot.user_id, driver.after or "", time.time())
    await store.close()
    settings = Settings(burst_s=0.0, busy="queue", backlog={"matrix": backlog})
    async with World(url, ScriptedAgent(), [driver.connected()], HourLater(), settings) as world:
        yield
        await world.gateway.outbox.quiet()


async def test_all_that_was_said_begins_one_turn(driver: MatrixDriver, tmp_path: Path) -> None:
    for text in ("one", "two"):
        driver.says(text)
    async with back_after_an_hour(driver, tmp_path, Backlog(policy="digest")):
        await driver.until(driver.texts)
    (answer,) = driver.texts()
    assert answer.split() == ["echo:", "one", "two"]


async def test_their_sender_is_asked_and_answers_with_an_emoji(driver: MatrixDriver, tmp_path: Path) -> None:
    ann, room = driver.person("one"), driver.room()
    for text in ("one", "two"):
        driver.says(text)
    async with back_after_an_hour(driver, tmp_path, Backlog(policy="ask")):
        await driver.until(driver.texts)
        (question,) = ann.screen(room).by(driver.bot.user_id)
        newest = next(line for line in question.text.splitlines() if "newest" in line and "\ufe0f\u20e3" in line)
        ann.reacts(room, question.id, newest.partition(" ")[0])
        await driver.until(lambda: any("echo:" in text for text in driver.texts()))
    assert question.text.startswith("2 messages came")
    assert [text for text in driver.texts() if "echo:" in text] == ["echo: two"]


async def test_what_is_too_old_is_not_answered_and_that_is_told_once(driver: MatrixDriver, tmp_path: Path) -> None:
    for text in ("one", "two"):
        driver.says(text)
    async with back_after_an_hour(driver, tmp_path, Backlog(policy="all", age_s=HOUR / 2)):
        await driver.until(driver.texts)
    (told,) = driver.texts()
    assert "too old" in told
