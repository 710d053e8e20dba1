"""Gateways whose turns are counted: nothing happens in them by itself, so that every turn costs the same."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import uvloop

from everturn.agent.interface import Agent, Answer, TurnContext
from everturn.app.agents import AgentParts, Agents
from everturn.app.composition import bounds_of, front_of, media_of
from everturn.app.gateway_settings import settings_of
from everturn.app.platforms import chat_platforms, close_all
from everturn.app.toolsets import ToolParts, Toolsets
from everturn.home.folder import Home
from everturn.lifecycle.settings import Settings
from everturn.model import ToolCall
from everturn.settings.config import FILE_NAME, Config, read_config
from everturn.store.interface import Store
from everturn.telemetry.spans import open_tracer
from everturn.testing import ManualClock, World
from everturn.testing.model import ModelServer, ScriptedModel
from everturn.testing.telegram import TOKEN as BOT_TOKEN
from everturn.turns.attempt import EVERY_S
from tests.contracts.telegram import TelegramDriver
from tests.empty import EmptyFile
from tests.turn_costs import Costs, Meter
from tests.waiting import Changes
from tests.web.composition import TOKEN, Web, running

Turn = Callable[[], Awaitable[None]]
LOOK = ToolCall(id="call-1", name="look")
MODEL_KEY = "sk-test-0123456789abcdef"
# How often these do something depends on how the network cuts an answer into pieces: each piece is shown when it comes.
OF_EACH_PIECE = {
    "attempt",
    "calls",
    "client",
    "deltas",
    "http_stream",
    "hub",
    "journal",
    "late_requests",
    "locks",
    "streaming",
}


class StillClock(ManualClock):
    """A clock that stands still: nothing happens by itself. It reports each sleep that begins."""

    def __init__(self) -> None:
        super().__init__(time.time())
        self.waits: list[float] = []
        self.changes = Changes(lambda: self.waits)

    def sleep(self, seconds: float) -> Coroutine[Any, Any, None]:
        self.waits.append(seconds)
        self.changes.changed()
        return super().sleep(seconds)

    async def typing(self) -> None:
        """Wait until the next turn has shown its typing indicator."""
        asked = self.waits.count(EVERY_S)
        await self.changes.until(lambda: self.waits.count(EVERY_S) > asked)


class Looking:
    """Uses one tool and answers, when whatever goes on beside the turn is over."""

    def __init__(self, beside: Turn | None = None) -> None:
        self._beside = beside

    async def run(self, turn: TurnContext) -> Answer:
        if self._beside is not None:
            await self._beside()
        await turn.calling()
        await turn.step("", [LOOK], self._look)
        return Answer(f"echo: {turn.text}")

    async def _look(self, call: ToolCall, _key: str) -> str:
        return f"{call.name} done"


@asynccontextmanager
async def by_api(web: Web) -> AsyncIterator[Turn]:
    """Messages by HTTP on one connection, each as one segment, until its answer is delivered."""
    numbers = count()
    reader, writer = await asyncio.open_connection(web.serving.host, web.serving.port)

    async def turn() -> None:
        body = f'{{"id": "m{next(numbers)}", "text": "please look at this for me"}}'.encode()
        head = f"POST /api/chats/one/messages HTTP/1.1\r\nHost: here\r\nAuthorization: Bearer {TOKEN}\r\n"
        writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        assert b" 202 " in await reader.readline()
        assert b"duplicate" in await reader.readuntil(b"}")
        await web.world.gateway.turns.quiet()

    try:
        yield turn
    finally:
        writer.close()


async def by_telegram(driver: TelegramDriver, world: World, asks: str = "", answers: str = "echo: ") -> Turn:
    """A message on Telegram until its answer is on the screen, and the next poll hangs.

    So short an answer is not shown while it grows: how far it got would depend on the machine.
    """
    numbers, queue = count(), driver.telegram.queue

    async def turn() -> None:
        polls, text = queue.polls, f"look at {next(numbers)}"
        driver.says(asks + text)
        await driver.until(lambda: driver.texts()[-1:] == [answers + text] and queue.polls == polls + 1)
        await world.gateway.turns.quiet()
        await world.gateway.outbox.quiet()

    await driver.until(lambda: queue.polls == 1)
    return turn


@asynccontextmanager
async def on_telegram(url: str, meter: Meter, settings: Settings = Settings(), **own: Any) -> AsyncIterator[Turn]:  # noqa: B008
    """A gateway on the local Telegram. Its turns go on when the typing indicator was shown."""
    clock = StillClock()
    async with TelegramDriver() as driver:
        platform = driver.connected(clock=clock)
        async with World(url, Looking(clock.typing), [platform], clock, settings, opened=meter.open, **own) as world:
            yield await by_telegram(driver, world)


def configured(folder: Path, text: str) -> Config:
    """The configuration that this text of a settings file makes."""
    (folder / FILE_NAME).write_text(text, encoding="utf-8")
    return read_config(folder, None, {}, {}).config


@asynccontextmanager
async def made_from(text: str, folder: Path, url: str, meter: Meter, *, model: bool = False) -> AsyncIterator[Turn]:
    """A gateway on the local Telegram, made from these settings with the functions that the real process uses.

    It answers by a script, or with `model` by a language model behind a real HTTP API.
    """
    async with AsyncExitStack() as stack:
        driver = await stack.enter_async_context(TelegramDriver())
        basis = of_telegram(driver)
        if model:
            basis += of_model(await stack.enter_async_context(ModelServer(ScriptedModel(key=MODEL_KEY))))
        config = configured(folder, basis + text)
        clock, store = StillClock(), await meter.open(url)
        settings = settings_of(config)
        agent: Agent = Looking(clock.typing if settings.display.look(driver.place()).typing else None)
        if model:
            agent = await modelled(config, folder, clock, store, stack)
        platforms = chat_platforms(config, folder, clock, store)
        stack.push_async_callback(close_all, platforms)
        tracer = open_tracer(config.telemetry, {})
        if tracer is not None:
            stack.push_async_callback(tracer.close)

        async def opened(_: str) -> Store:
            return store

        world = World(
            url,
            agent,
            platforms,
            clock,
            settings,
            tracer,
            media=media_of(Home(folder), config),
            opened=opened,
        )
        await stack.enter_async_context(world)
        yield await by_telegram(driver, world, *(("say ", "") if model else ()))


def of_telegram(driver: TelegramDriver) -> str:
    """The settings of the local Telegram. Dotted keys, so that any setting may be written below."""
    return f"""
