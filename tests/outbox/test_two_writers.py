"""A streaming message that another process has written since: what the first one knew of it is no longer true."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from everturn.lifecycle.rows import record_end
from everturn.model import Bubble
from everturn.outbox.rows.outbox import bubble_of
from everturn.outbox.rules import outbox_texts
from everturn.store.interface import Op, sql
from everturn.testing import EditingPlatform, ManualClock, World
from tests.outbox.test_streaming import ANSWER, CURSOR, EAGER, Talker, seen
from tests.scenes import until_read


@dataclass(frozen=True)
class StoredMessage:
    """The row of the streaming message."""

    row: int
    claim: int
    state: str
    bubble: Bubble
    parts: str


async def stored(world: World) -> StoredMessage:
    """The only row of the outbox."""

    def read() -> Op[StoredMessage]:
        ((row, claim, state, raw, parts),) = yield sql("SELECT id, claim, state, bubble, parts FROM outbox")
        bubble = bubble_of(raw)
        assert bubble is not None
        return StoredMessage(row, claim, state, bubble, parts)

    return await world.store.read(read)


@dataclass(frozen=True)
class TwoWriters:
    """Two gateways on one database and one platform: the first has shown a part of its answer, and was closed then."""

    agent: Talker
    platform: EditingPlatform
    first: World
    other: World


@asynccontextmanager
async def two_writers(url: str) -> AsyncIterator[TwoWriters]:
    agent, platform, clock = Talker(), EditingPlatform(), ManualClock()
    first, other = (World(url, agent, [platform], clock, EAGER) for _ in range(2))
    async with first:
        platform.say("one", "hello")
        agent.go(2)
        await seen(platform, f"one two{CURSOR}")
        await until_read(lambda: stored(first), lambda message: message.parts != "[]")
        await first.store.run(record_end, first.gateway.instance.number, "unclean", clock.now())
        async with other:
            yield TwoWriters(agent, platform, first, other)
            await first.abandon()


async def test_the_delivery_of_another_process_is_an_opening_of_its_own(database_url: str) -> None:
    """The other one shows that the task is interrupted. Should the first one write the message again, it looks at nothing that
    it knew.
    """
    async with two_writers(database_url) as two:
        await seen(two.platform, f"one two\n\n{outbox_texts.PAUSED}")
        now = await until_read(lambda: stored(two.other), lambda message: message.state == "sent")
        assert now.bubble.opening == now.claim
        assert await two.first.gateway.outbox.bubbles.settle(now.bubble, now.row, now.claim) is None
        two.agent.go()
        await seen(two.platform, ANSWER)
