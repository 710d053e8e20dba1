"""The demo agent: what it does, what its ledger says, and what of that survives a crash."""

import asyncio
from pathlib import Path

import pytest

from everturn.agent.demo import DemoAgent
from everturn.testing import FakePlatform, ManualClock, World
from tests.scenes import die, told, until_read, while_time_passes


class Stage:
    """A demo agent in a world with a manual clock."""

    def __init__(self, url: str, folder: Path) -> None:
        self.died = asyncio.Event()
        self.platform = FakePlatform()
        self._file = folder / "demo-ledger.txt"
        clock = ManualClock()
        self.world = World(url, DemoAgent(self._file, clock, self.died.set), [self.platform], clock)

    def ledger(self) -> list[list[str]]:
        """Its lines, each as turn and step."""
        return [line.split() for line in self._file.read_text().splitlines()] if self._file.exists() else []

    async def ledger_has(self, lines: int) -> None:
        """Wait until so many effects have happened."""
        await until_read(self._count, lambda count: count >= lines)

    async def _count(self) -> int:
        return await asyncio.to_thread(lambda: len(self.ledger()))


@pytest.fixture
def stage(store_url: str, tmp_path: Path) -> Stage:
    return Stage(store_url, tmp_path)


async def test_work_runs_its_effects_and_says_so(stage: Stage) -> None:
    async with stage.world as world:
        stage.platform.say("one", "work 3 2")
        answer = await while_time_passes(world, told(stage.platform, "one", "done"))
    assert answer == "done: 3 steps"
    assert [step for _, step in stage.ledger()] == ["step-1", "step-2", "step-3"]
    assert len({turn for turn, _ in stage.ledger()}) == 1


async def test_work_streams_its_progress(stage: Stage) -> None:
    async with stage.world as world:
        stage.platform.say("one", "work 2")
        await stage.ledger_has(1)
        live = world.gateway.hub.live("agent:main:fake:dm:one")
        await while_time_passes(world, told(stage.platform, "one", "done"))
        assert world.gateway.hub.live("agent:main:fake:dm:one") is None
    assert live is not None
    assert live.text == "working: step 1 of 2"


async def test_an_effect_that_a_death_hid_is_told_and_never_repeated(stage: Stage) -> None:
    async with stage.world as world:
        stage.platform.say("one", "work 3")
        await stage.ledger_has(1)
        await die(world)
        await world.start()
        answer = await while_time_passes(world, told(stage.platform, "one", "done"))
    assert answer == "done: 3 steps (1 with unknown outcome)"
    assert [step for _, step in stage.ledger()] == ["step-1", "step-2", "step-3"]


async def test_crash_ends_the_process_on_the_first_attempt_only(stage: Stage) -> None:
    async with stage.world as world:
        stage.platform.say("one", "crash")
        await stage.died.wait()
        await told(stage.platform, "one", "Nothing was lost")
        stage.died.clear()
        await die(world)
        await world.start()
    assert not stage.died.is_set()


async def test_crash_always_ends_it_every_time(stage: Stage) -> None:
    async with stage.world:
        for chat in ("one", "two"):
            stage.platform.say(chat, "crash always")
            await stage.died.wait()
            stage.died.clear()


@pytest.mark.parametrize("text", ["hello", "work", "work hard", "crashed", "work 3 2 1"])
async def test_anything_else_is_answered_with_what_it_sees(stage: Stage, text: str) -> None:
    async with stage.world:
        stage.platform.say("one", "first")
        stage.platform.say("one", text)
        answer = await told(stage.platform, "one", f"You said: {text}")
    assert answer == f"I see 2 earlier messages of this conversation. You said: {text}"


async def test_no_effects_are_no_work(stage: Stage) -> None:
    async with stage.world:
        stage.platform.say("one", "work 0")
        assert await told(stage.platform, "one", "done") == "done: 0 steps"
    assert stage.ledger() == []
