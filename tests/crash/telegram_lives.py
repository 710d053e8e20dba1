"""One life of a gateway that talks to a Telegram in another process, and dies at the k-th hit of a crash point."""

import asyncio
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import httpx
import msgspec
import uvloop

from everturn import points
from everturn.agent.interface import Agent
from everturn.clock import SystemClock
from everturn.platform.telegram import TelegramPlatform, TelegramSettings
from everturn.testing import ScriptedAgent, World
from everturn.testing_telegram import TOKEN
from tests.crash.growing import SETTINGS, Growing
from tests.crash.pressing import ALLOW, Careful, Notes
from tests.waiting import WAIT_S, poll

DIED, DONE = 137, 0


@dataclass(frozen=True)
class TelegramLife:
    """What one process does: it lives until the answer is on the screen of the chat, or dies before."""

    database: str
    telegram: str
    chat: int
    answer: str
    point: str = ""
    hit: int = 0
    grows: bool = False  # whether the answer is seen while it is made
    visited: str = ""  # a file for how often each point was reached
    asks: str = ""  # who is asked before a tool is used, and presses a button


def pressed(life: TelegramLife) -> bool:
    """Press the button of the newest question on the screen; whether that was done, in this life or in an earlier one."""

    def press() -> bool:
        order = {"who": life.asks, "does": "presses_newest", "with": {"label": ALLOW}}
        answer = httpx.post(f"{life.telegram}/control/people", json=order, timeout=WAIT_S)
        return bool(answer.raise_for_status().json()["result"])

    return Notes.of(life.database).pressed(press)


async def _seen(life: TelegramLife, words: str) -> None:
    """The person sees these words of ours."""
    with httpx.Client(timeout=WAIT_S) as client:
        screen = f"{life.telegram}/control/screens/{life.chat}"
        await poll(lambda: any(words in text for text in client.get(screen).json()), WAIT_S)


def live(life: TelegramLife) -> None:
    """The process's whole life. A death runs no except, no finally, no callback."""
    reached: Counter[str] = Counter()
    points.install(_hook(life, reached))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_live(life))
    if life.visited:
        Path(life.visited).write_bytes(msgspec.json.encode(reached))
    os._exit(DONE)


async def _live(life: TelegramLife) -> None:
    settings = TelegramSettings(token=TOKEN, api_url=life.telegram)
    platform = TelegramPlatform(settings, SystemClock())
    world = World(life.database, _agent(life), [platform], settings=SETTINGS)
    await world.start()
    if life.asks:
        await poll(partial(pressed, life), WAIT_S)
    await _seen(life, life.answer)
    await world.gateway.outbox.quiet()  # it is seen before it is committed
    await world.stop()


def _agent(life: TelegramLife) -> Agent:
    if life.asks:
        return Careful(Notes.of(life.database))
    return Growing(partial(_seen, life)) if life.grows else ScriptedAgent(["tool"])


def _hook(life: TelegramLife, reached: Counter[str]) -> Callable[[str], None]:
    def count(name: str) -> None:
        reached[name] += 1
        if name == life.point and reached[name] == life.hit:
            os._exit(DIED)

    return count
