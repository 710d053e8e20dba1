"""How often a streaming message is edited: at most as often as its pace allows, and less often after each flood wait.

Time is moved by hand, and all that is asserted is that nothing came too early: a slow machine can only make it later.
"""

import asyncio

import pytest

from everturn.agent.interface import Answer, TurnContext
from everturn.errors import OutcomeUnknown, PlatformError, TryLater
from everturn.lifecycle.settings import Settings
from everturn.model import SessionSource
from everturn.outbox.rules.streaming import Display, Pace
from everturn.testing import EditingPlatform, ManualClock, SendFault, World
from everturn.turns.rules.turns import TurnTimeouts
from tests.scenes import happened, nothing, while_time_passes

PACED = Settings(
    burst_s=0.0, drain_s=0.0, patience=TurnTimeouts(inactive_s=0, warn_s=0, working_s=0, stall_s=0),
    display=Display(everywhere=Pace(interval_s=1.0, min_chars=20, cursor=" |")),
)  # fmt: skip
STEP_S = 0.125  # exact in binary: many of them are whole seconds
LINE = "one line of an answer, "


class Speaker:
    """Says what the test says, until its answer is given."""

    def __init__(self) -> None:
        self.turns: list[TurnContext] = []
        self.begun = asyncio.Event()
        self._answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def answer(self, text: str) -> None:
        """It has said all."""
        self._answer.set_result(text)

    async def run(self, turn: TurnContext) -> Answer:
        """Whatever the test says meanwhile."""
        await turn.calling()
        self.turns.append(turn)
        self.begun.set()
        return Answer(await self._answer)


class TimedPlatform(EditingPlatform):
    """Knows when it was called."""

    def __init__(self, clock: ManualClock, faults: list[SendFault | None]) -> None:
        super().__init__(faults=faults)
        self._clock = clock
        self._began = clock.now()
        self.times: list[float] = []  # of each call, in seconds since the beginning

    async def send(self, to: SessionSource, text: str, key: str) -> str:
        """The first text."""
        self.times.append(self._clock.now() - self._began)
        return await super().send(to, text, key)

    async def edit(self, to: SessionSource, message_id: str, text: str) -> None:
        """More of them."""
        self.times.append(self._clock.now() - self._began)
        await super().edit(to, message_id, text)


async def say_for(world: World, agent: Speaker, clock: ManualClock, seconds: float, text: str) -> str:
    """Say this text again and again, step by step of the time; all that was said. In each step there is room for an edit."""
    await happened(agent.begun)
    said = ""
    for _ in range(round(seconds / STEP_S)):
        said += text
        agent.turns[0].stream(said)
        for _ in range(3):
            await world.store.run(nothing)
        clock.advance(STEP_S)
    return said


async def ends(world: World, platform: EditingPlatform, agent: Speaker, said: str) -> None:
    """The answer is given, and seen whole."""
    agent.answer(f"{said}end")
    await while_time_passes(world, platform.until(lambda: platform.texts("one") == [f"{said}end"]))


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        (LINE, 1 + 8),  # enough for a change at each step: the first at once, then one a second
        ("a", 1 + 3),  # too little: as much as is worth a change takes two and a half seconds
    ],
)
async def test_what_is_said_faster_than_the_pace_is_shown_together(store_url: str, text: str, changes: int) -> None:
    clock, agent = ManualClock(), Speaker()
    platform = TimedPlatform(clock, [])
    async with World(store_url, agent, [platform], clock, PACED) as world:
        platform.say("one", "hello")
        said = await say_for(world, agent, clock, 8.0, text)
        assert len(platform.times) <= changes
        await ends(world, platform, agent, said)


@pytest.mark.parametrize("error", [TryLater("slow down", 0.5), OutcomeUnknown("no answer")])
async def test_each_flood_wait_doubles_the_time_between_changes(store_url: str, error: PlatformError) -> None:
    """The first text, an edit after a second, which fails, after two, which fails, then one every four seconds."""
    clock, agent = ManualClock(), Speaker()
    platform = TimedPlatform(clock, [None, SendFault(error), SendFault(error)])
    async with World(store_url, agent, [platform], clock, PACED) as world:
        platform.say("one", "hello")
        said = await say_for(world, agent, clock, 20.0, LINE)
        times = platform.times[:7]
        assert [time >= least for time, least in zip(times, (0, 1, 3, 7, 11, 15, 19), strict=False)] == [True] * len(
            times
        )
        await ends(world, platform, agent, said)
