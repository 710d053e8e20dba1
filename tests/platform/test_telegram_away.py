"""Messages on the local Telegram while the gateway was disconnected, by Telegram's own dates and the setting `backlog`."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.contracts.away import are_asked_about, are_too_old, begin_one_turn
from tests.contracts.telegram import TelegramDriver


@pytest.fixture
async def driver() -> AsyncIterator[TelegramDriver]:
    async with TelegramDriver() as driver:
        yield driver


async def test_all_that_was_said_begins_one_turn(driver: TelegramDriver, tmp_path: Path) -> None:
    await begin_one_turn(driver, tmp_path)


async def test_their_sender_is_asked_and_presses_a_button(driver: TelegramDriver, tmp_path: Path) -> None:
    pressed: list[str | None] = []
    await are_asked_about(driver, tmp_path, lambda label: pressed.append(driver.person("one").presses_newest(label)))
    assert [driver.telegram.state.presses[each or ""] for each in pressed] == [True]


async def test_what_is_too_old_is_not_answered_and_that_is_told_once(driver: TelegramDriver, tmp_path: Path) -> None:
    await are_too_old(driver, tmp_path)
