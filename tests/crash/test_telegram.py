"""Telegram with real gateways and kill -9: the conversation goes on, nothing is lost, and what may be doubled says so."""

import os
import secrets
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
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
from tests.crash.processes import at_every_hit, run_process
from tests.crash.telegram_lives import DIED, DONE, TelegramLife, live
from tests.crash.telegrams import telegram_gateway

KILLS = 3
TORTURE_KILLS = max(20, int(os.environ.get("KILLS", "150")) // 5)
PEOPLE = 4
FINISH_S = 180.0  # longer than the longest wait before a last try
ROUND = 6  # after so many lives all is well for a while: one reply must not meet as many faults as make a dead letter
LIFE_S = 3.0
ACTIVE = 0.5  # so many of the lives say something; the others die whenever it may be
CURSOR = "▌"
SENDING = {"send.before", "send.after"}  # where Telegram may have an answer of which we do not know
FAULTS: tuple[dict[str, Any], ...] = (
    {"kind": "flood", "method": "sendMessage"},
    {"kind": "flood", "method": "getUpdates"},
    {"kind": "flood", "method": "editMessageText"},
    {"kind": "server", "method": "sendMessage", "accepted": True},
    {"kind": "server", "method": "sendMessage"},
    {"kind": "server", "method": "getUpdates"},
    {"kind": "reset", "method": "sendMessage", "accepted": True},
    {"kind": "reset", "method": "getUpdates"},
    {"kind": "reset", "method": "editMessageText", "accepted": True},
    {"kind": "slow", "method": "sendMessage", "seconds": 0.3},
)


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
    async with TelegramServer() as server, ModelServer() as model:
        llm = {"KIND": "llm", "MODEL": "openai:scripted", "BASE_URL": model.base_url}
        settings = {f"EVERTURN_AGENT_{name}": value for name, value in llm.items()}
        async with telegram_gateway(folder, server, **settings) as gateway:
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


@dataclass
class Story:
    """People who write, a Telegram that misbehaves, and a gateway that dies."""

    server: TelegramServer
    gateway: Gateway
    random: Random
    seed: int
    asked: list[tuple[Person, str]] = field(default_factory=list)
    kills: int = 0
    faults: int = 0

    def write(self) -> None:
        """Somebody says something that nobody said before."""
        who = person(self.server.telegram, f"P{self.random.randrange(PEOPLE)}")
        words = f"word-{len(self.asked)}."
        self.asked.append((who, words))
        who.says(words)

    def misbehave(self) -> None:
        """Something goes wrong with the next call of a kind; updates come again, or in the wrong order."""
        self.server.telegram.fail(**self.random.choice(FAULTS))
        self.server.telegram.queue.repeat(self.random.randrange(3))
        self.faults += 1

    async def die(self, kills: int) -> None:
        for kill in range(kills):
            await self.gateway.ready()
            if kill and not kill % ROUND:
                await self.answered()
            before = self.shown()
            for _ in range(4):
                self.write()
                self.misbehave()
                await self.gateway.lives_for(self.gateway.start_s * self.random.uniform(0.0, 0.2))
            if self.random.random() < ACTIVE:  # this life does not end before it said something
                with suppress(TimeoutError):
                    await self.server.telegram.until(partial(self.said_more, before), LIFE_S)
            await self.gateway.killed()
            self.kills += 1
            self.write()
            await self.gateway.start()
        await self.gateway.ready()
        await self.answered()

    def shown(self) -> int:
        """How many bubbles people see."""
        return sum(len(self.server.telegram.texts(who.id)) for who in {who.id: who for who, _ in self.asked}.values())

    def said_more(self, before: int) -> bool:
        return self.shown() > before

    def bubbles(self, who: Person, words: str) -> list[str]:
        return [text for text in self.server.telegram.texts(who.id) if f"You said: {words}" in text]

    async def answered(self) -> None:
        """Wait until everybody is, with nothing more going wrong."""
        self.server.telegram.faults.clear()
        try:
            await self.server.telegram.until(lambda: not self.unanswered(), FINISH_S)
        except TimeoutError:
            screens = {who.id: self.server.telegram.texts(who.id)[-3:] for who, _ in self.unanswered()}
            words = [words for _, words in self.unanswered()]
            raise AssertionError(f"SEED={self.seed}: no answer to {words}; {screens}\n{self.gateway.output}") from None

    def unanswered(self) -> list[tuple[Person, str]]:
        return [each for each in self.asked if not self.bubbles(*each)]

    def found(self) -> tuple[int, int, int]:
        """How many were lost, doubled without saying so, and repeated with a mark."""
        counts = [self.bubbles(who, words) for who, words in self.asked]
        plain = [
            [text for text in texts if text.endswith(words)]
            for texts, (_, words) in zip(counts, self.asked, strict=True)
        ]
        lost = sum(not texts for texts in counts)
        doubled = sum(max(0, len(texts) - 1) for texts in plain)
        return lost, doubled, sum(map(len, counts)) - sum(map(len, plain))


async def kill_under_faults(
    folder: Path, url: str, kills: int, told: Callable[[str], object]
) -> tuple[Story, tuple[int, int, int]]:
    seed = int(os.environ.get("SEED") or secrets.randbelow(1_000_000))
    async with TelegramServer() as server:
        story = Story(server, telegram_gateway(folder, server, EVERTURN_STORE_URL=url), Random(seed), seed)
        async with story.gateway:
            await story.gateway.up()
            await story.die(kills)
            assert await story.gateway.stopped() == 0, story.gateway.output
        result = story.found()
    lost, doubled, marked = result
    told(
        f"telegram on {url.partition(':')[0]}, seed {seed}: {story.kills} kills, {story.faults} faults, {len(story.asked)} messages:"
        f" {lost} lost, {doubled} doubled in silence, {marked} repeated with a mark"
    )
    return story, result


def out_loud(capsys: pytest.CaptureFixture[str]) -> Callable[[str], object]:
    def tell(text: str) -> None:
        with capsys.disabled():
            sys.stderr.write(f"\n  {text}\n")

    return tell


@pytest.mark.timeout(900)
async def test_a_few_kills_with_a_telegram_that_misbehaves_lose_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"sqlite:///{tmp_path / 'everturn.db'}"
    story, (lost, doubled, marked) = await kill_under_faults(tmp_path, url, KILLS, out_loud(capsys))
    assert (lost, doubled) == (0, 0), f"SEED={story.seed}"
    assert marked <= story.kills + story.faults


@pytest.mark.torture
@pytest.mark.timeout(3600)
async def test_many_kills_with_a_telegram_that_misbehaves_lose_nothing(
    tmp_path: Path, store_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    story, (lost, doubled, marked) = await kill_under_faults(tmp_path, store_url, TORTURE_KILLS, out_loud(capsys))
    assert (lost, doubled) == (0, 0), f"SEED={story.seed}"
    assert marked <= story.kills + story.faults


class Deaths:
    """Lives in homes of their own, one after the other, all with one bot; `grows`: their answers are seen while they are made."""

    def __init__(self, telegram: TelegramProcess, folder: Path, *, grows: bool = False) -> None:
        self._telegram = telegram
        self._folder = folder
        self._grows = grows

    def at_every_hit(self, point: str) -> int:
        """Die at each hit of a point; how many deaths there were."""
        return at_every_hit(partial(self.at, point))

    def at(self, point: str, hit: int) -> list[str] | None:
        """Die at this hit; what is on the screen after the next life, None if there was no such hit."""
        life = self._prepared(f"{point}-{hit}", point, hit)
        code = run_process(live, life)
        assert code in {DIED, DONE}, (point, hit, code)
        if code == DIED:
            assert run_process(live, replace(life, point="")) == DONE, (point, hit)
        texts = self._telegram.texts(life.chat)
        confirm_all(self._telegram)
        self._check(point, life.answer, texts)
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

    def _check(self, point: str, answer: str, texts: list[str]) -> None:
        """The whole answer stands last. The one that was in flight may stand above it, and then it says so; first words are in
        flight beside the turn, at whatever point that is.
        """
        assert answer in texts[-1], (point, texts)
        assert texts.count(answer) <= 1, (point, texts)
        assert len(texts) == 1 or self._grows or point in SENDING, (point, texts)
        assert len(texts) <= 2, (point, texts)
        if len(texts) == 2:
            assert texts[0].startswith(FIRST_WORDS), (point, texts)
            assert (REPLACES if self._grows else MAY_REPEAT) in texts[1], (point, texts)
        assert CURSOR not in texts[-1], (point, texts)


def confirm_all(telegram: TelegramProcess) -> None:
    """Let the next life, in a home of its own, hear only what is said from now on."""
    httpx.post(f"{telegram.url}/bot{TOKEN}/getUpdates", json={"offset": 2**31 - 1, "timeout": 0}).raise_for_status()


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
    with TelegramProcess() as telegram:
        deaths = Deaths(telegram, tmp_path, grows=grows)
        visited = {point: deaths.at_every_hit(point) for point in deaths.visited()}
    what = "answers that grow" if grows else "whole answers"
    totals = f"{sum(visited.values())} deaths at {len(visited)} points, 0 lost, 0 doubled in silence"
    out_loud(capsys)(f"telegram, {what}: {totals}")
    previews = {"preview.opened", "preview.sent", "preview.committed"} if grows else set()
    assert {"inbox.committed", "send.before", "send.after", "turn.finished"} | previews <= visited.keys() <= points.ALL
