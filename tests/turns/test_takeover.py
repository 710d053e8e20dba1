"""A live process that was taken for dead: another instance sends its replies, and it stops sending."""

import asyncio

from structlog.testing import capture_logs

from everturn.model import Reply, SessionSource
from everturn.outbox.rows.outbox import claim_next, recover_sending
from everturn.outbox.rules.delivery import UnknownAction
from everturn.platform.interface import TextLimits
from everturn.testing import FakePlatform, ScriptedAgent, World, key_of
from tests.contracts.store import select
from tests.scenes import happened

OTHER = 99


class Held(FakePlatform):
    """A platform whose first send does not return until it may."""

    def __init__(self) -> None:
        super().__init__(limits=TextLimits(text=20))
        self.asked, self.go_on = asyncio.Event(), asyncio.Event()

    async def send(self, to: SessionSource, text: str, key: str) -> str:
        """Send, then wait."""
        sent = await super().send(to, text, key)
        self.asked.set()
        await self.go_on.wait()
        return sent


async def taken_over(world: World, key: str) -> Reply:
    """Let another instance take this one for dead, and claim what it was sending."""
    number = world.gateway.instance.number
    await world.store.run(recover_sending, number, {"fake": UnknownAction.REPEAT}, world.clock.now())
    reply = await world.store.run(claim_next, key, OTHER, OTHER, world.clock.now() + 60)
    assert isinstance(reply, Reply)
    return reply


async def test_a_sender_that_was_taken_over_stops_after_the_part_that_is_out(store_url: str) -> None:
    """Promise 8: it sends no further part, its row is the other's, and it logs that once."""
    platform = Held()
    with capture_logs() as logs:
        async with World(store_url, ScriptedAgent(), [platform]) as world:
            platform.say("one", "more than fits into one message")
            await happened(platform.asked)
            reply = await taken_over(world, key_of(platform, "one"))
            platform.go_on.set()
            await world.gateway.outbox.quiet()
            rows = await world.store.read(select, "SELECT state, instance, claim, parts FROM outbox")
    assert rows == [("sending", OTHER, OTHER, "[]")]
    assert len(platform.texts("one")) == 1
    assert [each["reply"] for each in logs if each["event"] == "reply taken over"] == [reply.id]
