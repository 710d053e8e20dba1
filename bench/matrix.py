"""Matrix: reading a homeserver's updates against parsing them alone, messages through the adapter into the database against the
same of a platform in memory, and what an account costs.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from itertools import count
from pathlib import Path

import httpx
import msgspec

from bench.accounts import MANY, memory_each
from bench.disk import folder
from bench.report import Line, shown
from bench.rounds import Sample, cpu_us, in_turn, median_ratio, rate
from everturn import points
from everturn.clock import SystemClock
from everturn.inbox.rows.inbox import move_cursor
from everturn.lifecycle.settings import Settings
from everturn.model import Inbound
from everturn.platform.matrix import MatrixPlatform, MatrixSettings
from everturn.platform.matrix.reading import MatrixReader
from everturn.platform.matrix.rooms import MatrixRoom
from everturn.platform.matrix.wire import Sync, understood
from everturn.store.open import open_store
from everturn.testing import FakePlatform, ScriptedAgent, World
from tests.synapse import Person, SynapseServer

METHOD = (
    "300 messages of 10 rooms on a real Synapse; its answer decoded and translated, against json.loads of the same bytes; the same read by the "
    "adapter into SQLite, turns held back, in a new home each time, against the same from FakePlatform; resident memory of this process from 5 to "
    "25 accounts that wait in a long poll"
)
ROUNDS = 4
COUNT = 300
ROOMS = 10
PAGE = 100  # what Synapse gives of one room at most
SETTINGS = Settings(queue_per_session=10_000, burst_s=0.0)
TIMES = 20  # one answer is read in a moment
_homes = count()


async def measure() -> list[Line]:
    """Both comparisons, each side in turn, and the memory."""
    with SynapseServer() as synapse, folder() as path:
        bot, people = synapse.person("bot"), [synapse.person(f"p{number}") for number in range(ROOMS)]
        rooms = [_room(each, bot) for each in people]
        since = bot.asks("GET", "/sync", params={"timeout": 0})["next_batch"]
        for number in range(COUNT):
            people[number % ROOMS].says(rooms[number % ROOMS], f"please look at this for me, number {number}")
        raw = _news(bot, since)
        memory_kb = await _memory(synapse)
        decoding = await in_turn({"ours": _ours(raw, bot.user_id), "parsed": _parsed(raw)}, ROUNDS)
        taking = await in_turn({"matrix": _matrix(path, bot, since), "fake": _fake(path)}, ROUNDS)
    return [
        Line(
            name="matrix: a message decoded, against json.loads",
            value=median_ratio(decoding["ours"], decoding["parsed"]),
            detail=f"{cpu_us(decoding['ours']):.1f} us each, translated; parsed alone {cpu_us(decoding['parsed']):.1f} us",
        ),
        Line(
            name="matrix: messages taken, against a platform in memory",
            value=median_ratio(taking["matrix"], taking["fake"]),
            detail=f"{shown(rate(taking['matrix']))} messages/s, Synapse's own work and the first look included",
        ),
        Line(name="matrix: memory of a connected account", value=memory_kb, unit="kB", detail=f"{MANY} accounts"),
    ]


def _room(who: Person, bot: Person) -> str:
    room = who.direct(bot.user_id)
    bot.joins(room)
    return room


def _news(bot: Person, since: str) -> bytes:
    """All that was said, in one answer."""
    wanted = json.dumps({"room": {"timeline": {"limit": PAGE}}})
    params = {"since": since, "timeout": "0", "filter": wanted}
    return httpx.get(f"{bot.url}/_matrix/client/v3/sync", params=params, headers=bot.headers).content


async def _memory(synapse: SynapseServer) -> float:
    async with AsyncExitStack() as stack:

        async def connected(number: int) -> object:
            account = synapse.register(f"account{number}")
            settings = MatrixSettings(
                homeserver=synapse.url, user=account["user_id"], token=account["access_token"], page=PAGE
            )
            adapter = MatrixPlatform(settings, SystemClock())
            stack.push_async_callback(adapter.close_connections)
            reading = adapter.inbound(None)
            stack.push_async_callback(reading.aclose)
            await anext(reading)  # the place to read from
            polling = asyncio.ensure_future(anext(reading))
            stack.push_async_callback(_ended, polling)
            await asyncio.wait({polling}, timeout=0.1)
            return adapter

        return await memory_each(connected)


async def _ended(task: asyncio.Future[object]) -> None:
    task.cancel()
    await asyncio.wait({task})


def _adapter(bot: Person) -> MatrixPlatform:
    return MatrixPlatform(
        MatrixSettings(homeserver=bot.url, user=bot.user_id, token=bot.token, page=PAGE), SystemClock()
    )


def _ours(raw: bytes, user: str):  # noqa: ANN202  a Block
    reader = MatrixReader(user, listening=True)

    async def run() -> Sample:
        began, cpu = time.perf_counter(), time.process_time()
        found = sum(len(_translated(reader, raw)) for _ in range(TIMES))
        return Sample(found, time.perf_counter() - began, time.process_time() - cpu)

    return run


def _translated(reader: MatrixReader, raw: bytes) -> list[Inbound]:
    rooms = msgspec.json.decode(raw, type=Sync).rooms.join.items()
    found = [
        reader.read(event, MatrixRoom(room)) for room, about in rooms for event in understood(about.timeline.events)
    ]
    return [each for each in found if each is not None]


def _parsed(raw: bytes):  # noqa: ANN202  a Block
    async def run() -> Sample:
        began, cpu = time.perf_counter(), time.process_time()
        for _ in range(TIMES):
            json.loads(raw)
        return Sample(COUNT * TIMES, time.perf_counter() - began, time.process_time() - cpu)

    return run


def _matrix(path: Path, bot: Person, since: str):  # noqa: ANN202  a Block
    async def run() -> Sample:
        url = f"sqlite:///{path / f'matrix-{next(_homes)}.db'}"
        store = await open_store(url)
        await store.run(move_cursor, "matrix", bot.user_id, since, time.time())
        await store.close()
        adapter = _adapter(bot)
        return await _taken(url, adapter, lambda: None)

    return run


def _fake(path: Path):  # noqa: ANN202  a Block
    async def run() -> Sample:
        fake = FakePlatform()
        return await _taken(f"sqlite:///{path / f'fake-{next(_homes)}.db'}", fake, lambda: _said(fake))

    return run


def _said(fake: FakePlatform) -> None:
    for number in range(COUNT):
        fake.say(f"P{number % ROOMS}", f"please look at this for me {number}")


async def _taken(url: str, platform: MatrixPlatform | FakePlatform, say: Callable[[], None]) -> Sample:
    """From the start of a gateway until everything is stored."""
    whole, stored = asyncio.Event(), 0

    def reached(name: str) -> None:
        nonlocal stored
        stored += name == "inbox.committed"
        if stored == COUNT:
            whole.set()

    points.install(reached)
    world = World(url, ScriptedAgent(), [platform], settings=SETTINGS)
    say()
    began, cpu = time.perf_counter(), time.process_time()
    async with world:
        world.gateway.turns.close()
        await whole.wait()
        sample = Sample(COUNT, time.perf_counter() - began, time.process_time() - cpu)
    points.install(None)
    if isinstance(platform, MatrixPlatform):
        await platform.close_connections()
    return sample
