"""The walk of a message: which files and functions of the package one message passes, in order, by a profiler.

A file counts once and a function counts once, however often it is called. What every line of code uses (the clock, ids, crash points,
errors, telemetry) and the store's engines are left out; nothing else is.
"""

import asyncio
import sys
import threading
import tomllib
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType

from everturn.agent.interface import Answer, TurnContext
from everturn.lifecycle.settings import Settings
from everturn.model import Effect, ToolCall
from everturn.outbox.rules.streaming import Display, Pace
from everturn.store.interface import Op, Store, sql
from everturn.store.open import open_store
from everturn.testing import World
from tests.contracts.telegram import TelegramDriver
from tests.turn_costs import CODES, PACKAGE
from tests.turn_scenes import StillClock
from tests.web.composition import TOKEN, running

WALKS = Path(__file__).with_name("walks.toml")
LEFT_OUT = ("clock.py", "errors.py", "ids.py", "points.py", "store/", "telemetry/")
EAGER = Settings(burst_s=0.0, drain_s=0.0, display=Display(everywhere=Pace(interval_s=0, min_chars=1)))


@dataclass(frozen=True, slots=True)
class Station:
    """A function of the walk, and the file it stands in."""

    file: str
    function: str


class Recorder:
    """Notes each function when it is called for the first time, in the loop's thread and in those of its store."""

    def __init__(self) -> None:
        self.stations: dict[Station, None] = {}
        self._on = False
        self._known: dict[CodeType, Station | None] = {}

    async def open(self, url: str) -> Store:
        """A store whose threads are looked at, too: they run the operations."""
        threading.setprofile(self._see)
        try:
            return await open_store(url)
        finally:
            threading.setprofile(None)

    @contextmanager
    def on(self) -> Iterator[None]:
        """Look while this lasts."""
        self._on = True
        sys.setprofile(self._see)
        try:
            yield
        finally:
            sys.setprofile(None)
            self._on = False

    def _see(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call" and self._on:
            code = frame.f_code
            station = self._known[code] if code in self._known else self._station(code)
            if station is not None:
                self.stations.setdefault(station)

    def _station(self, code: CodeType) -> Station | None:
        """A comprehension or a lambda is a part of the function that it stands in."""
        name = code.co_qualname.partition(".<locals>")[0]
        station = Station(_below(code.co_filename), name)
        ours = CODES[code][0] and not name.startswith("<") and not station.file.startswith(LEFT_OUT)
        self._known[code] = station if ours else None
        return self._known[code]


def _below(path: str) -> str:
    return Path(path).relative_to(PACKAGE).as_posix() if path.startswith(str(PACKAGE)) else path


@dataclass(frozen=True)
class Walk:
    """The stations of one message, in the order in which they are passed for the first time."""

    stations: Sequence[Station]

    @property
    def files(self) -> list[str]:
        """The files, in order."""
        return list(dict.fromkeys(each.file for each in self.stations))

    @property
    def hops(self) -> int:
        """How often the next new function stands in another file."""
        return sum(one.file != two.file for one, two in pairwise(self.stations))

    @property
    def counts(self) -> dict[str, int]:
        """What may only go down."""
        return {"files": len(self.files), "functions": len(self.stations)}


class Talker:
    """Echoes; streams at "stream", requests an approval at "ask", is cut off once at "hold"."""

    def __init__(self) -> None:
        self.shown = asyncio.Event()
        self.holds = asyncio.Event()

    async def run(self, turn: TurnContext) -> Answer:
        """Do what the text says."""
        await turn.calling()
        if turn.attempt > 1:
            await turn.settle(self._act)
        elif turn.text == "ask":
            await turn.step("", [ToolCall("call-1", "write", effect=Effect.ONCE, ask="May I?")], self._act)
        elif turn.text == "hold":
            self.holds.set()
            await asyncio.Event().wait()
        elif turn.text == "stream":
            turn.stream("echo:")
            await self.shown.wait()
        return Answer(f"echo: {turn.text}")

    async def _act(self, _call: ToolCall, _key: str) -> str:
        return "written"


@asynccontextmanager
async def _talking(url: str, recorder: Recorder, agent: Talker, settings: Settings) -> AsyncIterator[TelegramDriver]:
    """A gateway on the local Telegram that has answered a first message; no time passes there."""
    async with TelegramDriver() as driver:
        platform = driver.connected(clock=StillClock())
        async with World(url, agent, [platform], StillClock(), settings, opened=recorder.open) as world:
            driver.says("hello")
            await _answered(driver, world, "echo: hello")
            await _acknowledged(driver)
            await world.store.run(_nothing)  # so that it is past all that it was asked for
            with recorder.on():
                yield driver
                await world.gateway.turns.quiet()
                await world.gateway.outbox.quiet()


async def _answered(driver: TelegramDriver, world: World, text: str) -> None:
    await driver.until(lambda: driver.texts()[-1:] == [text])
    await world.gateway.turns.quiet()
    await world.gateway.outbox.quiet()


def _nothing() -> Op[None]:
    yield sql("SELECT 1")


async def _acknowledged(driver: TelegramDriver) -> None:
    """Wait until the last message was acknowledged: a poll that hangs has done so."""
    polls = driver.telegram.queue.polls
    await driver.until(lambda: driver.acknowledged() == 1 and driver.telegram.queue.polls >= max(polls, 2))


async def plain(url: str, recorder: Recorder) -> None:
    """A message on Telegram and its answer."""
    async with _talking(url, recorder, Talker(), Settings(burst_s=0.0)) as driver:
        driver.says("again")
        await driver.until(lambda: driver.texts()[-1:] == ["echo: again"])


async def streamed(url: str, recorder: Recorder) -> None:
    """A streamed answer on Telegram."""
    agent = Talker()
    async with _talking(url, recorder, agent, EAGER) as driver:
        driver.says("stream")
        await driver.until(lambda: driver.texts()[-1:] == ["echo: ▌"])
        agent.shown.set()
        await driver.until(lambda: driver.texts()[-1:] == ["echo: stream"])


async def approval(url: str, recorder: Recorder) -> None:
    """A tool call that needs an approval: the request on Telegram, the press, the call, the answer."""
    async with _talking(url, recorder, Talker(), Settings(burst_s=0.0)) as driver:
        driver.says("ask")
        await driver.until(lambda: driver.person("one").presses_newest("Allow once"))
        await driver.until(lambda: driver.texts()[-1:] == ["echo: ask"])


async def resume(url: str, recorder: Recorder) -> None:
    """Recovery on Telegram after a crash: from the start of the next gateway to the answer."""
    agent = Talker()
    async with TelegramDriver() as driver:
        world = World(url, agent, [driver.connected(clock=StillClock())], StillClock(), Settings(burst_s=0.0))
        await world.start()
        driver.says("hold")
        await agent.holds.wait()
        await _acknowledged(driver)
        await world.abandon()
        polls = driver.telegram.queue.polls
        with recorder.on():
            platform = driver.connected(clock=StillClock())
            async with World(
                url, agent, [platform], StillClock(), Settings(burst_s=0.0), opened=recorder.open
            ) as world:
                await _answered(driver, world, "echo: hold")
                await driver.until(lambda: driver.telegram.queue.polls > polls)


async def v1(url: str, recorder: Recorder) -> None:
    """A chat completion that is streamed."""
    agent = Talker()
    async with running(url, agent, Settings(burst_s=0.0), clock=StillClock(), opened=recorder.open) as web:
        reader, writer = await asyncio.open_connection(web.serving.host, web.serving.port)
        body = b'{"model": "main", "stream": true, "messages": [{"role": "user", "content": "stream"}]}'
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: here\r\nAuthorization: Bearer {TOKEN}\r\n"
        for seen in (nullcontext(), recorder.on()):  # the first one warms up
            agent.shown.clear()
            await web.world.store.run(_nothing)
            with seen:
                writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
                await reader.readuntil(b"echo:")
                agent.shown.set()
                await reader.readuntil(b"[DONE]")
                await web.world.gateway.turns.quiet()
            await reader.readuntil(b"0\r\n\r\n")
        writer.close()


SCENES = {"plain": plain, "streamed": streamed, "approval": approval, "resume": resume, "v1": v1}


async def walk(name: str, url: str) -> Walk:
    """Send the message of a scene through a gateway on this store."""
    recorder = Recorder()
    await SCENES[name](url, recorder)
    return Walk(list(recorder.stations))


def recorded() -> dict[str, dict[str, int]]:
    """How long each walk may be."""
    return tomllib.loads(WALKS.read_text(encoding="utf-8"))
