"""A bench for tools: a real gateway whose agent uses the tools that a message names, and answers with their results."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from everturn.agent.interface import Answer, TurnContext
from everturn.agent.toolbox import Tool, Toolbox
from everturn.clock import Clock
from everturn.home.files import Media
from everturn.lifecycle.settings import Settings
from everturn.model import Message, ToolCall
from everturn.platform.interface import Platform
from everturn.store.interface import Store
from everturn.testing import FakePlatform, World
from tests.waiting import Changes

Tools = Callable[["Bench"], Sequence[Tool]]


def done(message: str) -> str:
    """The answer to a message whose calls were made."""
    return f"done: {message}"


class ToolUser:
    """Each message is a JSON list of calls: [[tool, arguments], ...]. Any other text is just answered."""

    def __init__(self, bench: "Bench") -> None:
        self._bench = bench

    async def run(self, turn: TurnContext) -> Answer:
        """Use the tools; after an interruption, bring what was begun to an end."""
        toolbox = Toolbox(self._bench.tools())
        run = toolbox.runner(turn)
        if not turn.text.startswith("["):
            return Answer(f"you said: {turn.text}")
        await turn.calling()
        if turn.attempt == 1:
            wanted = json.loads(turn.text)
            calls = [toolbox.call(f"call-{n}", name, json.dumps(given)) for n, (name, given) in enumerate(wanted)]
            self._bench.calls += calls
            await turn.step("", calls, run)
        else:
            await turn.settle(run, toolbox.judge)
        results = [row for row in await turn.own() if row.role == "tool"]
        message = turn.source.message_id or ""
        self._bench.finished(message, results)
        return Answer(done(message))


class Bench:
    """Holds some tools and a gateway. `use` calls one as somebody in a chat would have it called."""

    def __init__(
        self,
        url: str | Path,
        tools: Tools,
        *,
        clock: Clock | None = None,
        settings: Settings = Settings(),  # noqa: B008  frozen
        platforms: Sequence[Platform] = (),
        platform: FakePlatform | None = None,
        media: Media | None = None,
    ) -> None:
        self.platform = platform or FakePlatform()
        address = url if isinstance(url, str) else f"sqlite:///{url / 'everturn.db'}"
        self.world = World(address, ToolUser(self), [self.platform, *platforms], clock, settings, media=media)
        self.calls: list[ToolCall] = []
        self._tools = tools
        self._results: dict[str, list[Message]] = {}
        self._changes = Changes(lambda: f"results of {list(self._results)}")
        self._count = 0

    @property
    def store(self) -> Store:
        """The gateway's store."""
        return self.world.store

    def tools(self) -> Sequence[Tool]:
        """What the agent is offered in this turn."""
        return self._tools(self)

    def finished(self, message: str, results: list[Message]) -> None:
        """The agent says what came of a message."""
        self._results[message] = results
        self._changes.changed()

    async def use(self, name: str, /, *, chat: str = "one", user: str = "ann", **given: object) -> str:
        """The result of one call."""
        return (await self.use_all((name, given), chat=chat, user=user))[0]

    async def use_all(
        self, *calls: tuple[str, object], chat: str = "one", user: str = "ann", **about: str
    ) -> list[str]:
        """The results of several calls in one turn."""
        number = self.say(*calls, chat=chat, user=user, **about)
        results = await self.results(number)
        return [result.content for result in results]

    def say(self, *calls: tuple[str, object], chat: str = "one", user: str = "ann", **about: str) -> str:
        """Ask for calls without waiting."""
        self._count += 1
        return self.platform.say(chat, json.dumps(calls), f"m{self._count}", user_id=user, **about)

    async def results(self, message: str) -> list[Message]:
        """What came of a message, when its answer is on the screen: nothing of its turn is left to happen."""
        await self._changes.until(lambda: message in self._results)
        await self.platform.until(lambda: any(shown.text == done(message) for shown in self.platform.screen))
        return self._results[message]

    async def talk(self, text: str, *, chat: str = "one", user: str = "ann") -> None:
        """Say something plain, and wait for the answer."""
        self._count += 1
        before = len(self.platform.texts(chat))
        self.platform.say(chat, text, f"m{self._count}", user_id=user)
        await self.platform.until(lambda: len(self.platform.texts(chat)) > before)

    async def __aenter__(self) -> Self:
        await self.world.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.world.__aexit__(kind, error, trace)
