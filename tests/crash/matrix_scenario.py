"""People who write to an account on Matrix, a homeserver that dies, a proxy with faults, and a gateway that is killed."""

import asyncio
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from everturn.testing.matrix import MatrixProxy
from everturn.testing.model import ModelServer, ScriptedModel
from tests.crash.gateways import Gateway
from tests.crash.homeservers import invited, matrix_gateway
from tests.crash.paced import GROWING, PACE_S, asking, growing_text
from tests.synapse import Person, SynapseServer
from tests.waiting import PATIENCE, WAIT_S, within

PEOPLE = 4
FINISH_S = 12 * WAIT_S  # longer than the longest pause before a retry
MOMENT_S = 0.3 * PATIENCE  # at the most, for the requests that a gateway makes before it dies
FAULTS: tuple[dict[str, Any], ...] = (
    {"kind": "flood", "path": "send"},
    {"kind": "flood", "path": "sync"},
    {"kind": "server", "path": "send", "accepted": True},
    {"kind": "server", "path": "send"},
    {"kind": "server", "path": "sync"},
    {"kind": "reset", "path": "send", "accepted": True},
    {"kind": "reset", "path": "send"},
    {"kind": "reset", "path": "sync"},
    {"kind": "slow", "path": "send", "seconds": 0.3},
    {"kind": "again"},
    {"kind": "repeat"},
    {"kind": "limited"},
    {"kind": "limited"},
    {"kind": "server", "path": "messages"},
    {"kind": "flood", "path": "messages"},
    {"kind": "slow", "path": "messages", "seconds": 1.5},  # longer than the next poll waits for it
    {"kind": "slow", "path": "state", "seconds": 1.5},
    {"kind": "server", "path": "state"},
    {"kind": "error", "path": "state", "code": 404, "errcode": ""},
    {"kind": "server", "path": "event"},
    {"kind": "error", "path": "event", "code": 403, "errcode": ""},
)
REVOKED: tuple[dict[str, Any], ...] = ({"kind": "error", "path": "send"}, {"kind": "error", "path": "sync"})  # and back
ON_ARRIVAL: tuple[dict[str, Any], ...] = (
    {"kind": "flood", "path": "join", "retry_after_ms": 100},
    {"kind": "server", "path": "join"},
    {"kind": "reset", "path": "join", "accepted": True},
)


@dataclass
class MatrixScenario:
    """People who write, a homeserver that dies, a proxy with faults, and a gateway that dies."""

    synapse: SynapseServer
    proxy: MatrixProxy
    gateway: Gateway
    bot: Person
    people: list[tuple[Person, str]]
    random: Random
    kinds: tuple[dict[str, Any], ...] = FAULTS
    asked: list[tuple[Person, str, str]] = field(default_factory=list)
    kills: int = 0
    homeserver_kills: int = 0
    faults: int = 0

    def write(self) -> None:
        """Somebody says something that nobody said before; its answer streams for a while."""
        who, room = self.random.choice(self.people)
        text = growing_text(len(self.asked))
        self.asked.append((who, room, text))
        who.says(room, text)

    def misbehave(self) -> None:
        self.proxy.fail(**self.random.choice(self.kinds))
        self.faults += 1

    async def die(self, kills: int) -> None:
        """Kill the gateway so often; every third time the homeserver dies, too, while it is written to."""
        for kill in range(kills):
            await self.gateway.ready()
            for _ in range(4):
                self.write()
                self.misbehave()
                await self.requests(self.random.randint(0, 6))
            if kill % 3 == 1:
                await asyncio.to_thread(self.synapse.restart)
                self.homeserver_kills += 1
            await self.gateway.killed()
            self.kills += 1
            self.write()
            await self.gateway.start()
        await self.gateway.ready()

    async def requests(self, more: int) -> None:
        """Let the gateway make so many more requests; it may have nothing to ask for."""
        wanted = len(self.proxy.calls) + more
        with suppress(TimeoutError):
            await self.proxy.until(lambda: len(self.proxy.calls) >= wanted, MOMENT_S)

    def texts_in(self, who: Person, room: str) -> list[str]:
        return who.seen.screen(room).texts(self.bot.user_id)

    async def answered(self) -> None:
        """Wait until everybody is, whole and without a cursor, with nothing more going wrong."""
        self.proxy.faults.clear()
        for who, room, text in self.asked:
            async with within(FINISH_S, lambda: self.gateway.output):
                await who.until(
                    lambda who=who, room=room, text=text: f"answer to {text}" in self.texts_in(who, room),  # type: ignore[misc]
                    FINISH_S,
                )

    def found(self) -> tuple[int, int, int]:
        """How many answers were lost, doubled, and how many messages say something else than an answer."""
        for who, room in self.people:
            who.screen(room)
        texts = [text for each in self.people for text in self.texts_in(*each)]
        counts = Counter(texts)
        answers = [f"answer to {text}" for _, _, text in self.asked]
        lost = sum(not counts[each] for each in answers)
        doubled = sum(max(0, counts[each] - 1) for each in answers)
        return lost, doubled, len(texts) - sum(counts[each] for each in answers)

    def grew(self) -> int:
        """How many edits of their answers people saw."""
        shown = [each for who, room in self.people for each in who.seen.screen(room).by(self.bot.user_id)]
        return sum(each.edits for each in shown)

    def totals(self, engine: str) -> str:
        lost, doubled, others = self.found()
        return (
            f"matrix on {engine}: {self.kills} kills, {self.homeserver_kills} of the homeserver, {self.faults}"
            f" faults, {len(self.asked)} messages, {self.grew()} edits of growing answers: {lost} lost, {doubled} doubled,"
            f" {others} messages left over"
        )


async def kill_matrix(
    folder: Path, url: str, kills: int, synapse: SynapseServer, seed: int, kinds: tuple[dict[str, Any], ...] = FAULTS
) -> str:
    """Kill a gateway so often while its homeserver dies and its answers grow; nothing may be lost, doubled or left over."""
    bot = synapse.stranger("bot")
    people = [synapse.stranger(f"p{number}") for number in range(PEOPLE)]
    async with MatrixProxy(synapse.url) as proxy, ModelServer(ScriptedModel(pace_s=PACE_S)) as model:
        own = {"EVERTURN_STORE_URL": url, **GROWING, **asking(model)}
        async with matrix_gateway(folder, proxy.url, bot, **own) as gateway:
            await gateway.up()
            for fault in ON_ARRIVAL:
                proxy.fail(**fault)
            rooms = [(each, await invited(each, bot)) for each in people]
            scenario = MatrixScenario(synapse, proxy, gateway, bot, rooms, Random(seed), kinds)
            await scenario.die(kills)
            await scenario.answered()
            assert await gateway.stopped() == 0, gateway.output
    totals = scenario.totals(url.partition(":")[0])
    assert scenario.found() == (0, 0, 0), totals
    return totals
