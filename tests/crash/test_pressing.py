"""A question with buttons on Telegram and with emoji on Matrix, and a death at every point around it: asking, pressing, taking
the press, going on. The press counts once, the tool is used once, the answer appears once.
"""

import asyncio
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Generic, TypeVar

import msgspec
import pytest

from everturn import points
from everturn.platform.matrix.wire import MARKS
from everturn.testing_telegram import TelegramProcess
from tests.crash import matrix_lives, telegram_lives
from tests.crash.growing import FIRST_WORDS
from tests.crash.matrix_lives import MatrixLife
from tests.crash.pressing import APPROVED, QUESTION, Notes, faults_of, is_marked
from tests.crash.processes import at_every_hit, run_process
from tests.crash.telegram_lives import DIED, DONE, TelegramLife
from tests.crash.test_matrix import read_up_to
from tests.crash.test_telegram import SENDING, confirm_all
from tests.synapse import SynapseServer

AnyLife = TypeVar("AnyLife", TelegramLife, MatrixLife)
MUST_VISIT = {
    "inbox.committed", "approval.asked", "command.committed", "effect.begun", "effect.acted", "turn.finished", *SENDING,
}  # fmt: skip
IN_DOUBT = {*SENDING, "preview.opened", "preview.sent"}  # where Telegram may have a message of which we do not know
WITH_A_QUESTION_OUT = ("send.after", "send.committed")  # the first hits: it stands there, and nobody has pressed


class Deaths(ABC, Generic[AnyLife]):
    """Lives in homes of their own, one after the other. `meanwhile`: who sees a question presses while nobody lives."""

    def __init__(self, live: Callable[[AnyLife], None], folder: Path, *, meanwhile: bool = False) -> None:
        self._live: Callable[[AnyLife], None] = live
        self._folder = folder
        self._meanwhile = meanwhile

    @abstractmethod
    def prepared(self, database: str, name: str) -> AnyLife:
        """A home, and something that was said to it."""

    @abstractmethod
    def pressed(self, life: AnyLife) -> bool:
        """Press, unless that was done; whether it is done now."""

    @abstractmethod
    def seen(self, life: AnyLife, point: str) -> list[str]:
        """What a person sees of us in the end; more than each once is right only where it can not be helped."""

    def at_every_hit(self, point: str) -> int:
        """Die at each hit of a point; how many deaths there were."""
        return at_every_hit(partial(self.at, point))

    def at(self, point: str, hit: int) -> list[str] | None:
        """Die at this hit; what is on the screen after the next life, None if there was no such hit."""
        life = replace(self._prepared(f"{point}-{hit}"), point=point, hit=hit)
        code = run_process(self._live, life)
        assert code in {DIED, DONE}, (point, hit, code)
        if code == DIED:
            assert not self._meanwhile or self.pressed(life), (point, hit)
            assert run_process(self._live, replace(life, point="")) == DONE, (point, hit)
        texts = self.seen(life, point)
        return texts if code == DIED else None

    def visited(self) -> list[str]:
        """The points that a life without a death passes."""
        file = self._folder / "visited"
        life = self._prepared("all")
        assert run_process(self._live, replace(life, visited=str(file))) == DONE
        self.seen(life, "")
        return sorted(msgspec.json.decode(file.read_bytes()))

    def everywhere(self) -> dict[str, int]:
        """Die at every hit of every point; how often at each."""
        return {point: self.at_every_hit(point) for point in self.visited()}

    def _prepared(self, name: str) -> AnyLife:
        return self.prepared(f"sqlite:///{self._folder / f'{name}-{self._meanwhile}.db'}", name)


class OnTelegram(Deaths[TelegramLife]):
    """All with one bot, each with a person of its own."""

    def __init__(self, telegram: TelegramProcess, folder: Path, *, meanwhile: bool = False) -> None:
        super().__init__(telegram_lives.live, folder, meanwhile=meanwhile)
        self._telegram = telegram

    def prepared(self, database: str, name: str) -> TelegramLife:
        who, words = f"{name}-{self._meanwhile}", f"at {name}"
        self._telegram.act(who, "says", text=words)
        chat = self._telegram.person(who)
        return TelegramLife(database, self._telegram.url, chat, f"{FIRST_WORDS} {words}.", asks=who)

    def pressed(self, life: TelegramLife) -> bool:
        return telegram_lives.pressed(life)

    def seen(self, life: TelegramLife, point: str) -> list[str]:
        texts = self._telegram.texts(life.chat)
        # People press before we know that they can: what is asked and what is told of it may be in flight at any point. When
        # they see the answer the story ends, and that may be in flight, too.
        ends = point in IN_DOUBT or point.startswith("drain")
        in_doubt = [QUESTION, APPROVED] * bool(point) + [life.answer] * ends
        assert faults_of(texts, life.answer, Notes.of(life.database).effects(), in_doubt=in_doubt) == [], point
        confirm_all(self._telegram)
        return texts


