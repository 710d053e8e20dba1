"""Telegram with real gateways and kill -9: the conversation goes on, nothing is lost, and what may be doubled says so."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from everturn.outbox.rules.outbox_texts import REPLACES
from everturn.testing.model import ModelServer, ScriptedModel
from everturn.testing.telegram import Person, TelegramProcess, TelegramServer, person
from tests.crash import recorded
from tests.crash.gateways import Gateway
from tests.crash.growing import FIRST_TEXT
from tests.crash.paced import asking
from tests.crash.telegram_deaths import ANSWERS, AT_THE_BORDER, Deaths, scenario
from tests.crash.telegrams import telegram_gateway

VISITS = recorded.visits({answers: scenario(answers) for answers in ANSWERS}, AT_THE_BORDER)


@dataclass
class Talk:
    """Ann, her bot, and the model behind it."""

    ann: Person
    gateway: Gateway
    model: ScriptedModel

    async def asks(self, text: str) -> None:
        """Ask, and wait for the answer."""
        self.ann.says(text)
        await self.answered(text)

    async def answered(self, text: str) -> None:
        """Wait for the answer."""
        telegram = self.ann.telegram
        await telegram.until(lambda: f"answer to {text}" in telegram.texts(self.ann.id))

    async def session_id(self) -> str:
        """The session of her chat."""
        return str((await self.gateway.session(str(self.ann.id)))["session_id"])


@asynccontextmanager
async def talking(folder: Path) -> AsyncIterator[Talk]:
    async with (
        TelegramServer() as server,
        ModelServer() as model,
        telegram_gateway(folder, server, **asking(model)) as gateway,
    ):
        await gateway.up()
        yield Talk(person(server.telegram, "Ann"), gateway, model.model)


@pytest.mark.prove
async def test_telegram_goes_on_with_its_session_and_whole_history_after_kill_nine_idle_and_in_a_turn(
    tmp_path: Path,
) -> None:
    """The proof of the platform: same session id, and the model's request holds all that was said before."""
    async with talking(tmp_path) as talk:
        await talk.asks("tell me one")
        first = await talk.session_id()
        await talk.gateway.killed()  # idle
        await talk.gateway.up()
        await talk.asks("tell me two")
        talk.model.fail("stall", text="three")
        talk.ann.says("tell me three")
        await talk.model.until(lambda: any("three" in each.asked.text for each in talk.model.seen))
        await talk.gateway.killed()  # in a turn
        await talk.gateway.up()
        await talk.answered("tell me three")
        await talk.asks("tell me four")
        assert await talk.session_id() == first
    request = talk.model.seen[-1].body
    assert all(f"answer to tell me {word}" in request for word in ("one", "two", "three"))
    assert all(request.count(f'"tell me {word}"') == 1 for word in ("one", "two", "three", "four"))


@pytest.fixture(scope="module")
def telegram() -> Iterator[TelegramProcess]:
    with TelegramProcess() as process:
        yield process


@pytest.mark.prove
@pytest.mark.parametrize("answers", ANSWERS)
def test_telegram_passes_the_points_that_were_recorded(tmp_path: Path, telegram: TelegramProcess, answers: str) -> None:
    recorded.check(scenario(answers), Deaths(telegram, tmp_path, grows=answers == "growing").visited())


@pytest.mark.prove
@pytest.mark.parametrize(("answers", "point"), VISITS)
def test_a_death_at_a_point_of_the_border_to_telegram_loses_nothing(
    tmp_path: Path, telegram: TelegramProcess, answers: str, point: str
) -> None:
    """Only what was in flight stands there twice, and says so."""
    deaths = Deaths(telegram, tmp_path, grows=answers == "growing")
    for hit in range(1, recorded.hits_of(scenario(answers))[point] + 1):
        deaths.at(point, hit)


def test_first_text_that_is_out_at_a_death_is_replaced_by_an_answer_that_says_so(
    tmp_path: Path, telegram: TelegramProcess
) -> None:
    """Sent and not committed: a second message that says it replaces the first. Committed: the same message streams on."""
    deaths = Deaths(telegram, tmp_path, grows=True)
    sent, committed = deaths.at("preview.sent", 1), deaths.at("preview.committed", 1)
    assert sent[0].startswith(FIRST_TEXT)
    assert REPLACES in sent[1]
    assert committed == [f"{FIRST_TEXT} at preview.committed-1"]
