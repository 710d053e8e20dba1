"""What the model tests share: a gateway with a language model agent that asks a scripted model over real HTTP."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from everturn.agent.llm.agent import LlmAgent
from everturn.agent.llm.settings import LlmSettings
from everturn.agent.toolbox import Tool, ToolPlace, no_approval
from everturn.clock import Clock
from everturn.home.files import Media
from everturn.lifecycle.settings import Settings
from everturn.model import Effect, Json, Message
from everturn.testing import FakePlatform, World
from everturn.testing.model import LoggedRequest, ModelServer, ScriptedModel
from everturn.turns.rules.spending import SpendingLimits
from tests.scenes import said_in, session_of, told

NO_LIMITS = SpendingLimits()
KEY = "sk-test-0123456789abcdef"
STALL_S = 777.0
LINE_SCHEMA: Json = {"type": "object", "properties": {"line": {"type": "string"}}, "required": ["line"]}


@dataclass
class Impatient:
    """A clock for the agent only: waits are recorded and over at once; `stall` decides when a call stalls."""

    waits: list[float] = field(default_factory=list)
    at: float = 0.0
    stall: asyncio.Event = field(default_factory=asyncio.Event)

    def now(self) -> float:
        """UTC seconds."""
        return self.at

    def monotonic(self) -> float:
        """The same."""
        return self.at

    async def sleep(self, seconds: float) -> None:
        """Return at once, unless it is the watch over a call."""
        if seconds != STALL_S:
            self.waits.append(seconds)
            return
        await self.stall.wait()
        self.stall = asyncio.Event()
        self.at += STALL_S


@dataclass
class Lines:
    """A source of one tool, `write`, that keeps what it was asked to write."""

    written: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=lambda: ["write"])
    starting: bool = False
    asks: bool = False
    hold: asyncio.Event | None = None
    begun: asyncio.Event = field(default_factory=asyncio.Event)

    def tools(self) -> Sequence[Tool] | None:
        """The tool; None while the source starts."""
        if self.starting:
            return None
        return [
            Tool(
                name=name,
                description=f"{name} a line",
                parameters=LINE_SCHEMA,
                run=self._write,
                effect=Effect.ONCE,
                ask=str if self.asks else no_approval,
            )
            for name in self.names
        ]

    async def _write(self, arguments: Json, place: ToolPlace) -> str:
        self.begun.set()
        if self.hold is not None:
            await self.hold.wait()
        self.written.append(str(arguments["line"]))
        return f"wrote {arguments['line']} with {place.call.name}"


@dataclass
class Scene:
    """A running gateway, its people, its model and its tool."""

    world: World
    platform: FakePlatform
    model: ScriptedModel
    lines: Lines

    async def ask(self, text: str, chat: str = "one", **about: str) -> str:
        """Write a message and wait for the next text on the screen; returns it."""
        before = len(self.platform.texts(chat))
        self.platform.say(chat, text, **about)
        await self.platform.until(lambda: len(self.platform.texts(chat)) > before)
        return self.platform.texts(chat)[before]

    async def told(self, part: str, chat: str = "one") -> str:
        """Wait for a message that contains this."""
        return await told(self.platform, chat, part)

    async def transcript(self, chat: str = "one") -> list[Message]:
        """The chat's transcript."""
        return await said_in(self.world, await session_of(self.world, self.platform, chat))

    def sent(self) -> list[list[dict[str, Any]]]:
        """The messages of every request the model saw."""
        return [seen.asked.messages for seen in self.model.seen]

    def seen(self) -> list[LoggedRequest]:
        """Every request the model saw."""
        return list(self.model.seen)


@asynccontextmanager
async def scene(
    url: str,
    clock: Clock | None = None,
    lines: Lines | None = None,
    log: Path | None = None,
    agent_clock: Clock | None = None,
    platform: FakePlatform | None = None,
    *,
    limits: SpendingLimits = NO_LIMITS,
    **settings: Any,
) -> AsyncIterator[Scene]:
    """A gateway with a language model agent; `settings` are LlmSettings."""
    lines = lines or Lines()
    async with ModelServer(ScriptedModel(key=KEY, log=log)) as server:
        chosen = replace(
            LlmSettings(model="openai:scripted", base_url=server.base_url, api_key=KEY, api_key_env="TEST_KEY"),
            **settings,
        )
        agent = LlmAgent(chosen, [lines], agent_clock or clock, chance=lambda: 0.0)
        platform = platform or FakePlatform()
        media = Media(chosen.uploads) if chosen.uploads is not None else None
        world = World(url, agent, [platform], clock, Settings(limits=limits), media=media)
        try:
            async with world:
                yield Scene(world, platform, server.model, lines)
        finally:
            await agent.close()
