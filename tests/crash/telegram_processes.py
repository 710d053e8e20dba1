"""One gateway that talks to a Telegram in another process, and dies at the k-th hit of a crash point."""

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
from everturn.testing.telegram import TOKEN
from tests.crash.growing import SETTINGS, Growing
from tests.crash.pressing import ALLOW, Careful, Notes
from tests.waiting import WAIT_S, poll

DIED, DONE = 137, 0


@dataclass(frozen=True)
class TelegramCrashProcess:
    """What one process does: it runs until the answer is on the screen of the chat, or dies before."""

    database: str
    telegram: str
    chat: int
    answer: str
    point: str = ""
    hit: int = 0
    grows: bool = False  # whether the answer is streamed
    visited: str = ""  # a file for how often each point was reached
    asks: str = ""  # the person whose approval a tool needs, and who presses a button


def pressed(process: TelegramCrashProcess) -> bool:
    """Press the button of the newest approval request; whether that was done, in this process or in an earlier one."""

    def press() -> bool:
        order = {"who": process.asks, "does": "presses_newest", "with": {"label": ALLOW}}
        answer = httpx.post(f"{process.telegram}/control/people", json=order, timeout=WAIT_S)
        return bool(answer.raise_for_status().json()["result"])

    return Notes.of(process.database).pressed(press)


async def _seen(process: TelegramCrashProcess, text: str) -> None:
    """Wait until the person sees this text of ours."""
    with httpx.Client(timeout=WAIT_S) as client:
        screen = f"{process.telegram}/control/screens/{process.chat}"
        await poll(lambda: any(text in shown for shown in client.get(screen).json()), WAIT_S)


def run_to_exit(process: TelegramCrashProcess) -> None:
    """Run the whole process. A death runs no except, no finally, no callback."""
    reached: Counter[str] = Counter()
    points.install(_hook(process, reached))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_run(process))
    if process.visited:
        Path(process.visited).write_bytes(msgspec.json.encode(reached))
    os._exit(DONE)


async def _run(process: TelegramCrashProcess) -> None:
    settings = TelegramSettings(token=TOKEN, api_url=process.telegram)
    platform = TelegramPlatform(settings, SystemClock())
    world = World(process.database, _agent(process), [platform], settings=SETTINGS)
    await world.start()
    if process.asks:
        await poll(partial(pressed, process), WAIT_S)
    await _seen(process, process.answer)
    await world.gateway.outbox.quiet()  # it is seen before it is committed
    await world.stop()


def _agent(process: TelegramCrashProcess) -> Agent:
    if process.asks:
        return Careful(Notes.of(process.database))
    return Growing(partial(_seen, process)) if process.grows else ScriptedAgent(["tool"])


def _hook(process: TelegramCrashProcess, reached: Counter[str]) -> Callable[[str], None]:
    def count(name: str) -> None:
        reached[name] += 1
        if name == process.point and reached[name] == process.hit:
            os._exit(DIED)

    return count
