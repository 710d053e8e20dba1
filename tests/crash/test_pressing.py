"""An approval request with buttons on Telegram and with emoji on Matrix, and a death at every point around it: requesting,
pressing, taking the press, resuming. The press counts once, the tool is used once, the answer appears once.
"""

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

import pytest

from everturn.platform.matrix.wire import MARKS
from everturn.testing.telegram import TelegramProcess
from tests.crash import matrix_processes, recorded, telegram_processes
from tests.crash.growing import FIRST_TEXT
from tests.crash.matrix_processes import MatrixCrashProcess
from tests.crash.pressing import APPROVED, REQUEST, Notes, faults_of, is_marked
from tests.crash.processes import run_process
from tests.crash.telegram_deaths import SENDING, confirm_all
from tests.crash.telegram_processes import DIED, DONE, TelegramCrashProcess
from tests.crash.test_matrix import read_up_to
from tests.synapse import SynapseServer

AnyProcess = TypeVar("AnyProcess", TelegramCrashProcess, MatrixCrashProcess)
PLATFORMS = ("telegram", "matrix")
# What presses add to the border of a platform.
OF_AN_APPROVAL = ("inbox.", "command.", "approval.", "effect.", "send.")
VISITS = recorded.visits({name: f"{name} approval" for name in PLATFORMS}, OF_AN_APPROVAL)
UNKNOWN = {*SENDING, "preview.opened", "preview.sent"}  # where Telegram may have a message of which we do not know
WITH_A_REQUEST_OUT = ("send.after", "send.committed")  # the first hits: it stands there, and nobody has pressed


class Deaths(ABC, Generic[AnyProcess]):
    """Processes in homes of their own, one after the other. `meanwhile`: a person presses while no gateway runs."""

    def __init__(self, run_to_exit: Callable[[AnyProcess], None], folder: Path, *, meanwhile: bool = False) -> None:
        self._run: Callable[[AnyProcess], None] = run_to_exit
        self._folder = folder
        self._meanwhile = meanwhile

    @abstractmethod
    def prepared(self, database: str, name: str) -> AnyProcess:
        """A home, and something that was said to it."""

    @abstractmethod
    def pressed(self, gateway_process: AnyProcess) -> bool:
        """Press, unless that was done; whether it is done now."""

    @abstractmethod
    def seen(self, gateway_process: AnyProcess, point: str) -> list[str]:
        """What a person sees of us in the end; more than each once is right only where it cannot be helped."""

    def at(self, point: str, hit: int) -> list[str]:
        """Die at this hit; what is on the screen after the next process."""
        gateway_process = replace(self._prepared(f"{point}-{hit}"), point=point, hit=hit)
        assert run_process(self._run, gateway_process) == DIED, (point, hit)
        assert not self._meanwhile or self.pressed(gateway_process), (point, hit)
        assert run_process(self._run, replace(gateway_process, point="")) == DONE, (point, hit)
        return self.seen(gateway_process, point)

    def visited(self) -> dict[str, int]:
        """How often a process without a death passes each point."""
        file = self._folder / "visited"
        gateway_process = self._prepared("all")
        assert run_process(self._run, replace(gateway_process, visited=str(file))) == DONE
        self.seen(gateway_process, "")
        hits: dict[str, int] = json.loads(file.read_bytes())
        return hits

    def _prepared(self, name: str) -> AnyProcess:
        return self.prepared(f"sqlite:///{self._folder / f'{name}-{self._meanwhile}.db'}", name)


class OnTelegram(Deaths[TelegramCrashProcess]):
    """All with one bot, each with a person of its own."""

    def __init__(self, telegram: TelegramProcess, folder: Path, *, meanwhile: bool = False) -> None:
        super().__init__(telegram_processes.run_to_exit, folder, meanwhile=meanwhile)
        self._telegram = telegram

    def prepared(self, database: str, name: str) -> TelegramCrashProcess:
        who, text = f"{name}-{self._meanwhile}", f"at {name}"
        self._telegram.act(who, "says", text=text)
        chat = self._telegram.person(who)
        return TelegramCrashProcess(database, self._telegram.url, chat, f"{FIRST_TEXT} {text}.", asks=who)

    def pressed(self, gateway_process: TelegramCrashProcess) -> bool:
        return telegram_processes.pressed(gateway_process)

    def seen(self, gateway_process: TelegramCrashProcess, point: str) -> list[str]:
        texts = self._telegram.texts(gateway_process.chat)
        # People press before we know that they can: the request and the notice about it may be in flight at any point. When
        # they see the answer the scenario ends, and that may be in flight, too.
        ends = point in UNKNOWN or point.startswith("drain")
        may_repeat = [REQUEST, APPROVED] * bool(point) + [gateway_process.answer] * ends
        assert (
            faults_of(
                texts, gateway_process.answer, Notes.of(gateway_process.database).effects(), may_repeat=may_repeat
            )
            == []
        ), point
        confirm_all(self._telegram)
        return texts


