"""Processes that talk to the local Telegram and die at one point after the other, with or without faults of Telegram; and what
people then see.
"""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import httpx

from everturn.outbox.rules.delivery import MAY_REPEAT
from everturn.outbox.rules.outbox_texts import REPLACES
from everturn.testing.telegram import TOKEN, TelegramProcess
from tests.crash import recorded
from tests.crash.growing import FIRST_TEXT
from tests.crash.processes import run_process
from tests.crash.screens import found, is_whole
from tests.crash.telegram_processes import DIED, DONE, TelegramCrashProcess, run_to_exit
from tests.crash.telegram_scenario import UNKNOWN
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
    """Processes in homes of their own, one after the other, all with one bot; `grows`: their answers are streamed.
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
        process = self._prepared(f"{point}-{hit}", point, hit)
        self._misbehave(point, hit)
        code = run_process(run_to_exit, process)
        assert code == DIED or (code == DONE and self._seed is not None), (point, hit, code)
        if code == DIED:
            assert run_process(run_to_exit, replace(process, point="")) == DONE, (point, hit)
        texts = self._telegram.texts(process.chat)
        confirm_all(self._telegram)
        unknown = self._unknown()
        self._check(f"{point}, seed {self._seed}", process.answer, texts, unknown + (code == DIED))
        if self._seed is None:
            self._check_alone(point, texts)
        return texts

    def visited(self) -> dict[str, int]:
        """How often a process without a death passes each point."""
        file = self._folder / f"visited-{self._grows}"
        assert run_process(run_to_exit, replace(self._prepared("all", "", 0), visited=str(file))) == DONE
        confirm_all(self._telegram)
        hits: dict[str, int] = json.loads(file.read_bytes())
        return hits

    def _prepared(self, name: str, point: str, hit: int) -> TelegramCrashProcess:
        who, text = f"{name}-{self._grows}", f"at {name}"
        self._telegram.act(who, "says", text=text)
        url, chat = f"sqlite:///{self._folder / f'{who}.db'}", self._telegram.person(who)
        return TelegramCrashProcess(url, self._telegram.url, chat, f"{FIRST_TEXT} {text}", point, hit, self._grows)

    def _misbehave(self, point: str, hit: int) -> None:
        if self._seed is not None:
            random = Random(f"{self._seed} {point} {hit}")
            self._telegram.fail(*random.sample(FAULTS_OF_A_DEATH, random.choice((1, 2))))

    def _unknown(self) -> int:
        """Count the faults that were met since the last death; how many of them leave it open whether something was sent."""
        calls = self._telegram.calls()
        new, self._calls = calls[self._calls :], len(calls)
        self.met.update(each["fault"] for each in new if each["fault"])
        return sum(each["method"] == "sendMessage" and each["fault"] in UNKNOWN for each in new)

    def _check(self, where: str, answer: str, texts: list[str], unknown: int) -> None:
        """The whole answer stands last. What was in flight may stand above it and says so, once for each unknown delivery."""
        seen = found(texts, [answer])
        assert (seen.lost, seen.doubled, seen.left) == (0, 0, 0), (where, texts)
        assert seen.marked <= unknown, (where, unknown, texts)
        assert len(texts) <= 2, (where, texts)
        assert is_whole(texts[-1:], answer), (where, texts)

    def _check_alone(self, point: str, texts: list[str]) -> None:
        """Without faults only what was in flight at the death is doubled; the first text is, at whatever point of the turn."""
        assert len(texts) == 1 or self._grows or point in SENDING, (point, texts)
        mark = REPLACES if self._grows else MAY_REPEAT
        assert len(texts) == 1 or mark in texts[1], (point, texts)


def confirm_all(telegram: TelegramProcess) -> None:
    """Let the next process, in a home of its own, read only what is said from now on, and meet none of the faults of this one."""
    telegram.clear_faults()
    httpx.post(
        f"{telegram.url}/bot{TOKEN}/getUpdates", json={"offset": 2**31 - 1, "timeout": 0}, timeout=WAIT_S
    ).raise_for_status()


def die_under_faults(folder: Path, seed: int) -> str:
    """Die at each hit of each point of the border, with one or two faults of Telegram each time; the run in numbers."""
    lines = []
    for answers in ANSWERS:
        with TelegramProcess() as telegram:
            deaths = Deaths(telegram, folder, grows=answers == "growing", seed=seed)
            hits = {point: recorded.hits_of(scenario(answers))[point] for point in border_of(answers)}
            for point, count in hits.items():
                for hit in range(1, count + 1):
                    deaths.at(point, hit)
            lines.append(f"telegram, {answers} answers: {sum(hits.values())} deaths, {deaths.met.total()} faults met")
    return "; ".join(lines)
