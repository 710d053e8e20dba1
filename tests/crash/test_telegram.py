"""Telegram with real gateways and kill -9: the conversation goes on, nothing is lost, and what may be doubled says so."""

import os
import secrets
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import httpx
import msgspec
import pytest

from everturn import points
from everturn.decide.bubble_words import REPLACES
from everturn.decide.delivery import MAY_REPEAT
from everturn.testing_model import ModelServer, ScriptedModel
from everturn.testing_telegram import TOKEN, Person, TelegramProcess, TelegramServer, person
from tests.crash.gateways import Gateway
from tests.crash.growing import FIRST_WORDS
from tests.crash.paced import asking, out_loud
from tests.crash.processes import at_every_hit, run_process
from tests.crash.screens import found, is_whole
from tests.crash.telegram_lives import DIED, DONE, TelegramLife, live
from tests.crash.telegram_story import FAULTS, OF_HOOKS, REVOKED, UNKNOWN, kill_under_faults
from tests.crash.telegrams import telegram_gateway

KILLS = 3
TORTURE_KILLS = max(20, int(os.environ.get("KILLS", "150")) // 5)
FAULTS_OF_A_DEATH: tuple[dict[str, Any], ...] = tuple(
    {"kind": kind, "method": method, "seconds": 0.3}
    for kind in ("flood", "server", "slow")
    for method in ("sendMessage", "editMessageText", "getUpdates")
)
SENDING = {"send.before", "send.after"}  # where Telegram may have an answer of which we do not know


@dataclass
class Talk:
    """Ann, her bot, and the model behind it."""

    ann: Person
    gateway: Gateway
    model: ScriptedModel

    async def asks(self, words: str) -> None:
        """Ask, and wait for the answer."""
        self.ann.says(words)
        await self.answered(words)

    async def answered(self, words: str) -> None:
        """Wait for the answer."""
        telegram = self.ann.telegram
        await telegram.until(lambda: f"answer to {words}" in telegram.texts(self.ann.id), 60)

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


@pytest.mark.timeout(900)
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
        talk.model.fail("stall", words="three")
        talk.ann.says("tell me three")
        await talk.model.until(lambda: any("three" in each.asked.words for each in talk.model.seen))
        await talk.gateway.killed()  # in a turn
        await talk.gateway.up()
        await talk.answered("tell me three")
        await talk.asks("tell me four")
        assert await talk.session_id() == first
    request = talk.model.seen[-1].body
    assert all(f"answer to tell me {word}" in request for word in ("one", "two", "three"))
    assert all(request.count(f'"tell me {word}"') == 1 for word in ("one", "two", "three", "four"))


@pytest.mark.timeout(900)
async def test_a_few_kills_with_a_telegram_that_misbehaves_lose_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"sqlite:///{tmp_path / 'everturn.db'}"
    (await kill_under_faults(tmp_path, url, KILLS, out_loud(capsys))).check()


@pytest.mark.torture
@pytest.mark.timeout(3600)
async def test_many_kills_with_a_telegram_that_misbehaves_lose_nothing(
    tmp_path: Path, store_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    kinds = (*FAULTS * 5, *REVOKED)
    story = await kill_under_faults(tmp_path, store_url, TORTURE_KILLS, out_loud(capsys), kinds=kinds)
    story.check()
    assert story.grew() > story.kills


@pytest.mark.torture
@pytest.mark.timeout(3600)
async def test_a_gateway_that_is_killed_while_telegram_brings_updates_to_it_loses_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By webhook: what was not taken is brought again, to the same address, and what was taken without our yes is known."""
    url = f"sqlite:///{tmp_path / 'everturn.db'}"
    story = await kill_under_faults(tmp_path, url, KILLS, out_loud(capsys), kinds=OF_HOOKS, hooked=True)
    story.check()
    assert story.telegram.state.hook
    assert story.telegram.queue.polls == 0


class Deaths:
    """Lives in homes of their own, one after the other, all with one bot; `grows`: their answers are seen while they are made.
    `seed`: besides, one or two faults of Telegram's are ordered for each death.
    """

    def __init__(
        self, telegram: TelegramProcess, folder: Path, *, grows: bool = False, seed: int | None = None
    ) -> None:
        self._telegram = telegram
        self._folder = folder
        self._grows = grows
        self._seed = seed
        self._calls = 0
        self.met: Counter[str] = Counter()

    def at_every_hit(self, point: str) -> int:
        """Die at each hit of a point; how many deaths there were."""
        return at_every_hit(partial(self.at, point))

    def at(self, point: str, hit: int) -> list[str] | None:
        """Die at this hit; what is on the screen after the next life, None if there was no such hit."""
        life = self._prepared(f"{point}-{hit}", point, hit)
        self._misbehave(point, hit)
        code = run_process(live, life)
        assert code in {DIED, DONE}, (point, hit, code)
        if code == DIED:
            assert run_process(live, replace(life, point="")) == DONE, (point, hit)
        texts = self._telegram.texts(life.chat)
        confirm_all(self._telegram)
        doubts = self._doubts()
        self._check(f"{point}, seed {self._seed}", life.answer, texts, doubts + (code == DIED))
        if self._seed is None:
            self._check_alone(point, texts)
        return texts if code == DIED else None

    def visited(self) -> list[str]:
        """The points that a life without a death passes."""
        file = self._folder / f"visited-{self._grows}"
        assert run_process(live, replace(self._prepared("all", "", 0), visited=str(file))) == DONE
        confirm_all(self._telegram)
        return sorted(msgspec.json.decode(file.read_bytes()))

    def _prepared(self, name: str, point: str, hit: int) -> TelegramLife:
        who, words = f"{name}-{self._grows}", f"at {name}"
        self._telegram.act(who, "says", text=words)
        url, chat = f"sqlite:///{self._folder / f'{who}.db'}", self._telegram.person(who)
        return TelegramLife(url, self._telegram.url, chat, f"{FIRST_WORDS} {words}", point, hit, self._grows)

    def _misbehave(self, point: str, hit: int) -> None:
        if self._seed is not None:
            random = Random(f"{self._seed} {point} {hit}")
            self._telegram.fail(*random.sample(FAULTS_OF_A_DEATH, random.choice((1, 2))))

    def _doubts(self) -> int:
        """Count the faults that were met since the last death; how many of them leave it open whether something was sent."""
        calls = self._telegram.calls()
        new, self._calls = calls[self._calls :], len(calls)
        self.met.update(each["fault"] for each in new if each["fault"])
        return sum(each["method"] == "sendMessage" and each["fault"] in UNKNOWN for each in new)

    def _check(self, where: str, answer: str, texts: list[str], doubts: int) -> None:
        """The whole answer stands last. What was in flight may stand above it, and then it says so, as often as there was doubt."""
        seen = found(texts, [answer])
        assert (seen.lost, seen.doubled, seen.left) == (0, 0, 0), (where, texts)
        assert seen.marked <= doubts, (where, doubts, texts)
        assert len(texts) <= 2, (where, texts)
        assert is_whole(texts[-1:], answer), (where, texts)

    def _check_alone(self, point: str, texts: list[str]) -> None:
        """Without faults only what was in flight at the death is doubled; first words are so beside the turn, at whatever point."""
        assert len(texts) == 1 or self._grows or point in SENDING, (point, texts)
        mark = REPLACES if self._grows else MAY_REPEAT
        assert len(texts) == 1 or mark in texts[1], (point, texts)


def confirm_all(telegram: TelegramProcess) -> None:
    """Let the next life, in a home of its own, hear only what is said from now on, and meet none of the faults of this one."""
    telegram.calm()
    httpx.post(
        f"{telegram.url}/bot{TOKEN}/getUpdates", json={"offset": 2**31 - 1, "timeout": 0}, timeout=60
    ).raise_for_status()


@pytest.mark.timeout(900)
def test_a_death_at_the_border_to_telegram_loses_nothing(tmp_path: Path) -> None:
    """After the commit and before the acknowledgement; after the send and before its commit."""
    with TelegramProcess() as telegram:
        deaths = Deaths(telegram, tmp_path)
        assert all(deaths.at_every_hit(point) for point in ("inbox.committed", "send.after"))


@pytest.mark.timeout(900)
def test_first_words_that_are_out_at_a_death_are_replaced_by_an_answer_that_says_so(tmp_path: Path) -> None:
    """Sent and not committed: a second bubble, and it tells of the first. Committed: the same bubble goes on to grow."""
    with TelegramProcess() as telegram:
        deaths = Deaths(telegram, tmp_path, grows=True)
        sent, committed = deaths.at("preview.sent", 1), deaths.at("preview.committed", 1)
    assert sent
    assert sent[0].startswith(FIRST_WORDS)
    assert REPLACES in sent[1]
    assert committed == [f"{FIRST_WORDS} at preview.committed-1"]


@pytest.mark.torture
@pytest.mark.parametrize("grows", [False, True])
def test_a_death_at_any_point_with_telegram_loses_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], *, grows: bool
) -> None:
    seed = int(os.environ.get("SEED") or secrets.randbelow(1_000_000))
    with TelegramProcess() as telegram:
        deaths = Deaths(telegram, tmp_path, grows=grows, seed=seed)
        visited = {point: deaths.at_every_hit(point) for point in deaths.visited()}
    what = "answers that grow" if grows else "whole answers"
    totals = f"{sum(visited.values())} deaths at {len(visited)} points, {deaths.met.total()} faults met"
    out_loud(capsys)(f"telegram, {what}, seed {seed}: {totals}, 0 lost, 0 doubled in silence")
    previews = {"preview.opened", "preview.sent", "preview.committed"} if grows else set()
    assert {"inbox.committed", "send.before", "send.after", "turn.finished"} | previews <= visited.keys() <= points.ALL