platforms.telegram.enabled = true
platforms.telegram.token = "{BOT_TOKEN}"
platforms.telegram.api_url = "{driver.server.url}"
platforms.telegram.allow = ["{driver.person("one").id}"]
"""


def of_model(server: ModelServer) -> str:
    """The settings of the scripted model."""
    return f"""
agent.kind = "llm"
agent.model = "openai:scripted"
agent.base_url = "{server.base_url}"
agent.api_key_env = "MODEL_KEY"
"""


async def modelled(config: Config, folder: Path, clock: StillClock, store: Store, stack: AsyncExitStack) -> Agent:
    """The agents and tools of these settings."""

    async def send(*_: object) -> bool:
        return False

    env = {"MODEL_KEY": MODEL_KEY}
    tools = Toolsets(config, ToolParts(home=folder, env=env, clock=clock, store=store, send=send))
    tools.make()
    stack.push_async_callback(tools.close)
    agents = Agents(
        config, AgentParts(home=folder, env=env, clock=clock, tools=tools.named, compaction=config.compaction)
    )
    await agents.open()
    stack.push_async_callback(agents.close)
    return agents


@dataclass(frozen=True)
class Measured:
    """What a turn costs, and where."""

    costs: Costs
    functions: Counter[str]
    statements: list[str]

    def whatever_the_network_does(self) -> tuple[int, int, set[str]]:
        """The costs of a turn of a model that are always the same: statements, commits, and the functions that are called at all."""
        called = {name for name in self.functions if name.partition(".")[0] not in OF_EACH_PIECE}
        return self.costs.statements, self.costs.commits, called

    def beyond(self, other: "Measured") -> str:
        """The costs of both, and what this one does that the other does not."""
        more = [*(self.functions - other.functions).items(), *(set(self.statements) - set(other.statements))]
        return f"{self.costs} instead of {other.costs}; more: {more}"


class Bench:
    """Measures gateways that are made from settings, each in a folder of its own."""

    def __init__(self, empty: EmptyFile, folders: pytest.TempPathFactory) -> None:
        self._empty, self._folders = empty, folders

    def measured(self, off: str, *, model: bool = False) -> Measured:
        """A turn by Telegram; answered by a language model, or by a script."""
        still = "display.typing = false\n" if model else ""  # how often it is shown depends on how fast the model is
        return self._run(lambda folder, url, meter: made_from(still + off, folder, url, meter, model=model))

    def measured_by_http(self, off: str) -> Measured:
        """A turn by the HTTP api."""
        return self._run(partial(_by_http, off))

    def _run(self, made: Callable[[Path, str, Meter], AbstractAsyncContextManager[Turn]]) -> Measured:
        async def measure() -> Costs:
            async with made(folder, self._empty.copy(folder), meter) as turn:
                return await meter.of(turn, turns=2)  # there are many gateways to measure

        meter, folder = Meter(), self._folders.mktemp("home")
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return Measured(runner.run(measure()), meter.functions_of_last, meter.statements_of_last)


@asynccontextmanager
async def _by_http(off: str, folder: Path, url: str, meter: Meter) -> AsyncIterator[Turn]:
    server = configured(folder, off).server
    made = running(
        url, Looking(), clock=StillClock(), opened=meter.open, front=front_of(server), bounds=bounds_of(server)
    )
    async with made as web, by_api(web) as turn:
        yield turn
