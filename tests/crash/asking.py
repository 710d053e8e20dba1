"""An agent whose calls need a yes, and whose conversation is compacted before it answers; and the people who say yes."""

import re

from everturn.agent.interface import Answer, TurnContext
from everturn.model import Effect, ToolCall, Usage
from everturn.store.operations.approvals import ApprovalAnswer
from everturn.testing import FakePlatform, World, key_of
from tests.crash.lives import LedgerAgent, answer_to

PLAN = Usage(requests=1, input_tokens=100, output_tokens=100)
USED = Usage(requests=1, input_tokens=50, output_tokens=10)
QUESTION = re.compile(r"May I use .*/approve (\d+)", re.DOTALL)
WORDS = "ask twice"


class AskingAgent(LedgerAgent):
    """One response with two calls that ask, a compaction, the answer."""

    async def run(self, turn: TurnContext) -> Answer:
        """After an interruption or an answer, from the last committed step."""
        await turn.calling(PLAN)
        if turn.attempt > 1:
            await turn.settle(self._act)
        if not any(row.calls for row in await turn.own()):
            calls = [ToolCall(f"{turn.id}/{place}", "write", effect=Effect.ONCE, ask="May I?") for place in (1, 2)]
            self._log("requests", f"request {calls[0].id}")
            await turn.step("", calls, self._act, usage=USED)
        if not any(row.role == "summary" for row in await turn.history()):
            await turn.session.compact("what was said before", 100)
        return Answer(answer_to(turn.words), usage=USED)


def questions(platform: FakePlatform) -> list[int]:
    """The numbers of the questions on the screen."""
    found = (QUESTION.match(text) for text in platform.texts("one"))
    return [int(match[1]) for match in found if match]


async def asks(world: World, platform: FakePlatform, _agent: LedgerAgent) -> None:
    """The first question is answered by a command, the second as by a button; each life presses it again."""

    def answered() -> bool:
        return answer_to(WORDS) in platform.texts("one")

    platform.say_once("one", WORDS)
    for place in (0, 1):
        await platform.until(lambda asked=place + 1: answered() or len(questions(platform)) >= asked)  # type: ignore[misc]
        await _allow(world, platform, place, questions(platform)[place])
    await platform.until(answered)
    assert len(questions(platform)) == 2
    await world.stop()


async def _allow(world: World, platform: FakePlatform, place: int, number: int) -> None:
    if place == 0:
        platform.say_once("one", f"/approve {number}")
        return
    yes = ApprovalAnswer(allow=True, at=world.clock.now(), by="fake:ann", id=number)
    await world.gateway.approvals.answer(key_of(platform, "one"), yes)
