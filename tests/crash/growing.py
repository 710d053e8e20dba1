"""An agent whose answer is streamed, for the scenarios of real platforms; and their settings."""

from collections.abc import Awaitable, Callable

from everturn.agent.interface import Answer, TurnContext
from everturn.lifecycle.settings import Settings
from everturn.model import Effect, ToolCall
from everturn.outbox.rules.streaming import Display, Pace

FIRST_TEXT = "echo:"
SETTINGS = Settings(
    stuck_after=0,
    unclean_boots=0,
    burst_s=0.0,
    in_flight_s=0.0,
    display=Display(everywhere=Pace(interval_s=0.0, min_chars=1)),
)


class Growing:
    """Says the first word of its answer, waits until a person sees it, uses a tool, and says the rest."""

    def __init__(self, seen: Callable[[str], Awaitable[None]]) -> None:
        self._seen = seen

    async def run(self, turn: TurnContext) -> Answer:
        """Give the same answer in every attempt; the tool is used once in all of them."""
        await turn.calling()
        if turn.attempt > 1:
            await turn.settle(_act)
        if not any(row.role == "tool" for row in await turn.own()):
            turn.stream(FIRST_TEXT)
            await self._seen(FIRST_TEXT)
            await turn.step("", [ToolCall("call-1", "tool", effect=Effect.ONCE)], _act)
        return Answer(f"{FIRST_TEXT} {turn.text}")


async def _act(_call: ToolCall, _key: str) -> str:
    return "done"
