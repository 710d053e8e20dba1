"""An agent for tests in a browser: what it does is said by the first word, and it waits for a file where a test must act."""

import os
from pathlib import Path

from everturn.agent.interface import Answer, TurnContext
from everturn.errors import ToolFailed
from everturn.model import Effect, ToolCall
from tests.waiting import WAIT_S, poll

ATTACK = "window.pwned = true"
HOSTILE = f"""# <img src=x onerror="{ATTACK}">

<script>{ATTACK}</script> **<b onclick="{ATTACK}">bold</b>** [click](javascript:{ATTACK.replace(" ", "")})

![spy](https://spy.example/pixel.png) <svg onload="{ATTACK}"> [x](https://a.example "onmouseover={ATTACK}")

```<script>{ATTACK}</script>
</code></pre><script>{ATTACK}</script>
```

| <script>{ATTACK}</script> | b |
|---|---|
| <iframe src="javascript:{ATTACK}"> | `</td><script>{ATTACK}</script>` |
"""
LONGEST_S = 16 * WAIT_S  # only ends what hangs: a test lets it go
GO = Path(os.environ.get("TALKER_GO", "go"))


async def hostile_result(_call: ToolCall, _key: str) -> str:
    """A tool whose result is an attack."""
    return f"</pre><script>{ATTACK}</script><img src=x onerror='{ATTACK}'>"


async def plain_result(_call: ToolCall, _key: str) -> str:
    """A tool that simply worked."""
    return "it is done"


async def failed_result(_call: ToolCall, _key: str) -> str:
    """A tool that fails."""
    raise ToolFailed("Error: no such whale")


class Talker:
    """Answers by the first word."""

    async def run(self, turn: TurnContext) -> Answer:
        """One turn."""
        first = turn.text.split(maxsplit=1)[0]
        match first:
            case "slow":
                return await self._slow(turn)
            case "tool":
                return await self._tool(turn)
            case "fail":
                return await self._fail(turn)
            case "ask":
                return await self._ask(turn)
            case "die":
                await turn.calling()
                os._exit(9)
            case "sum":
                await turn.session.compact("We spoke about whales.", 2)
                return Answer("summed up")
            case "hostile":
                return Answer(HOSTILE)
            case _:
                return Answer(f"echo: {turn.text}")

    async def _slow(self, turn: TurnContext) -> Answer:
        await turn.calling()
        turn.stream(f"attempt {turn.attempt}: one **two**")
        await poll(GO.exists, LONGEST_S)
        turn.stream(f"attempt {turn.attempt}: one **two** three")
        return Answer(f"attempt {turn.attempt}: one **two** three and done")

    async def _tool(self, turn: TurnContext) -> Answer:
        await turn.calling()
        call = ToolCall(
            id="1", name=f"look<script>{ATTACK}</script>", arguments=f'{{"x": "<script>{ATTACK}"}}', effect=Effect.PURE
        )
        await turn.step("Let me look.", [call], hostile_result)
        return Answer("looked")

    async def _fail(self, turn: TurnContext) -> Answer:
        await turn.calling()
        await turn.step("", [ToolCall(id="1", name="look", effect=Effect.PURE)], failed_result)
        return Answer("it failed")

    async def _ask(self, turn: TurnContext) -> Answer:
        call = ToolCall(
            id="1", name="shell", arguments='{"command": "make"}', ask=f"run `make`? <script>{ATTACK}</script>"
        )
        if turn.attempt == 1:
            await turn.calling()
            (result,) = await turn.step("", [call], plain_result)
        else:
            settled = await turn.settle(plain_result)
            rows = settled or [row for row in await turn.own() if row.role == "tool"]
            result = rows[-1]
        return Answer(f"the tool said: {result.content}")


agent = Talker()