class OnMatrix(Deaths[MatrixCrashProcess]):
    """All with one account, each in a room of its own."""

    def __init__(self, synapse: SynapseServer, folder: Path, *, meanwhile: bool = False) -> None:
        super().__init__(matrix_processes.run_to_exit, folder, meanwhile=meanwhile)
        self._url = synapse.url
        self._bot = synapse.stranger("bot")
        self._ann = synapse.stranger("ann")

    def prepared(self, database: str, name: str) -> MatrixCrashProcess:
        bot, ann, room = self._bot, self._ann, self._ann.direct(self._bot.user_id)
        bot.joins(room)
        asyncio.run(read_up_to(database, bot.user_id, bot.asks("GET", "/sync", params={"timeout": 0})["next_batch"]))
        ann.says(room, name)
        answer, watcher = f"{FIRST_TEXT} {name}.", (ann.user_id, ann.token)
        return MatrixCrashProcess(database, self._url, bot.user_id, bot.token, watcher, room, answer, asks=True)

    def pressed(self, gateway_process: MatrixCrashProcess) -> bool:
        self._ann.screen(gateway_process.room)
        return matrix_processes.pressed(gateway_process, self._ann)

    def seen(self, gateway_process: MatrixCrashProcess, point: str) -> list[str]:
        shown = self._ann.screen(gateway_process.room).by(self._bot.user_id)
        texts = [each.text for each in shown]
        assert faults_of(texts, gateway_process.answer, Notes.of(gateway_process.database).effects()) == [], point
        both = {self._bot.user_id, self._ann.user_id}
        first, *others = (shown[0].reactions.get(mark) for mark in MARKS[:4])
        assert (first, others) == (both, [{self._bot.user_id}] * 3), point
        return texts


@pytest.fixture
def make(request: pytest.FixtureRequest, name: str, tmp_path: Path) -> Callable[..., Deaths[Any]]:
    """How processes on this platform are made."""
    if name == "telegram":
        return partial(OnTelegram, request.getfixturevalue("telegram"), tmp_path)
    return partial(OnMatrix, request.getfixturevalue("synapse"), tmp_path)


@pytest.fixture(scope="module")
def telegram() -> Iterator[TelegramProcess]:
    with TelegramProcess() as process:
        yield process


@pytest.mark.prove
@pytest.mark.parametrize("name", PLATFORMS)
def test_an_approval_passes_the_points_that_were_recorded(make: Callable[..., Deaths[Any]], name: str) -> None:
    recorded.check(f"{name} approval", make().visited())


@pytest.mark.prove
@pytest.mark.parametrize(("name", "point"), VISITS)
def test_a_death_at_a_point_around_an_approval_request(make: Callable[..., Deaths[Any]], name: str, point: str) -> None:
    """The press that was committed and not acknowledged comes again, and counts once. On Telegram, a request that was out and not
    committed stands there twice and says so; on Matrix each stands there once, with its emoji.
    """
    deaths = make()
    for hit in range(1, recorded.hits_of(f"{name} approval")[point] + 1):
        deaths.at(point, hit)


@pytest.mark.prove
@pytest.mark.parametrize("point", WITH_A_REQUEST_OUT)
@pytest.mark.parametrize("name", PLATFORMS)
def test_a_press_while_no_gateway_runs_counts_once(make: Callable[..., Deaths[Any]], name: str, point: str) -> None:
    """A press on the first of two requests that stand there counts."""
    texts = make(meanwhile=True).at(point, 1)
    marked = [is_marked(text) for text in texts if REQUEST in text]
    assert marked == ([False, True] if (name, point) == ("telegram", "send.after") else [False])
