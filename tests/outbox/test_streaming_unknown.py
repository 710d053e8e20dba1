"""Streaming messages when a platform is in trouble: nobody sees dozens of them, and no answer is dropped with its first part."""

import asyncio

from everturn.agent.interface import Answer, TurnContext
from everturn.errors import OutcomeUnknown
from everturn.model import SessionSource, ToolCall
from everturn.outbox.rules.delivery import Surety
from everturn.outbox.rules.outbox_texts import REPLACES
from everturn.testing import EditingPlatform, FakePlatform, ManualClock, SendFault, World, open_to_all
from tests.outbox.test_streaming import ANSWER, CURSOR, EAGER, Talker, cut_off, grown, seen
from tests.scenes import die, happened, told, trace_of, until_read, while_time_passes

LOST = SendFault(OutcomeUnknown("502"), accepted=True)


async def test_streaming_repeats_a_part_with_unknown_delivery_once_and_leaves_the_rest_to_the_final_delivery(
    store_url: str,
) -> None:
    """Where each repetition is seen: however much there is to show, and however often it goes wrong."""
    platform, agent = EditingPlatform(surety=Surety.NEITHER, faults=[LOST, LOST, LOST]), Talker()
    async with World(store_url, agent, [platform], ManualClock(), EAGER) as world:
        platform.say("one", "hello")
        agent.go(2)
        await platform.until(lambda: platform.calls == 2)
        agent.go()
        await until_read(lambda: trace_of(world, "m1"), lambda trace: bool(trace["replies"][0]["tries"]))
        assert platform.calls == 3  # the first part, once more, and the final delivery
        await while_time_passes(world, platform.until(lambda: len(platform.texts("one")) == 4))
    first, *repeated = platform.texts("one")
    assert (first, repeated[-1]) == (f"one two{CURSOR}", f"{REPLACES}\n\n{ANSWER}")
    assert [REPLACES in each for each in repeated] == [True] * 3


async def test_an_answer_of_a_platform_that_is_off_by_now_waits_for_it(store_url: str) -> None:
    """An earlier process sent its first part: the answer goes into that message, whenever the platform is back."""
    platform, agent, clock, settings = EditingPlatform(), Talker(), ManualClock(), open_to_all(EAGER, "fake", "other")
    world = World(store_url, agent, [platform], clock, settings)
    await world.start()
    platform.say("one", "hello")
    await grown(platform, agent)
    await die(world)
    agent.go()
    async with World(store_url, agent, [FakePlatform("other")], clock, settings) as world:
        await until_read(lambda: trace_of(world, "m1"), lambda trace: trace["state"] == "done")
    async with World(store_url, agent, [platform], clock, settings) as world:
        await while_time_passes(world, seen(platform, ANSWER))


class Gate(EditingPlatform):
    """Changes of what was sent take as long as a test wants."""

    def __init__(self) -> None:
        super().__init__()
        self.opened = asyncio.Event()
        self.opened.set()
        self.at_the_gate = asyncio.Event()

    async def edit(self, to: SessionSource, message_id: str, text: str) -> None:
        """Wait at the gate, then replace."""
        self.at_the_gate.set()
        await self.opened.wait()
        await super().edit(to, message_id, text)


class Late(Talker):
    """Is cut off while it talks. The next attempt says something else and requests approval, while the interruption is being shown."""

    def __init__(self, platform: Gate) -> None:
        super().__init__()
        self._platform = platform

    async def run(self, turn: TurnContext) -> Answer:
        """The attempt after the answer to its request ends it."""
        if turn.attempt == 1:
            return await super().run(turn)
        await turn.calling()
        await turn.settle(self._act)
        if not any(row.calls for row in await turn.own()):
            await self._platform.at_the_gate.wait()
            await turn.step("That loses your notes.", [ToolCall("c1", "delete", ask="delete 3 files?")], self._act)
        return Answer("Deleted.")

    async def _act(self, _call: ToolCall, _key: str) -> str:
        return "deleted"


async def test_an_approval_request_waits_until_the_text_before_it_is_shown(store_url: str) -> None:
    """While the message above it is being corrected, nothing is requested: the person who decides has read why."""
    platform = Gate()
    world = await cut_off(store_url, platform, Late(platform))
    platform.opened.clear()
    platform.at_the_gate.clear()
    async with world:
        await happened(platform.at_the_gate)
        platform.opened.set()
        question = await told(platform, "one", "delete 3 files?")
        assert platform.texts("one") == ["That loses your notes.", question]
        platform.say("one", "/approve")
        await told(platform, "one", "Deleted.")
    assert platform.texts("one")[:2] == ["That loses your notes.", question]
