"""Programs that use the OpenAI API through the official client, and an agent with every kind of outcome."""

import asyncio
from typing import Any

from openai import AsyncOpenAI, DefaultAsyncHttpxClient

from everturn.agent.interface import Answer, TurnContext
from everturn.clock import SystemClock
from everturn.errors import Unanswerable
from everturn.model import ToolCall, Usage
from everturn.web.keys import make_key
from tests.web.composition import PLAIN, TOKEN, Soon, Web

LOOK: Any = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
FLAT_LOOK: Any = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}


def user_message(text: str) -> list[Any]:
    """One message."""
    return [{"role": "user", "content": text}]


def client(web: Web, key: str = TOKEN, retries: int = 0) -> AsyncOpenAI:
    """The official client with the gateway's URL."""
    made = AsyncOpenAI(
        base_url=f"{web.serving.url}/v1", api_key=key, max_retries=retries, http_client=DefaultAsyncHttpxClient(**PLAIN)
    )
    web.closing.append(made.close)
    return made


async def key(web: Web, name: str) -> str:
    """An access key of a program."""
    return await make_key(web.world.store, SystemClock(), name, ("chat",))


class Obliging:
    """Does what the message says; waits where a test must act."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.began = Soon()
        self.turns = 0

    async def run(self, turn: TurnContext) -> Answer:
        """Act on the first word of the message."""
        self.turns += 1
        match turn.text.partition(" ")[0]:
            case "wait":
                return await self._wait(turn)
            case "break":
                await self._wait(turn)
                raise Unanswerable("there is no model today", "missing")
            case "fail":
                raise Unanswerable("there is no model today", "missing")
            case "ask":
                await turn.step("", [ToolCall(id="1", name="shell", ask="run make?")], self._tool)
                return Answer("asked")
            case "call":
                return Answer("", calls=(ToolCall(f"call_{turn.id}", "look", '{"at":"x"}'),))
            case "seen":
                return await self._seen(turn)
            case "":
                return Answer(f"it said {(await turn.history())[-1].content}")
            case _:
                return Answer(f"echo: {turn.text}", usage=Usage(1, 10, 3, 4))

    async def _wait(self, turn: TurnContext) -> Answer:
        await turn.calling()
        turn.stream("one ")
        turn.stream("one two ")
        self.began.set()
        await self.go.wait()
        return Answer("one two three")

    async def _seen(self, turn: TurnContext) -> Answer:
        extras = await turn.extras()
        rows = [f"{row.role}={row.content}" for row in await turn.history()]
        return Answer("|".join([extras.instructions, *(tool.name for tool in extras.tools), *rows]))

    async def _tool(self, _call: ToolCall, _key: str) -> str:
        return "done"
