"""Messages on a real Synapse while the gateway was disconnected, by the platform's setting `backlog`."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.contracts.away import are_asked_about, are_too_old, begin_one_turn
from tests.contracts.matrix import MatrixDriver
from tests.synapse import SynapseServer

pytestmark = pytest.mark.prove


@pytest.fixture
async def driver(synapse: SynapseServer) -> AsyncIterator[MatrixDriver]:
    async with MatrixDriver(None, synapse) as driver:
        yield driver


async def test_all_that_was_said_begins_one_turn(driver: MatrixDriver, tmp_path: Path) -> None:
    await begin_one_turn(driver, tmp_path)


async def test_their_sender_is_asked_and_answers_with_an_emoji(driver: MatrixDriver, tmp_path: Path) -> None:
    def reacts(label: str) -> None:
        ann, room = driver.person("one"), driver.room()
        (question,) = ann.screen(room).by(driver.bot.user_id)
        choice = next(line for line in question.text.splitlines() if label in line and "\ufe0f\u20e3" in line)
        ann.reacts(room, question.id, choice.partition(" ")[0])

    await are_asked_about(driver, tmp_path, reacts)


async def test_what_is_too_old_is_not_answered_and_that_is_told_once(driver: MatrixDriver, tmp_path: Path) -> None:
    await are_too_old(driver, tmp_path)
