"""Turns that take long: their users get one notice, edited where possible; an inactive turn fails."""

import asyncio

import pytest

from everturn.agent.interface import Answer, TurnContext
from everturn.errors import OutcomeUnknown
from everturn.lifecycle.settings import Settings
from everturn.model import ToolCall
from everturn.testing import EditingPlatform, FakePlatform, ManualClock, SendFault, World
from everturn.turns.rules.turns import TurnTimeouts
from tests.scenes import Actor, answer_to, happened, told, until_ended, while_time_passes


def patient(**limits: float) -> Settings:
    """All limits off but these."""
    return Settings(
        patience=TurnTimeouts(**({"inactive_s": 0, "warn_s": 0, "working_s": 0, "stall_s": 0} | limits)), burst_s=0
    )


async def after(clock: ManualClock, seconds: float, platform: FakePlatform, part: str) -> None:
    """Let time pass at once, then wait for a notice."""
    clock.advance(seconds)
    await told(platform, "one", part)


class Slow:
    """Uses a tool that runs until a test ends it, and sends the notices that a test asks for."""

    def __init__(self, *says: str) -> None:
        self.says = says
        self.working = asyncio.Event()
        self.go = asyncio.Event()

    async def run(self, turn: TurnContext) -> Answer:
        """One long tool."""
        await turn.calling()
        for text in self.says:
            await turn.notify(text)
        await turn.step("", [ToolCall("long", "digging")], self._act)
        return Answer(f"done: {turn.text}")

    async def _act(self, _call: ToolCall, _key: str) -> str:
        self.working.set()
        await self.go.wait()
        return "dug"


async def test_still_working_is_one_message_that_becomes_the_answer(store_url: str) -> None:
    platform, agent, clock = EditingPlatform(), Slow(), ManualClock()
    async with World(store_url, agent, [platform], clock, patient(working_s=60)):
        platform.say("one", "dig")
        await happened(agent.working)
        await after(clock, 60, platform, "for 1 minute now. It is using digging.")
        await after(clock, 120, platform, "for 3 minutes now")
        assert len(platform.texts("one")) == 1
        agent.go.set()
        await told(platform, "one", "done: dig")
    assert platform.texts("one") == ["done: dig"]


async def test_where_nothing_can_be_edited_each_is_a_message(store_url: str) -> None:
    platform, agent, clock = FakePlatform(), Slow(), ManualClock()
    async with World(store_url, agent, [platform], clock, patient(working_s=60)):
        platform.say("one", "dig")
        await happened(agent.working)
        await after(clock, 60, platform, "for 1 minute now")
        await after(clock, 60, platform, "for 2 minutes now")
        agent.go.set()
        await told(platform, "one", "done: dig")
    assert len(platform.texts("one")) == 3


async def test_an_inactive_turn_gets_a_warning_and_fails(store_url: str) -> None:
    """Its message is a dead letter with the true reason; its task ends, and the next message is answered."""
    platform, agent, clock = FakePlatform(), Actor(), ManualClock()
    async with World(store_url, agent, [platform], clock, patient(warn_s=60, inactive_s=120)) as world:
        held = platform.say("one", "hold")
        await agent.held("hold")
        await after(clock, 60, platform, "Nothing has happened in this task for 1 minute")
        await after(clock, 60, platform, "nothing had happened in this task for 2 minutes")
        await until_ended(world, held, "dead")
        await agent.until(lambda: not agent.holding)
        platform.say("one", "next")
        await told(platform, "one", answer_to("next"))
    assert answer_to("hold") not in platform.texts("one")


async def test_a_message_queued_behind_an_inactive_turn_gets_one_notice(store_url: str) -> None:
    platform, agent, clock = FakePlatform(), Actor(), ManualClock()
    async with World(store_url, agent, [platform], clock, patient(stall_s=60)):
        platform.say("one", "hold")
        await agent.held("hold")
        platform.say("one", "and me?")
        await platform.until(lambda: platform.acknowledged == 2)
        await after(clock, 60, platform, "Your message is queued behind a task")
        clock.advance(60)
        agent.release()
        await told(platform, "one", answer_to("and me?"))
    assert sum("Your message is queued" in text for text in platform.texts("one")) == 1


async def test_an_agent_tells_how_it_goes_in_one_message(store_url: str) -> None:
    platform, agent = EditingPlatform(), Slow("trying again", "trying once more")
    async with World(store_url, agent, [platform], settings=patient()):
        platform.say("one", "dig")
        await told(platform, "one", "trying once more")
        agent.go.set()
        await told(platform, "one", "done: dig")
    assert platform.texts("one") == ["done: dig"]


@pytest.mark.parametrize("accepted", [False, True])
async def test_an_edit_of_unknown_outcome_is_simply_done_again(store_url: str, accepted: bool) -> None:  # noqa: FBT001
    fault = SendFault(OutcomeUnknown("lost"), accepted=accepted)
    platform, agent, clock = EditingPlatform(faults=[None, fault]), Slow(), ManualClock()
    async with World(store_url, agent, [platform], clock, patient(working_s=60)) as world:
        platform.say("one", "dig")
        await happened(agent.working)
        await after(clock, 60, platform, "for 1 minute now")
        await while_time_passes(world, platform.until(lambda: platform.calls >= 3))
        agent.go.set()
        await while_time_passes(world, told(platform, "one", "done: dig"))
    assert platform.texts("one") == ["done: dig"]
