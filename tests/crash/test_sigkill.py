"""Ring two: real `everturn run` processes, killed by SIGKILL at random moments while people write to them over HTTP."""

import os
import secrets
import sys
from pathlib import Path
from random import Random

import pytest

from tests.crash.gateways import BREAKERS_OFF, Gateway
from tests.crash.load import People
from tests.history import Watched, totals, watched_problems

KILLS = 12
CHILD_KILLS = 5
TORTURE_KILLS = int(os.environ.get("KILLS", "150"))


class Story:
    """One gateway, the people who write to it, and a seed that decides when it dies. Both breakers are off."""

    def __init__(self, home: Path, url: str, *arguments: str) -> None:
        self.engine = url.partition(":")[0]
        self.seed = int(os.environ.get("SEED") or secrets.randbelow(1_000_000))
        self.random = Random(self.seed)
        self.gateway = Gateway(home, *arguments, settings={**BREAKERS_OFF, "EVERTURN_STORE_URL": url})
        self.people = People(self.gateway, self.random)
        self.kills = self.early = 0

    async def die(self, kills: int) -> None:
        """Die so often at random moments; a quarter of them lie before it is ready, while it recovers."""
        for _ in range(kills):
            early = self.random.random() < 0.25
            if not early:
                await self.gateway.ready()
            # A slow machine starts slowly and works slowly.
            await self.gateway.lives_for(self.gateway.start_s * self.random.uniform(0.5 if early else 0.0, 1.0))
            await self.gateway.killed()
            self.kills, self.early = self.kills + 1, self.early + early
            await self.gateway.start()
        await self.gateway.ready()

    async def lose_children(self, kills: int) -> None:
        """The same for the child of a supervisor, which waits longer before each new start."""
        for number in range(1, kills + 1):
            await self.gateway.ready(times=number)
            await self.people.until_answered(self.random.randint(1, 30))
            self.gateway.kill_inner()
            self.kills += 1
        await self.gateway.ready(times=kills + 1)

    async def restart(self, times: int) -> None:
        """Planned restarts, asked for over HTTP."""
        for number in range(1, times + 1):
            await self.people.until_answered(self.random.randint(1, 30))
            told = await self.gateway.ask("POST", "/control/stop", {"kind": "restart", "reason": "a test"})
            assert told is not None
            assert told.status == 202
            await self.gateway.ready(times=number + 1)

    async def end(self) -> Watched:
        """Post everything once more, look back, and stop as planned."""
        await self.people.repeat_everything()
        watched = await self.people.look_back()
        assert await self.gateway.stopped() == 0, self.gateway.output
        return watched

    def told(self, watched: Watched) -> str:
        """The run in figures."""
        kills = f"{self.kills} kills ({self.early} before it was ready)"
        return f"{self.engine}, seed {self.seed}: {kills}, {totals(watched)}"


def verdict(story: Story, watched: Watched, capsys: pytest.CaptureFixture[str]) -> None:
    """Report the totals, whatever is captured; nothing may be wrong."""
    with capsys.disabled():
        sys.stderr.write(f"\n  {story.told(watched)}\n")  # also from a worker process, whose output nobody reads
    found = watched_problems(watched)
    assert not found, "\n".join([f"SEED={story.seed}", *found])


async def kill_under_load(home: Path, url: str, kills: int, capsys: pytest.CaptureFixture[str]) -> None:
    """Promises 1 to 7 for everybody who writes while the gateway dies again and again."""
    story = Story(home, url)
    async with story.gateway:
        await story.gateway.up()
        async with story.people.writing():
            await story.die(kills)
        watched = await story.end()
    assert story.kills == kills
    verdict(story, watched, capsys)


@pytest.mark.timeout(900)
async def test_a_dozen_kills_under_load_lose_and_double_nothing(
    tmp_path: Path, store_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    await kill_under_load(tmp_path / "home", store_url, KILLS, capsys)


@pytest.mark.torture
@pytest.mark.timeout(3600)
async def test_very_many_kills_under_load_lose_and_double_nothing(
    tmp_path: Path, store_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    await kill_under_load(tmp_path / "home", store_url, TORTURE_KILLS, capsys)


@pytest.mark.timeout(900)
async def test_a_supervisor_brings_a_killed_child_back_and_nothing_is_lost(
    tmp_path: Path, store_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    story = Story(tmp_path / "home", store_url, "--supervise")
    async with story.gateway:
        await story.gateway.up()
        async with story.people.writing():
            await story.lose_children(CHILD_KILLS)
        watched = await story.end()
    verdict(story, watched, capsys)


@pytest.mark.timeout(900)
async def test_planned_restarts_under_load_lose_nothing_and_interrupt_nobody(
    tmp_path: Path, store_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    story = Story(tmp_path / "home", store_url, "--supervise")
    async with story.gateway:
        await story.gateway.up()
        async with story.people.writing():
            await story.restart(times=3)
        watched = await story.end()
    verdict(story, watched, capsys)
    assert totals(watched).interrupted == 0
