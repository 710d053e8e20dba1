"""An agent that is a program: killed, silent or speaking nonsense, nothing of its turn is lost or done twice."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from everturn.agent.outside import ProcessAgent
from everturn.agent.wire import OUTCOME_UNKNOWN, WireSettings
from everturn.testing import FakePlatform, World
from tests.house import ROOT
from tests.scenes import EAGER, die
from tests.waiting import poll

PROGRAM = Path(__file__).with_name("agent_program.py")
SMALL = WireSettings(max_steps=5, retries=2, line_bytes=100_000, reply_bytes=300_000)


class Swift:
    """A clock for the agent alone: waits between tries pass at once, patience never ends."""

    def __init__(self) -> None:
        self.waits: list[float] = []
        self._impatient = asyncio.Event()

    def lose_patience(self) -> None:
        """End the wait for activity of the agent."""
        self._impatient.set()
        self._impatient.clear()

    def now(self) -> float:
        return 0.0

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        if seconds >= SMALL.stall_s:
            await self._impatient.wait()
            return
        self.waits.append(seconds)


class Stage:
    """A gateway whose agent is the program of this folder."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.folder = folder
        self.clock = Swift()
        self.platform = FakePlatform()
        self.agent = self.new_agent()

    def new_agent(self) -> ProcessAgent:
        command = [sys.executable, str(PROGRAM), str(self.folder)]
        return ProcessAgent(command, self.folder, os.environ, self.clock, SMALL)

    def world(self) -> World:
        return World(self.url, self.agent, [self.platform], settings=EAGER)

    async def answer(self, text: str) -> str:
        """What the user sees in answer to this text, through one run of the gateway."""
        async with self.world():
            said = await self.ask(text)
        await self.agent.close()
        return said

    async def ask(self, text: str) -> str:
        """Say it and wait for what comes."""
        before = len(self.platform.screen)
        self.platform.say("one", text)
        return await self.said(before)

    async def said(self, before: int = 0) -> str:
        """What came after so many texts."""
        await self.platform.until(lambda: len(self.platform.screen) > before)
        return self.platform.screen[-1].text

    def ledger(self, beginning: str = "") -> list[str]:
        """What the program did, process by process."""
        file = self.folder / "ledger"
        lines = file.read_text().splitlines() if file.exists() else []
        return [line for line in lines if line.startswith(beginning)]

    def done(self) -> list[str]:
        """Which calls were really run."""
        return [line.split()[1] for line in self.ledger("ran")]


@pytest.fixture
def stage(store_url: str, tmp_path: Path) -> Stage:
    return Stage(store_url, tmp_path)


async def test_steps_and_results_go_back_and_forth_until_the_answer(stage: Stage) -> None:
    assert await stage.answer("go") == "result 1 result 2; seen 0; note False"
    assert stage.done() == ["1", "2"]
    assert len(stage.ledger("process")) == 1


async def test_the_next_turn_sees_the_history_of_the_first(stage: Stage) -> None:
    async with stage.world():
        said = [await stage.ask(text) for text in ("go", "on")]
    await stage.agent.close()
    assert said[1] == "result 1 result 2; seen 6; note False"


async def test_a_program_that_is_killed_after_a_result_repeats_nothing_after_its_restart(stage: Stage) -> None:
    async with stage.world():
        stage.platform.say("one", "waits")
        await poll(lambda: bool(stage.ledger("waits")), seen=stage.ledger)
        os.kill(int(stage.ledger("waits")[0].split()[1]), signal.SIGKILL)
        said = await stage.said()
    await stage.agent.close()
    assert said == "result 1 result 2; seen 0; note False"
    assert stage.done() == ["1", "2"]
    assert len(stage.ledger("process")) == 2


async def test_a_gateway_that_dies_after_a_result_hands_the_committed_steps_to_a_new_program(stage: Stage) -> None:
    world = stage.world()
    await world.start()
    stage.platform.say("one", "waits")
    await poll(lambda: bool(stage.ledger("waits")), seen=stage.ledger)
    await die(world)
    await stage.agent.close()
    stage.agent = stage.new_agent()
    async with stage.world():
        said = await stage.said()
    await stage.agent.close()
    assert said == "result 1 result 2; seen 0; note True"
    assert stage.done() == ["1", "2"]


