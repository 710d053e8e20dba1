"""The operations page in a real browser, before a real gateway with a platform that fails when it is told to."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from pathlib import Path

from playwright.async_api import Browser, BrowserContext, Locator, expect

from everturn.agent.interface import Answer, TurnContext
from everturn.lifecycle.settings import Settings
from everturn.outbox.rules.delivery import Surety
from everturn.testing import FakePlatform, SendFault
from tests.browser.browsing import Screen, window
from tests.web.composition import Web, running

ATTACK = "<img src=x onerror='window.pwned = true'>"
ASKING = Settings(burst_s=0.0, on_unknown_delivery="ask")


class Moody:
    """An agent that answers, fails or waits, as the first word says."""

    def __init__(self) -> None:
        self.go = asyncio.Event()

    async def run(self, turn: TurnContext) -> Answer:
        """One turn."""
        match turn.text.split(maxsplit=1)[0]:
            case "fail":
                raise RuntimeError(f"the oven is broken {ATTACK}")
            case "wait":
                turn.calling()
                await self.go.wait()
        return Answer(f"echo: {turn.text}")


@dataclass
class Operations:
    """Who writes (people), who answers (agent), and the page of who looks after it."""

    web: Web
    people: FakePlatform
    agent: Moody
    screen: Screen

    @property
    def status(self) -> Locator:
        """The sentence at the top."""
        return self.screen.page.locator("#status")

    @property
    def said(self) -> Locator:
        """What was done, for a while."""
        return self.screen.page.locator("#said")

    def row(self, text: str) -> Locator:
        """The visible row of a table that holds this text, with the confirmation below it."""
        return self.screen.page.locator("tbody", has_text=text).locator("visible=true").first

    async def seen(self, chat: str, count: int) -> None:
        """Wait until so much is seen of us in a chat."""
        await self.people.until(lambda: len(self.people.texts(chat)) == count)

    async def look(self, view: str) -> None:
        """Choose a view at the top."""
        await self.screen.page.get_by_role("navigation", name="Operations").get_by_role("link", name=view).click()

    async def press(self, text: str, button: str) -> None:
        """Use a button of a row."""
        await self.row(text).get_by_role("button", name=button).click()


async def enter_ops(context: BrowserContext, web: Web, shots: Path) -> Screen:
    """A window of the owner on the operations page; who is not logged in is sent to the login first, and comes back."""
    screen = await window(context, shots)
    await screen.page.goto(f"{web.serving.url}/ops")
    await expect(screen.page.locator("#said")).to_contain_text("everturn login")
    login = await web.serving.app.visits.make()
    await screen.page.goto(f"{web.serving.url}/login#{login.code}")
    await screen.page.wait_for_url("**/ops")
    await expect(screen.page.locator("#status")).not_to_contain_text("Loading")
    return screen


@contextlib.asynccontextmanager
async def operations(
    browser: Browser,
    home: Path,
    faults: Iterable[SendFault | None] = (),
    surety: Surety = Surety.KEYED,
    shots: Path | None = None,
    settings: Settings = ASKING,
    **context: object,
) -> AsyncIterator[Operations]:
    """Everything, with the page open. What the browser is like is said as Playwright says it."""
    people, agent = FakePlatform("people", surety, faults), Moody()
    opened = await browser.new_context(**({"viewport": {"width": 1280, "height": 900}} | context))  # type: ignore[arg-type]
    async with running(home, agent, settings, others=[people]) as web:
        try:
            yield Operations(web, people, agent, await enter_ops(opened, web, shots or home / "shots"))
        finally:
            agent.go.set()
            await opened.close()
