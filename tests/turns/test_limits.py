"""Spending limits and cut answers through a whole gateway: a reached limit gets a notice, and a crash loop stays within it."""

import asyncio

from everturn.agent.interface import Answer, TurnContext
from everturn.lifecycle.settings import Settings
from everturn.model import ResumePending, Usage
from everturn.testing import FakePlatform, ManualClock, World
from everturn.turns.rows.spending import usage_of_session
from everturn.turns.rules.spending import EVERYBODY, SpendingLimits, day_of
from tests.contracts.store import select
from tests.scenes import entry_of, restarted, said_in, session_of, told, until_ended
from tests.waiting import within

PLAN = Usage(requests=1, input_tokens=80, output_tokens=20)
USED = Usage(requests=1, input_tokens=50, output_tokens=10)
DAY_S = 86_400.0


class Spender:
    """Plans a call, makes it, says what it used; `hold` never comes back from it (`once`: only at first), `cut` answers by half."""

    def __init__(self) -> None:
        self.calls = 0
        self._called = asyncio.Event()

    async def run(self, turn: TurnContext) -> Answer:
        """One call."""
        await turn.calling(PLAN)
        self.calls += 1
        self._called.set()
        if "hold" in turn.text and (turn.attempt == 1 or "once" not in turn.text):
            await asyncio.Event().wait()
        return Answer(f"answer: {turn.text}", usage=USED, cut="cut" in turn.text)

    async def called(self, times: int) -> None:
        """Wait for so many calls in all."""
        async with within():
            while self.calls < times:
                await self._called.wait()
                self._called.clear()


async def test_a_reached_limit_is_named_in_a_notice_and_the_next_day_goes_on(store_url: str) -> None:
    platform, agent, clock = FakePlatform(), Spender(), ManualClock()
    async with World(
        store_url, agent, [platform], clock, Settings(limits=SpendingLimits(person_tokens_day=200))
    ) as world:
        for text in ("one", "two"):
            platform.say("one", text)
            await told(platform, "one", f"answer: {text}")
        dead = platform.say("one", "three")
        await told(platform, "one", "your limit of 200 tokens a day is reached, until midnight UTC")
        await until_ended(world, dead, "dead")
        platform.say("bob's", "four", user_id="bob")
        await told(platform, "bob's", "answer: four")
        clock.advance(DAY_S)
        platform.say("one", "five")
        await told(platform, "one", "answer: five")
    assert agent.calls == 4


async def test_a_crash_loop_stays_within_the_limit(store_url: str) -> None:
    """Each process begins the same call again; what was planned stays counted, and at last the user gets a notice."""
    platform, agent, clock = FakePlatform(), Spender(), ManualClock()
    settings = Settings(limits=SpendingLimits(total_tokens_day=350), stuck_after=0, unclean_boots=0)
    async with World(store_url, agent, [platform], clock, settings) as world:
        platform.say("one", "hold")
        for process in (1, 2, 3):
            await agent.called(process)
            await restarted(world)
        await told(platform, "one", "everybody's limit of 350 tokens a day is reached")
        spent = "SELECT tokens, cost FROM spending WHERE spender=$1 AND day=$2"
        assert await world.store.read(select, spent, EVERYBODY, day_of(clock.now())) == [(300, 0.0)]
    assert agent.calls == 3


async def test_usage_is_the_same_after_a_restart(store_url: str) -> None:
    platform, agent = FakePlatform(), Spender()
    async with World(store_url, agent, [platform]) as world:
        platform.say("one", "hello")
        message = platform.say("one", "again")
        await told(platform, "one", "answer: again")
        session_id = await session_of(world, platform, "one")
        before = await world.store.read(usage_of_session, session_id)
        trace = await until_ended(world, message, "done")
        await restarted(world)
        assert await world.store.read(usage_of_session, session_id) == before
    assert before == Usage(requests=2, input_tokens=100, output_tokens=20)
    assert (trace["turn"]["usage"]["requests"], trace["turn"]["failures"]) == (1, [])


async def test_a_cut_answer_is_marked_for_the_user_and_not_in_the_transcript(store_url: str) -> None:
    """A cut answer is no success, either: what an earlier crash left stays (design 6)."""
    platform, agent = FakePlatform(), Spender()
    async with World(store_url, agent, [platform]) as world:
        platform.say("one", "hold once, cut")
        await agent.called(1)
        await restarted(world)
        text = await told(platform, "one", "answer: hold once, cut")
        rows = await said_in(world, await session_of(world, platform, "one"))
        entry = await entry_of(world, platform, "one")
    assert text.endswith("[This answer is not complete. Write to continue it.]")
    assert rows[-1].content == "answer: hold once, cut"
    assert (isinstance(entry.state, ResumePending), entry.unclean_ends, entry.turn) == (True, 1, None)
