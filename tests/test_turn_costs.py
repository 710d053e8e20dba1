"""What a turn costs only goes down, and what is switched off costs nothing."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import pytest

from everturn.agent.interface import Answer, TurnContext
from everturn.decide.display import Display
from everturn.decide.streaming import Look, Pace
from everturn.gateway.at_work import EVERY_S
from everturn.gateway.parts import Settings
from everturn.media import Media
from everturn.model import ToolCall
from everturn.testing import ManualClock, World
from tests.contracts.telegram import TelegramDriver
from tests.empty import EmptyFile
from tests.house import ROOT
from tests.ratchets import versions
from tests.turn_costs import COSTS, Costs, Meter, recorded, risen
from tests.waiting import Changes
from tests.web.composition import TOKEN, Web, running

Turn = Callable[[], Awaitable[None]]
LOOK = ToolCall(id="call-1", name="look")
WRITTEN_DOWN = 0.98  # of the calls: other versions of Python need a few less


class StillClock(ManualClock):
    """Time stands still: nothing happens by itself. It says who begins to wait."""

    def __init__(self) -> None:
        super().__init__(time.time())
        self.waits: list[float] = []
        self.changes = Changes(lambda: self.waits)

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.changes.changed()
        await super().sleep(seconds)


class Looking:
    """Uses one tool and answers, when whatever goes on beside the turn is over."""

    def __init__(self, beside: Turn | None = None) -> None:
        self._beside = beside

    async def run(self, turn: TurnContext) -> Answer:
        if self._beside is not None:
            await self._beside()
        await turn.calling()
        await turn.step("", [LOOK], self._look)
        return Answer(f"echo: {turn.words}")

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


async def by_telegram(driver: TelegramDriver, world: World) -> Turn:
    """A message on Telegram until its answer is on the screen, and the next poll hangs."""
    numbers, queue = count(), driver.telegram.queue

    async def turn() -> None:
        polls, text = queue.polls, f"please look at this for me {next(numbers)}"
        driver.says(text)
        await driver.until(lambda: driver.texts()[-1:] == [f"echo: {text}"] and queue.polls == polls + 1)
        await world.gateway.turns.quiet()
        await world.gateway.outbox.quiet()

    await driver.until(lambda: queue.polls == 1)
    return turn


@asynccontextmanager
async def on_telegram(url: str, meter: Meter, settings: Settings = Settings(), **own: Any) -> AsyncIterator[Turn]:  # noqa: B008
    """A gateway on the local Telegram. Its turns go on when it was shown that somebody is at work."""
    clock = StillClock()

    async def typing() -> None:
        asked = clock.waits.count(EVERY_S)
        await clock.changes.until(lambda: clock.waits.count(EVERY_S) > asked)

    agent = Looking(typing if settings.display.look_everywhere.typing else None)
    async with TelegramDriver() as driver:
        platform = driver.connected(clock=clock)
        async with World(url, agent, [platform], clock, settings, opened=meter.open, **own) as world:
            yield await by_telegram(driver, world)


async def test_a_turn_by_the_api_costs_no_more_than_it_did(store_url: str) -> None:
    meter = Meter()
    async with running(store_url, Looking(), clock=StillClock(), opened=meter.open) as web, by_api(web) as turn:
        check("api", store_url, await meter.of(turn), meter)


async def test_a_turn_by_telegram_costs_no_more_than_it_did(store_url: str) -> None:
    meter = Meter()
    async with on_telegram(store_url, meter) as turn:
        check("telegram", store_url, await meter.of(turn), meter)


def check(way: str, url: str, costs: Costs, meter: Meter) -> None:
    """Cheaper is a failure as well, until the number is written down: else the next change could spend what this one saved."""
    name = f"{way}-{url.partition(':')[0]}"
    allowed = recorded()[name]
    print(*meter.statements_of_last, *sorted(meter.functions_of_last.items()), sep="\n")  # noqa: T201  for who looks why
    found = f"{name} costs {costs}; {COSTS.name} has {allowed}"
    assert replace(costs, calls=0) == replace(allowed, calls=0), found
    assert costs.calls <= allowed.calls, found
    assert costs.calls >= allowed.calls * WRITTEN_DOWN, f"{found}: write it down"


@pytest.mark.parametrize("off", ["typing", "streaming", "media"])
async def test_what_is_not_used_costs_nothing(off: str, empty_file: EmptyFile, tmp_path: Path) -> None:
    """A folder for files is there, and no file comes; what is shown while a turn runs is switched off."""
    look = Look(typing=off != "typing")
    settings = Settings(display=Display(everywhere=Pace(enabled=off != "streaming"), look_everywhere=look))
    meter, media = Meter(), Media(tmp_path / "files", 1000, 3000) if off == "media" else None
    async with on_telegram(empty_file.copy(tmp_path), meter, settings, media=media) as turn:
        costs, allowed = await meter.of(turn), recorded()["telegram-sqlite"]
    assert costs.statements <= allowed.statements
    assert costs.commits <= allowed.commits
    assert costs.tasks == allowed.tasks - (off == "typing")
    assert costs.calls <= allowed.calls


def test_no_cost_was_ever_raised_without_a_decision() -> None:
    found = versions(COSTS)
    assert [line for (_, now), (_, before) in pairwise(found) for line in risen(before, now)] == []
    assert all(Path(ROOT, page).is_file() for page in found[0][1].get("raised", {}).values())


@pytest.mark.parametrize(
    ("now", "said"),
    [
        ({"api": {"tasks": 3}}, ["api.tasks was 2 and now is 3"]),
        ({"api": {"tasks": 2}, "telegram": {"tasks": 9}}, []),
        ({"api": {"tasks": 3}, "raised": {"api.tasks": "docs/decisions/0001.md"}}, ["api.tasks was 2 and now is 3"]),
        ({"api": {"tasks": 3}, "raised": {"api.tasks": "docs/decisions/0002.md"}}, []),
    ],
)
def test_a_cost_that_rises_is_seen_unless_a_new_decision_says_why(now: dict[str, Any], said: list[str]) -> None:
    before = {"api": {"tasks": 2}, "raised": {"api.tasks": "docs/decisions/0001.md"}}
    assert risen(before, now) == said
