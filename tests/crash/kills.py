"""Ring two: real `everturn run` processes, killed by SIGKILL while people write to them over HTTP. A seed decides after how much
of what people see each of them dies.
"""

from pathlib import Path
from random import Random

from tests.crash.gateways import BREAKERS_OFF, Gateway
from tests.crash.load import People
from tests.history import Watched, totals, watched_problems

MOST_SEEN = 150  # acknowledgements and events between ready and a death, at the most
STARTING = ("] agent ", "] recovered ")  # what the log says before it is ready


class KillScenario:
    """One gateway, the people who write to it, and a seed that decides when it dies. Both breakers are off."""

    def __init__(self, home: Path, url: str, seed: int, *arguments: str) -> None:
        self.engine = url.partition(":")[0]
        self.random = Random(seed)
        self.gateway = Gateway(home, *arguments, settings={**BREAKERS_OFF, "EVERTURN_STORE_URL": url})
        self.people = People(self.gateway, self.random)
        self.kills = self.early = 0

    async def die(self, kills: int) -> None:
        """Kill the gateway so often; a quarter of the deaths lie before it is ready, while it recovers."""
        for _ in range(kills):
            early = self.random.random() < 0.25
            if early:
                await self.gateway.logs(self.random.choice(STARTING))
            else:
                await self.gateway.ready()
                await self.people.until_seen(self.random.randint(0, MOST_SEEN))
            await self.gateway.killed()
            self.kills, self.early = self.kills + 1, self.early + early
            await self.gateway.start()
        await self.gateway.ready()

    async def lose_children(self, kills: int) -> None:
        """Kill the child of a supervisor so often; the supervisor waits longer before each new start."""
        for number in range(1, kills + 1):
            await self.gateway.ready(times=number)
            await self.people.until_answered(self.random.randint(1, 30))
            self.gateway.kill_inner()
            self.kills += 1
        await self.gateway.ready(times=kills + 1)

    async def restart(self, times: int) -> None:
        """Restart the gateway over HTTP, as planned."""
        for number in range(1, times + 1):
            await self.people.until_answered(self.random.randint(1, 30))
            answer = await self.gateway.ask("POST", "/control/stop", {"kind": "restart", "reason": "a test"})
            assert answer is not None
            assert answer.status == 202
            await self.gateway.ready(times=number + 1)

    async def end(self) -> Watched:
        """Post everything once more, look back, and stop as planned."""
        await self.people.repeat_everything()
        watched = await self.people.look_back()
        assert await self.gateway.stopped() == 0, self.gateway.output
        return watched

    def summary(self, watched: Watched) -> str:
        """The run in numbers."""
        kills = f"{self.kills} kills ({self.early} before it was ready)"
        return f"{self.engine}: {kills}, {totals(watched)}"

    def checked_summary(self, watched: Watched) -> str:
        """Check that nothing is wrong; returns the run in numbers."""
        found = watched_problems(watched)
        assert not found, "\n".join([self.summary(watched), *found])
        return self.summary(watched)


async def kill_under_load(home: Path, url: str, kills: int, seed: int) -> str:
    """Check promises 1 to 7 for everybody who writes while the gateway dies again and again."""
    scenario = KillScenario(home, url, seed)
    async with scenario.gateway:
        await scenario.gateway.up()
        async with scenario.people.writing():
            await scenario.die(kills)
        watched = await scenario.end()
    assert scenario.kills == kills
    return scenario.checked_summary(watched)
