"""Growing answers when a platform is in trouble: nobody sees dozens of bubbles, and no answer is dropped with its first words."""

import asyncio

from everturn.agent.interface import Answer, TurnContext
from everturn.decide.bubble_words import REPLACES
from everturn.decide.delivery import Surety
from everturn.errors import OutcomeUnknown
from everturn.model import SessionSource, ToolCall
from everturn.testing import EditingPlatform, FakePlatform, Fault, ManualClock, World, open_to_all
from tests.gateway.scenes import die, happened, life_of, told, until_read, while_time_passes
from tests.gateway.test_streaming import ANSWER, CURSOR, EAGER, Talker, cut_off, grown, seen

LOST = Fault(OutcomeUnknown("502"), accepted=True)


async def test_what_grows_repeats_words_in_doubt_once_and_leaves_the_rest_to_the_last_step(store_url: str) -> None:
    """Where each repetition is seen: however much there is to show, and however often it goes wrong."""
    platform, agent = EditingPlatform(surety=Surety.NEITHER, faults=[LOST, LOST, LOST]), Talker()
    async with World(store_url, agent, [platform], ManualClock(), EAGER) as world:
        platform.say("one", "hello")
        agent.go(2)
        await platform.until(lambda: platform.calls == 2)
        agent.go()
        await until_read(lambda: life_of(world, "m1"), lambda life: bool(life["replies"][0]["tries"]))
        assert platform.calls == 3  # the first words, once more, and the last step
        await while_time_passes(world, told(platform, "one", f"{REPLACES}\n\n{ANSWER}"))
    first, *repeated = platform.texts("one")
    assert (first, repeated[-1]) == (f"one two{CURSOR}", f"{REPLACES}\n\n{ANSWER}")
    assert [REPLACES in each for each in repeated] == [True] * 3


async def test_an_answer_of_a_platform_that_is_off_by_now_waits_for_it(store_url: str) -> None:
    """Its first words are on the screen since an earlier life: the answer is theirs, whenever that platform is back."""
    platform, agent, clock, settings = EditingPlatform(), Talker(), ManualClock(), open_to_all(EAGER, "fake", "other")
    world = World(store_url, agent, [platform], clock, settings)
    await world.start()
    platform.say("one", "hello")
    await grown(platform, agent)
    await die(world)
    agent.go()
    async with World(store_url, agent, [FakePlatform("other")], clock, settings) as world:
        await until_read(lambda: life_of(world, "m1"), lambda life: life["state"] == "done")
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
    """Is cut off while it talks. The next attempt says something else and asks for a yes, as soon as the first is being told of."""

    def __init__(self, platform: Gate) -> None:
        super().__init__()
        self._platform = platform

    async def run(self, turn: TurnContext) -> Answer:
        """The attempt after the answer to its question ends it."""
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


async def test_a_question_waits_until_the_words_before_it_can_be_seen(store_url: str) -> None:
    """While somebody puts right what stands above it, nothing is asked: who decides has read why."""
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
