"""Ring two: real `everturn run` processes, killed by SIGKILL at random moments while people write to them over HTTP."""

import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.crash.gateways import BREAKERS_OFF, Gateway
from tests.crash.load import People
from tests.history import Watched, totals, watched_problems

KILLS = 30
TORTURE_KILLS = int(os.environ.get("KILLS", "150"))


class Story:
    """One gateway, the people who write to it, and a seed that decides when it dies."""

    def __init__(self, home: Path, *arguments: str, **settings: str) -> None:
        self.seed = int(os.environ.get("SEED", secrets.randbelow(1_000_000)))
        self.random = Random(self.seed)  # noqa: S311
        self.gateway = Gateway(home, *arguments, **BREAKERS_OFF, **settings)
        self.people = People(self.gateway, self.random)
        self.early = 0

    async def die(self, kills: int) -> None:
        """Kill it so often, at random moments of its life; some of them lie before it is ready: while it recovers."""
        for _ in range(kills):
            if self.random.random() < 0.25:
                self.early += 1
                await self.gateway.lives_for(self.gateway.start_s * self.random.uniform(0.5, 1.0))
            else:
                await self.gateway.ready()
                await self.gateway.lives_for(self.random.uniform(0.0, 0.6))
            await self.gateway.killed()
            await self.gateway.start()
        await self.gateway.ready()

    async def run(self, kills: int) -> Watched:
        """The whole story, to the last answer."""
        async with self.gateway:
            await self.gateway.ready()
            async with self.people.writing():
                await self.die(kills)
            await self.people.repeat_everything()
            watched = await self.people.look_back()
            assert await self.gateway.stopped() == 0
        return watched


async def test_kills(tmp_path: Path, store_url: str) -> None:
    story = Story(tmp_path / "home", EVERTURN_STORE_URL=store_url)
    watched = await story.run(KILLS)
    found = watched_problems(watched)
    import pickle; pickle.dump(watched, open(f"/tmp/watched-{story.seed}.pkl","wb"))
    assert found == [], "\n".join(found)[:6000]
    print(story.seed, story.early, totals(watched))
