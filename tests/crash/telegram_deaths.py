"""Processes that talk to the local Telegram and die at one point after the other, with or without faults of Telegram's; and what
people then see.
"""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import httpx

from everturn.decide.bubble_words import REPLACES
from everturn.decide.delivery import MAY_REPEAT
from everturn.testing_telegram import TOKEN, TelegramProcess
from tests.crash import recorded
from tests.crash.growing import FIRST_WORDS
from tests.crash.processes import run_process
from tests.crash.screens import found, is_whole
from tests.crash.telegram_lives import DIED, DONE, TelegramLife, live
from tests.crash.telegram_story import UNKNOWN
from tests.waiting import WAIT_S

AT_THE_BORDER = ("inbox.", "preview.", "send.")  # the other points are those of any platform
ANSWERS = ("whole", "growing")
FAULTS_OF_A_DEATH: tuple[dict[str, Any], ...] = tuple(
    {"kind": kind, "method": method, "seconds": 0.3}
    for kind in ("flood", "server", "slow")
    for method in ("sendMessage", "editMessageText", "getUpdates")
)
SENDING = {"send.before", "send.after"}  # where Telegram may have an answer of which we do not know


def scenario(answers: str) -> str:
    """The name on the list of points."""
    return f"telegram {answers}"


def border_of(answers: str) -> list[str]:
    """The points that are tried."""
    return [point for point in recorded.hits_of(scenario(answers)) if point.startswith(AT_THE_BORDER)]


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

    def at(self, point: str, hit: int) -> list[str]:
        """Die at this hit; what is on the screen after the next process. Faults may keep the first one from the hit."""
        life = self._prepared(f"{point}-{hit}", point, hit)
        self._misbehave(point, hit)
        code = run_process(live, life)
        assert code == DIED or (code == DONE and self._seed is not None), (point, hit, code)
        if code == DIED:
            assert run_process(live, replace(life, point="")) == DONE, (point, hit)
        texts = self._telegram.texts(life.chat)
        confirm_all(self._telegram)
        doubts = self._doubts()
        self._check(f"{point}, seed {self._seed}", life.answer, texts, doubts + (code == DIED))
        if self._seed is None:
            self._check_alone(point, texts)
        return texts

    def visited(self) -> dict[str, int]:
        """How often a process without a death passes each point."""
        file = self._folder / f"visited-{self._grows}"
        assert run_process(live, replace(self._prepared("all", "", 0), visited=str(file))) == DONE
        confirm_all(self._telegram)
        hits: dict[str, int] = json.loads(file.read_bytes())
        return hits

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
        f"{telegram.url}/bot{TOKEN}/getUpdates", json={"offset": 2**31 - 1, "timeout": 0}, timeout=WAIT_S
    ).raise_for_status()


def die_under_faults(folder: Path, seed: int) -> str:
    """Die at each hit of each point of the border, with one or two faults of Telegram's each time; what happened, in figures."""
    told = []
    for answers in ANSWERS:
        with TelegramProcess() as telegram:
            deaths = Deaths(telegram, folder, grows=answers == "growing", seed=seed)
            hits = {point: recorded.hits_of(scenario(answers))[point] for point in border_of(answers)}
            for point, count in hits.items():
                for hit in range(1, count + 1):
                    deaths.at(point, hit)
            told.append(f"telegram, {answers} answers: {sum(hits.values())} deaths, {deaths.met.total()} faults met")
    return "; ".join(told)
