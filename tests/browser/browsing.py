"""A real Chromium and a real gateway process, for the tests of this folder."""

import contextlib
import os
import shutil
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, BrowserContext, Locator, Page, async_playwright, expect

from tests.cli.outside import call
from tests.cli.program import Program
from tests.house import ROOT
from tests.postgres import free_port
from tests.waiting import WAIT_S

WAIT_MS = 1000 * WAIT_S
AXE = ROOT / "tests" / "npm" / "node_modules" / "axe-core" / "axe.min.js"
expect.set_options(timeout=WAIT_MS)
# One browser for all tests of a worker: their coroutines run in one loop.
MARKS = [pytest.mark.asyncio(loop_scope="session")]
PROVE = [*MARKS, pytest.mark.prove]


class Gateway:
    """`everturn run` with the talker, on one port through all its restarts."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.go = home.parent / "go"
        self._port = str(free_port())
        self._program: Program | None = None
        self.url = f"http://127.0.0.1:{self._port}"

    def start(self, *, serves: bool = True) -> None:
        """Start the process, and wait until it listens; one that may end before that is not waited for."""
        path = os.pathsep.join(filter(None, [str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH")]))
        self._program = Program(
            "run", "--port", self._port, home=self.home, EVERTURN_AGENT_KIND="python",
            EVERTURN_AGENT_OBJECT="tests.browser.talker:agent", PYTHONPATH=path, TALKER_GO=str(self.go),
        )  # fmt: skip
        if serves:
            self._program.shows(self.url)

    def kill(self) -> None:
        """End as by SIGKILL."""
        assert self._program is not None
        self._program.kill(signal.SIGKILL)

    def died(self) -> None:
        """Wait until it has ended by itself."""
        assert self._program is not None
        self._program.wait()

    def stop(self) -> None:
        """End, if it runs."""
        if self._program is not None:
            self._program.kill(signal.SIGKILL)

    def link(self) -> str:
        """A new login link, as `everturn login` asks for it."""
        return f"{self.url}/login#{call(self.home, '/control/login', {})['code']}"


@dataclass
class Screen:
    """One window, and how a person uses it. What it asked for and what went wrong in it is remembered."""

    page: Page
    shots: Path
    asked: list[str]
    errors: list[str]

    def text(self) -> Locator:
        """The message box."""
        return self.page.locator("#text")

    def said(self, n: int = -1) -> Locator:
        """What the person said."""
        return self.page.locator("li.user").nth(n)

    def answers(self) -> Locator:
        """The messages of the agent."""
        return self.page.locator("li.turn")

    async def say(self, text: str) -> None:
        """Write and send."""
        await self.text().fill(text)
        await self.text().press("Enter")

    async def talk(self, text: str) -> None:
        """Say something and wait for its answer."""
        before = await self.answers().count()
        await self.say(text)
        await expect(self.said().locator(".status")).to_contain_text("answered")
        await expect(self.answers()).to_have_count(before + 1)

    async def shot(self, name: str) -> None:
        """Keep a picture of what is seen."""
        self.shots.mkdir(exist_ok=True)
        await self.page.screenshot(path=self.shots / f"{name}.png")

    async def unhurt(self) -> None:
        """No attack ran, no error was thrown, and nothing outside was asked."""
        assert await self.page.evaluate("() => window.pwned") is None
        assert self.errors == []
        own = self.page.url.split("/", 3)[2]
        assert {url.split("/", 3)[2] for url in self.asked if url.startswith("http")} == {own}


@contextlib.asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """The system's Chromium."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=shutil.which("chromium"),
            args=["--no-sandbox"],
            timeout=2 * WAIT_MS,  # a large program
        )
        yield browser
        await browser.close()


async def window(context: BrowserContext, shots: Path) -> Screen:
    """A new window."""
    context.set_default_timeout(WAIT_MS)
    page = await context.new_page()
    screen = Screen(page, shots, [], [])
    page.on("request", lambda request: screen.asked.append(request.url))
    page.on("pageerror", lambda error: screen.errors.append(str(error)))
    page.on("dialog", lambda dialog: screen.errors.append(dialog.message))
    return screen


async def enter(context: BrowserContext, gateway: Gateway, shots: Path) -> Screen:
    """A window that was opened with a login link, connected."""
    screen = await window(context, shots)
    await screen.page.goto(gateway.link())
    await screen.page.wait_for_url("**/#c=*")
    await expect(screen.page.locator("#welcome")).to_be_visible()
    return screen


async def serious(page: Page) -> list[Any]:
    """What axe finds that keeps somebody out."""
    await page.evaluate(AXE.read_text(encoding="utf-8"))
    found = await page.evaluate("() => axe.run(document, { resultTypes: ['violations'] })")
    return [
        (each["id"], [node["html"][:200] for node in each["nodes"]])
        for each in found["violations"]
        if each["impact"] in {"serious", "critical"}
    ]
