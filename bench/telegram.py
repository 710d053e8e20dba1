"""Telegram: reading an update against the library's own reading, updates through the adapter into the database against the
same messages of a platform in memory, and what an account costs.
"""

from __future__ import annotations

import json
import time
from contextlib import AsyncExitStack
from itertools import count

from telegram import Update as LibraryUpdate

from bench.accounts import MANY, memory_each
from bench.disk import folder
from bench.report import Line, at_least, shown
from bench.rounds import Sample, cpu_us, in_turn, median_ratio, rate
from everturn.clock import SystemClock
from everturn.lifecycle.settings import Settings
from everturn.model import SessionSource
from everturn.platform.telegram import TelegramPlatform, TelegramSettings
from everturn.platform.telegram.reading import TelegramReader
from everturn.platform.telegram.wire import read_update
from everturn.testing import FakePlatform, ScriptedAgent, World
from everturn.testing.telegram import TOKEN, Telegram, TelegramProcess, TelegramServer, person

METHOD = (
    "1,000 updates decoded and translated, against python-telegram-bot's decoding alone; 1,000 messages of 50 people through "
    "polls of the local Telegram (in the same process) into SQLite, turns held back, against the same from FakePlatform; resident memory of this "
    "process from 5 to 25 adapters with their connections open (they share one local bot, so that none of them polls)"
)
ROUNDS = 4
COUNT = 1000
PEOPLE = 50
SETTINGS = Settings(queue_per_session=10_000, burst_s=0.0)
_numbers = count()


async def measure() -> list[Line]:
    """Both comparisons, each side in turn."""
    raw = _updates()
    memory_kb = await _memory()
    decoding = await in_turn({"ours": _ours(raw), "library": _library(raw)}, ROUNDS)
    with folder() as path:
        async with AsyncExitStack() as stack:
            server = await stack.enter_async_context(TelegramServer())
            adapter = TelegramPlatform(TelegramSettings(token=TOKEN, api_url=server.url), SystemClock())
            fake = FakePlatform()
            by_telegram = await stack.enter_async_context(_held(f"sqlite:///{path / 'telegram.db'}", adapter))
            by_fake = await stack.enter_async_context(_held(f"sqlite:///{path / 'fake.db'}", fake))
            for world in (by_telegram, by_fake):
                world.gateway.turns.close()
            taking = await in_turn({"telegram": _telegram(server.telegram), "fake": _fake(fake)}, ROUNDS)
            await adapter.close_connections()
    return [
        Line(
            name="telegram: an update decoded, against the library",
            value=median_ratio(decoding["ours"], decoding["library"]),
            target=at_least(2),
            detail=f"{cpu_us(decoding['ours']):.1f} us each, translated; the library {cpu_us(decoding['library']):.0f} us",
        ),
        Line(
            name="telegram: updates taken, against a platform in memory",
            value=median_ratio(taking["telegram"], taking["fake"]),
            detail=f"{shown(rate(taking['telegram']))} updates/s",
        ),
        Line(name="telegram: memory of a connected account", value=memory_kb, unit="kB", detail=f"{MANY} accounts"),
    ]


async def _memory() -> float:
    with TelegramProcess() as telegram:
        telegram.act("Ann", "says", text="hello")
        number = str(telegram.person("Ann"))
        place = SessionSource(platform="telegram", chat_id=number, user_id=number)
        async with AsyncExitStack() as stack:

            async def connected(_: int) -> object:
                adapter = TelegramPlatform(TelegramSettings(token=TOKEN, api_url=telegram.url), SystemClock())
                stack.push_async_callback(adapter.close_connections)
                await adapter.typing(place)
                return adapter

            return await memory_each(connected)


def _held(url: str, platform: TelegramPlatform | FakePlatform) -> World:
    return World(url, ScriptedAgent(), [platform], settings=SETTINGS)


def _updates() -> list[bytes]:
    telegram = Telegram()
    for number in range(COUNT):
        person(telegram, f"P{number % PEOPLE}").says(f"please look at this for me, number {number}")
    return [json.dumps(each.update).encode() for each in telegram.state.waiting]


def _ours(raw: list[bytes]):  # noqa: ANN202  a Block
    reader = TelegramReader("1", "everturn_bot")

    async def run() -> Sample:
        began, cpu = time.perf_counter(), time.process_time()
        for each in raw:
            reader.read(read_update(each))
        return Sample(len(raw), time.perf_counter() - began, time.process_time() - cpu)

    return run


def _library(raw: list[bytes]):  # noqa: ANN202  a Block
    async def run() -> Sample:
        began, cpu = time.perf_counter(), time.process_time()
        for each in raw:
            LibraryUpdate.de_json(json.loads(each), None)
        return Sample(len(raw), time.perf_counter() - began, time.process_time() - cpu)

    return run


def _telegram(telegram: Telegram):  # noqa: ANN202  a Block
    async def run() -> Sample:
        for number in range(COUNT):
            person(telegram, f"P{number % PEOPLE}").says(f"please look at this for me {next(_numbers)}")
        began, cpu = time.perf_counter(), time.process_time()
        await telegram.until(lambda: not telegram.state.waiting, 120)
        return Sample(COUNT, time.perf_counter() - began, time.process_time() - cpu)

    return run


def _fake(fake: FakePlatform):  # noqa: ANN202  a Block
    async def run() -> Sample:
        for number in range(COUNT):
            fake.say(f"P{number % PEOPLE}", f"please look at this for me {next(_numbers)}")
        began, cpu = time.perf_counter(), time.process_time()
        await fake.until(lambda: fake.acknowledged == len(fake.said()), 120)
        return Sample(COUNT, time.perf_counter() - began, time.process_time() - cpu)

    return run
