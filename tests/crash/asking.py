"""An agent whose calls need an approval, and whose conversation is compacted before it answers; and people who approve, or do not."""

import re
from collections.abc import Awaitable, Callable

from everturn.agent.interface import Answer, TurnContext
from everturn.model import Effect, ToolCall, Usage
from everturn.testing import FakePlatform, World
from tests.crash.gateway_process import LedgerAgent, answer_to

PLAN = Usage(requests=1, input_tokens=100, output_tokens=100)
USED = Usage(requests=1, input_tokens=50, output_tokens=10)
REQUEST = re.compile(r"May I use .*/approve (\d+)", re.DOTALL)
TEXT = "ask twice"


class AskingAgent(LedgerAgent):
    """One response with two calls that need an approval, a compaction, the answer."""

    async def run(self, turn: TurnContext) -> Answer:
        """Run the turn; after an interruption or an approval, from the last committed step."""
        await turn.calling(PLAN)
        if turn.attempt > 1:
            await turn.settle(self._act)
        if not any(row.calls for row in await turn.own()):
            calls = [ToolCall(f"{turn.id}/{place}", "write", effect=Effect.ONCE, ask="May I?") for place in (1, 2)]
            self._log("requests", f"request {calls[0].id}")
            await turn.step("", calls, self._act, usage=USED)
        if not any(row.role == "summary" for row in await turn.history()):
            await turn.session.compact("what was said before", 100)
        return Answer(answer_to(turn.text), usage=USED)


def approval_requests(platform: FakePlatform) -> list[int]:
    """The numbers of the approval requests on the screen."""
    found = (REQUEST.match(text) for text in platform.texts("one"))
    return [int(match[1]) for match in found if match]


async def asks(world: World, platform: FakePlatform, _agent: LedgerAgent) -> None:
    """Each approval request is answered by a command."""

    def allow() -> None:
        platform.say_once("one", f"/approve {approval_requests(platform)[-1]}")

    await _answered(world, platform, allow)


async def expires(world: World, platform: FakePlatform, _agent: LedgerAgent) -> None:
    """Nobody answers in time."""
    await _answered(world, platform, world.gateway.approvals.expire_once)


async def _answered(world: World, platform: FakePlatform, settle: Callable[[], Awaitable[int] | None]) -> None:
    def answered() -> bool:
        return answer_to(TEXT) in platform.texts("one")

    platform.say_once("one", TEXT)
    for asked in (1, 2):
        await platform.until(lambda asked=asked: answered() or len(approval_requests(platform)) >= asked)  # type: ignore[misc]
        settling = settle()
        if settling is not None:
            await settling
    await platform.until(answered)
    assert len(approval_requests(platform)) == 2
    await world.stop()
