"""An agent in Python: put this file into the home, `kind = "python"` and `object = "python_agent:Greeter"` into [agent]."""

from everturn.agent.interface import Answer, TurnContext
from everturn.model import Effect, ToolCall


class Greeter:
    async def run(self, turn: TurnContext) -> Answer:
        async def count(call: ToolCall, key: str) -> str:
            return f"{len(call.arguments)} letters"

        call = ToolCall(id="1", name="count", arguments=turn.text, effect=Effect.PURE)
        done = await turn.settle(count) or [row for row in await turn.own() if row.role == "tool"]
        results = done or await turn.step("Let me count.", [call], count)
        return Answer(f"You wrote {results[0].content}.")
