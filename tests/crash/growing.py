"""An agent whose answer is seen while it is made, for the stories of real platforms; and the settings they live by."""

from collections.abc import Awaitable, Callable

from everturn.agent.interface import Answer, TurnContext
from everturn.decide.display import Display
from everturn.decide.streaming import Pace
from everturn.gateway.parts import Settings
from everturn.model import Effect, ToolCall

FIRST_WORDS = "echo:"
SETTINGS = Settings(
    stuck_after=0, unclean_boots=0, burst_s=0.0, display=Display(everywhere=Pace(interval_s=0.0, min_chars=1))
)


class Growing:
    """Says the first word of its answer, waits until a person sees it, uses a tool, and says the rest."""

    def __init__(self, seen: Callable[[str], Awaitable[None]]) -> None:
        self._seen = seen

    async def run(self, turn: TurnContext) -> Answer:
        """The same in every attempt; the tool is used once in all of them."""
        await turn.calling()
        if turn.attempt > 1:
            await turn.settle(_act)
        if not any(row.role == "tool" for row in await turn.own()):
            turn.stream(FIRST_WORDS)
            await self._seen(FIRST_WORDS)
            await turn.step("", [ToolCall("call-1", "tool", effect=Effect.ONCE)], _act)
        return Answer(f"{FIRST_WORDS} {turn.words}")


async def _act(_call: ToolCall, _key: str) -> str:
    return "done"