@pytest.mark.parametrize(
    ("text", "said", "done"),
    [
        ("go", f"result 1 {OUTCOME_UNKNOWN}; seen 0; note False", ["1", "2"]),
        ("pure", "result 1 result 2; seen 0; note False", ["1", "2", "2"]),
        ("same", "result 1 result 2; seen 0; note False", ["1", "2", "2"]),
    ],
)
async def test_a_call_in_which_the_program_dies_ends_by_its_class(
    stage: Stage, text: str, said: str, done: list[str]
) -> None:
    (stage.folder / "die-in-2").touch()
    assert await stage.answer(text) == said
    assert stage.done() == done
    assert len({line.split()[2] for line in stage.ledger("ran 2")}) == 1  # the same key each time


async def test_a_notice_of_the_program_reaches_the_user(stage: Stage) -> None:
    async with stage.world():
        stage.platform.say("one", "reports")
        expected = {"I look around", "result 1 result 2; seen 0; note False"}
        await stage.platform.until(lambda: set(stage.platform.texts("one")) == expected)
    await stage.agent.close()


async def test_a_program_that_ends_between_two_requests_is_started_again(stage: Stage) -> None:
    """The next request is written where nobody reads any more."""
    (stage.folder / "leave-after-1").touch()
    assert await stage.answer("go") == "result 1 result 2; seen 0; note False"
    assert stage.done() == ["1", "2"]
    assert len(stage.ledger("process")) == 2


@pytest.mark.parametrize("text", ["dies", "busy"])
async def test_a_program_that_fails_once_is_asked_again(stage: Stage, text: str) -> None:
    assert "result 1 result 2" in await stage.answer(text)
    assert stage.clock.waits == [0.5]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("stubborn", "ended in the middle of its reply, 3 times in a row"),
        ("exits", "ended with code 7 in the middle of its reply, 3 times in a row"),
        ("nonsense", "a line of its reply is not JSON"),
        ("strange", "a line of its reply has a wrong field"),
        ("huge", "a line of its reply is too long"),
        ("endless", "a reply is longer than 300000 bytes"),
        ("misplaced", "is of the wrong type for this request"),
        ("twice", "two calls of one turn have the same id"),
        ("sorry", "I could not answer: I have no opinion."),
        ("forever", "more than 5 steps"),
    ],
)
async def test_what_cannot_be_answered_ends_with_the_reason(stage: Stage, text: str, said: str) -> None:
    told_user = await stage.answer(text)
    assert said in told_user
    assert "s3cret" not in told_user


async def test_a_program_that_does_not_exist_is_told_in_words(store_url: str, tmp_path: Path) -> None:
    stage = Stage(store_url, tmp_path)
    stage.agent = ProcessAgent(["no-such-program"], tmp_path, os.environ, Swift(), SMALL)
    assert "'no-such-program' cannot be started" in await stage.answer("go")


async def test_a_silent_program_is_ended_and_asked_again(stage: Stage) -> None:
    async with stage.world():
        stage.platform.say("one", "silent")
        await poll(lambda: bool(stage.ledger("silent")), seen=stage.ledger)
        stage.clock.lose_patience()
        assert "result 1 result 2" in await stage.said()
    await stage.agent.close()
    assert len(stage.ledger("process")) == 2


async def test_a_stopped_turn_ends_its_program(stage: Stage) -> None:
    async with stage.world():
        stage.platform.say("one", "silent")
        await poll(lambda: bool(stage.ledger("silent")), seen=stage.ledger)
        stage.platform.say("one", "/stop")
        await poll(gone(int(stage.ledger("silent")[0].split()[1])))
    await stage.agent.close()


def gone(pid: int) -> Callable[[], bool]:
    def is_gone() -> bool:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        return False

    return is_gone


async def test_the_program_sees_no_setting_of_ours(store_url: str, tmp_path: Path) -> None:
    stage = Stage(store_url, tmp_path)
    tells = 'import os, json; input(); print(json.dumps({"type": "answer", "text": " ".join(sorted(os.environ))}))'
    env = {"EVERTURN_STORE_URL": "postgresql://me:s3cret@host/db", "PATH": os.environ["PATH"], "THEIRS": "x"}
    stage.agent = ProcessAgent([sys.executable, "-c", tells], tmp_path, env, Swift(), SMALL)
    said = await stage.answer("go")
    assert "THEIRS" in said
    assert "EVERTURN" not in said


async def test_the_example_answers(store_url: str, tmp_path: Path) -> None:
    stage = Stage(store_url, tmp_path)
    command = [sys.executable, str(ROOT / "examples" / "process_agent.py")]
    stage.agent = ProcessAgent(command, tmp_path, os.environ, Swift(), SMALL)
    assert await stage.answer("hello") == "You wrote 5 letters."