class OnMatrix(Deaths[MatrixLife]):
    """All with one account, each in a room of its own."""

    def __init__(self, synapse: SynapseServer, folder: Path, *, meanwhile: bool = False) -> None:
        super().__init__(matrix_lives.live, folder, meanwhile=meanwhile)
        self._url = synapse.url
        self._bot = synapse.stranger("bot")
        self._ann = synapse.stranger("ann")

    def prepared(self, database: str, name: str) -> MatrixLife:
        bot, ann, room = self._bot, self._ann, self._ann.direct(self._bot.user_id)
        bot.joins(room)
        asyncio.run(read_up_to(database, bot.user_id, bot.asks("GET", "/sync", params={"timeout": 0})["next_batch"]))
        ann.says(room, name)
        answer, watcher = f"{FIRST_WORDS} {name}.", (ann.user_id, ann.token)
        return MatrixLife(database, self._url, bot.user_id, bot.token, watcher, room, answer, asks=True)

    def pressed(self, life: MatrixLife) -> bool:
        self._ann.screen(life.room)
        return matrix_lives.pressed(life, self._ann)

    def seen(self, life: MatrixLife, point: str) -> list[str]:
        shown = self._ann.screen(life.room).by(self._bot.user_id)
        texts = [each.text for each in shown]
        assert faults_of(texts, life.answer, Notes.of(life.database).effects()) == [], point
        both = {self._bot.user_id, self._ann.user_id}
        first, *others = (shown[0].reactions.get(mark) for mark in MARKS[:4])
        assert (first, others) == (both, [{self._bot.user_id}] * 3), point
        return texts


def die_everywhere(make: Callable[..., Deaths[AnyLife]], platform: str, capsys: pytest.CaptureFixture[str]) -> None:
    """At every hit of every point, and once more while people press a question that nobody lives for."""
    counts, meanwhile = make().everywhere(), make(meanwhile=True)
    more = [meanwhile.at(point, 1) for point in WITH_A_QUESTION_OUT]
    total = sum(counts.values()) + len(more)
    with capsys.disabled():
        sys.stderr.write(
            f"\n  {platform}, a question: {total} deaths at {len(counts)} points, 0 lost, 0 doubled in silence\n"
        )
    assert all(more)
    assert counts.keys() >= MUST_VISIT
    assert counts.keys() <= points.ALL


@pytest.mark.timeout(900)
def test_a_death_when_a_press_is_taken_or_while_a_question_goes_out_to_telegram(tmp_path: Path) -> None:
    """The press that was committed and not acknowledged comes again, and counts once. The question that was out and not
    committed stands there twice and says so; a press on the first one counts.
    """
    with TelegramProcess() as telegram:
        deaths = OnTelegram(telegram, tmp_path)
        assert deaths.at("inbox.committed", 2)
        assert deaths.at("command.committed", 1)
        twice = OnTelegram(telegram, tmp_path, meanwhile=True).at("send.after", 1)
    assert twice
    assert [is_marked(text) for text in twice if QUESTION in text] == [False, True]


@pytest.mark.timeout(900)
def test_a_death_when_a_press_is_taken_or_while_a_question_goes_out_to_matrix(
    tmp_path: Path, synapse: SynapseServer
) -> None:
    """Each stands there once, with its emoji."""
    assert OnMatrix(synapse, tmp_path).at("command.committed", 1)
    assert OnMatrix(synapse, tmp_path, meanwhile=True).at("send.after", 1)


@pytest.mark.torture
def test_a_death_at_any_point_around_a_question_on_telegram(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with TelegramProcess() as telegram:
        die_everywhere(partial(OnTelegram, telegram, tmp_path), "telegram", capsys)


@pytest.mark.torture
def test_a_death_at_any_point_around_a_question_on_matrix(
    tmp_path: Path, synapse: SynapseServer, capsys: pytest.CaptureFixture[str]
) -> None:
    die_everywhere(partial(OnMatrix, synapse, tmp_path), "matrix", capsys)
