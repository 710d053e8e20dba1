"""A scenario in which somebody writes while a tool runs, in each of the busy modes."""

import asyncio
import os
from pathlib import Path
from typing import Any

from everturn.agent.interface import Answer, TurnContext
from everturn.model import Effect, ToolCall
from everturn.testing import FakePlatform, World

FIRST, SECOND = "dig", "and this"
ALMOST = "almost done"


class Digger:
    """Makes two calls at once and stays in the first until somebody has written; then it reads what was written."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.send: Any = None
        self.digging = asyncio.Event()
        self.go = asyncio.Event()
        self._platform: asyncio.Future[FakePlatform] = asyncio.get_running_loop().create_future()

    async def run(self, turn: TurnContext) -> Answer:
        """Answer every message of the turn, a line each."""
        await turn.calling()
        if turn.attempt > 1:
            await turn.settle(self._act)
        await turn.joined()
        rows = await turn.own()
        if rows[0].content == FIRST and not any(row.role == "assistant" for row in rows):
            calls = [ToolCall(f"{turn.id}/{name}", name, effect=Effect.ONCE) for name in "ab"]
            self._log("requests", f"request {calls[0].id}")
            await turn.step("", calls, self._act)
            await turn.joined()
        await turn.notify(ALMOST)
        if turn.attempt == 1:  # the answer takes the place of a notice that nobody saw yet
            platform = await self._platform
            await platform.until(lambda: any(ALMOST in text for text in platform.texts("one")))
        said = [row.content for row in await turn.own() if row.role == "user"]
        return Answer("\n".join(answer_to(text) for text in said))

    async def scenario(self, world: World, platform: FakePlatform) -> None:
        """Somebody writes, waits until the tool runs, and writes again."""
        self._platform.set_result(platform)
        platform.say_once("one", FIRST)
        if SECOND not in [each.text for each in platform.said()]:
            await self._digs_or_answered(platform)
        platform.say_once("one", SECOND)
        await platform.until(lambda: platform.acknowledged == 2)
        self.go.set()
        await platform.until(lambda: answer_to(SECOND) in answers(platform))
        await world.stop()

    async def _digs_or_answered(self, platform: FakePlatform) -> None:
        """Wait for either: in a later process the tool is not run again."""
        digs = asyncio.ensure_future(self.digging.wait())
        done = asyncio.ensure_future(platform.until(lambda: answer_to(FIRST) in answers(platform)))
        await asyncio.wait({digs, done}, return_when=asyncio.FIRST_COMPLETED)
        digs.cancel()
        done.cancel()

    async def _act(self, call: ToolCall, _key: str) -> str:
        self._log("effects", call.id)
        self._log("requests", f"effect {call.id}")
        self.digging.set()
        if call.name == "a":
            await self.go.wait()
        return f"{call.name} dug"

    def _log(self, name: str, line: str) -> None:
        number = os.open(self._folder / name, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(number, f"{line}\n".encode())
        os.close(number)


def answer_to(text: str) -> str:
    """What the agent says to a message."""
    return f"answer to {text}"


def answers(platform: FakePlatform) -> list[str]:
    """What was answered in the chat, a line each."""
    return [line for text in platform.texts("one") for line in text.splitlines() if line.startswith("answer to")]
