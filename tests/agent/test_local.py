"""The agent of `kind = "local"`: which agent answers what, and what happens when the model is not there."""

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from everturn.agent.demo import DemoAgent, is_for_demo
from everturn.agent.interface import Agent
from everturn.agent.local import Address, LocalAgent, LocalServer
from everturn.testing import FakePlatform, ManualClock, ScriptedAgent, World
from tests.scenes import told, while_time_passes
from tests.waiting import poll

SERVES = 'import sys; sys.stdin.readline(); print(\'{"url": "http://127.0.0.1:1"}\', flush=True); sys.stdin.read()'
FAILS = "import sys; sys.exit('no memory left')"


class Stage:
    """A local agent whose model is scripted, behind a real process that serves nothing."""

    def __init__(self, url: str, ledger: Path, program: str) -> None:
        self.clock = ManualClock()
        self.platform = FakePlatform()
        self.addresses: list[str] = []
        server = LocalServer(self.clock, program=[sys.executable, "-c", program], lacks=lambda: None)
        self.agent = LocalAgent(DemoAgent(ledger, self.clock), server, self._make)
        self.world = World(url, self.agent, [self.platform], self.clock)

    def _make(self, address: Address) -> Agent:
        self.addresses.append(address.url)
        return ScriptedAgent()


@pytest.fixture
async def served(store_url: str, tmp_path: Path) -> AsyncIterator[Stage]:
    stage = Stage(store_url, tmp_path / "ledger", SERVES)
    async with stage.world:
        yield stage
    await stage.agent.close()


@pytest.fixture
async def down(store_url: str, tmp_path: Path) -> AsyncIterator[Stage]:
    stage = Stage(store_url, tmp_path / "ledger", FAILS)
    async with stage.world:
        yield stage
    await stage.agent.close()


async def test_plain_words_go_to_the_model_through_one_agent(served: Stage) -> None:
    for text in ("hello", "work hard"):
        served.platform.say("one", text)
        assert await told(served.platform, "one", text) == f"echo: {text}"
    assert served.addresses == ["http://127.0.0.1:1"]


async def test_the_model_is_ready_before_the_first_message_when_it_was_started(served: Stage) -> None:
    served.agent.start()
    await poll(lambda: bool(served.addresses))


async def test_work_stays_with_the_demo(served: Stage) -> None:
    served.platform.say("one", "work 2")
    assert await while_time_passes(served.world, told(served.platform, "one", "done")) == "done: 2 steps"
    assert served.addresses == []


async def test_without_the_model_the_user_is_told_why_and_the_demo_works(down: Stage) -> None:
    down.platform.say("one", "hello")
    answer = await told(down.platform, "one", "could not answer")
    down.platform.say("one", "work 1")
    await while_time_passes(down.world, told(down.platform, "one", "done: 1 steps"))
    assert "the model on this machine does not start (its process ended with code 1: no memory left)" in answer


@pytest.mark.parametrize(
    ("text", "demo"),
    [("work 3", True), ("WORK 3 0.5", True), ("crash", True), ("crash always", True), ("crash\nplease", True),
     ("work", False), ("crashed", False), ("please work 3", False), ("", False)],
)  # fmt: skip
def test_only_the_demos_own_words_are_its(text: str, demo: bool) -> None:  # noqa: FBT001
    assert is_for_demo(text) is demo
