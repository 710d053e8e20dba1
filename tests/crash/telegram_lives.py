"""One life of a gateway that talks to a Telegram in another process, and dies at the k-th hit of a crash point."""

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass

import httpx

from everturn import points
from everturn.clock import SystemClock
from everturn.gateway.parts import Settings
from everturn.platform.telegram import TelegramPlatform, TelegramSettings
from everturn.testing import ScriptedAgent, World
from everturn.testing_telegram import TOKEN
from tests.waiting import poll

DIED, DONE = 137, 0
LONGEST_S = 30
SETTINGS = Settings(stuck_after=0, unclean_boots=0, burst_s=0.0)


@dataclass(frozen=True)
class TelegramLife:
    """What one process does: it lives until the answer is on the screen of the chat, or dies before."""

    database: str
    telegram: str
    chat: int
    answer: str
    point: str = ""
    hit: int = 0


def live(life: TelegramLife) -> None:
    """The process's whole life. A death runs no except, no finally, no callback."""
    asyncio.run(_live(life))
    os._exit(DONE)


async def _live(life: TelegramLife) -> None:
    settings = TelegramSettings(token=TOKEN, api_url=life.telegram)
    platform = TelegramPlatform(settings, SystemClock())
    points.install(_hook(life))
    world = World(life.database, ScriptedAgent(["tool"]), [platform], settings=SETTINGS)
    await world.start()
    with httpx.Client() as client:
        screen = f"{life.telegram}/control/screens/{life.chat}"
        await poll(lambda: any(life.answer in text for text in client.get(screen).json()), LONGEST_S)
    await world.stop()


def _hook(life: TelegramLife) -> Callable[[str], None]:
    hits = 0

    def reached(name: str) -> None:
        nonlocal hits
        hits += name == life.point
        if name == life.point and hits == life.hit:
            os._exit(DIED)

    return reached
