"""Makes the picture of the page for the README: `python scripts/picture.py [FILE]`, by default docs/images/page.png.

A real gateway with a scripted agent answers in a real browser. It is killed with SIGKILL in the middle of a task, started again,
and resumes; the script ends with an error if a step ran twice.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from playwright.async_api import BrowserContext, Page, expect  # noqa: E402  the tests are no installed package

from everturn.agent.interface import Answer, TurnContext  # noqa: E402
from everturn.model import Effect, ToolCall  # noqa: E402
from tests.browser.browsing import chromium  # noqa: E402
from tests.cli.outside import call  # noqa: E402
from tests.cli.program import GatewayProgram  # noqa: E402

PICTURE = ROOT / "docs" / "images" / "page.png"
MOST_BYTES = 150_000
LEDGER = "PICTURE_LEDGER"  # the variable that names the file in which the agent notes each fetch
SHOPS = {"Oslo": "9 to 18", "Rome": "10 to 20", "Lima": "8 to 17"}
TABLE = "\n".join(["| shop | opens |", "| --- | --- |", *(f"| {shop} | {hours} |" for shop, hours in SHOPS.items())])


class ShopAgent:
    """Fetches three pages one by one, and waits for its end after the second; asks before it sends a message."""

    async def run(self, turn: TurnContext) -> Answer:
        """Do what the text says."""
        await turn.calling()
        if turn.text.startswith("Get"):
            return await self._fetch_all(turn)
        if turn.text.startswith("Send"):
            request = ToolCall(
                "send", "send_message", '{"to": "team"}', ask='send_message(to="team", text="Opening hours ...")'
            )
            await turn.step("I need your approval for that.", [request], self._fetch)
        return Answer(
            "The gateway was killed with `kill -9` after the second page. The next process found both results in its"
            " database, fetched only the third page, and went on in the same message."
        )

    async def _fetch_all(self, turn: TurnContext) -> Answer:
        done = [row for row in await turn.own() if row.role == "tool"] if turn.attempt > 1 else []
        for place, shop in list(enumerate(SHOPS))[len(done) :]:
            if place == len(SHOPS) - 1 and turn.attempt == 1:
                turn.stream("Two of three pages are read. Now the last one ...")
                await asyncio.Event().wait()  # the script kills the process here
            url = f'{{"url": "https://{shop.lower()}.shop.example"}}'
            text = "I look at each shop's page." if place == 0 else ""
            await turn.step(text, [ToolCall(str(place), "fetch", url, effect=Effect.PURE)], self._fetch)
        return Answer(f"All three pages are read:\n\n{TABLE}")

    async def _fetch(self, asked: ToolCall, _key: str) -> str:
        note(asked.arguments)
        return "200 OK"


def note(line: str) -> None:
    """Append a line to the ledger."""
    with Path(os.environ[LEDGER]).open("a", encoding="utf-8") as ledger:
        ledger.write(f"{line}\n")


agent = ShopAgent()


def start(home: Path, port: str = "0") -> GatewayProgram:
    """Start a gateway with the agent of this file."""
    path = os.pathsep.join(filter(None, [str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH")]))
    gateway = GatewayProgram(
        home, "--port", port, PYTHONPATH=path, EVERTURN_AGENT_KIND="python",
        EVERTURN_AGENT_OBJECT="scripts.picture:agent", **{LEDGER: str(home.parent / "ledger")},
    )  # fmt: skip
    gateway.ready()
    return gateway


async def opened(context: BrowserContext, home: Path, url: str) -> Page:
    """The chat page, logged in."""
    page = await context.new_page()
    await page.goto(f"{url}/login#{call(home, '/control/login', {})['code']}")
    await expect(page.locator("#welcome")).to_be_visible()
    return page


async def say(page: Page, text: str) -> None:
    """Write and send."""
    await page.locator("#text").fill(text)
    await page.locator("#text").press("Enter")


async def talk(page: Page, home: Path, gateway: GatewayProgram, port: str) -> GatewayProgram:
    """Hold the conversation of the picture; returns the second process."""
    await say(page, "Get the opening hours of our three shops and make a table.")
    await expect(page.locator("li.turn").last).to_contain_text("Two of three")
    gateway.kill()
    gateway = start(home, port)
    await expect(page.locator("li.turn").last).to_contain_text("8 to 17")
    await say(page, "What happened in between?")
    await expect(page.locator("li.turn").last).to_contain_text("kill -9")
    await say(page, "Send the table to the team.")
    await expect(page.get_by_role("button", name="Allow", exact=True)).to_be_visible()
    return gateway


async def main(arguments: list[str]) -> int:
    """Make the picture."""
    picture = Path(arguments[0]) if arguments else PICTURE
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        gateway = start(home)
        url = gateway.holder().url
        async with chromium() as browser:
            context = await browser.new_context(viewport={"width": 1080, "height": 1165}, color_scheme="light")
            page = await opened(context, home, url)
            gateway = await talk(page, home, gateway, url.rpartition(":")[2])
            await page.reload()  # the list of conversations is filled
            await expect(page.get_by_role("button", name="Allow", exact=True)).to_be_visible()
            picture.parent.mkdir(parents=True, exist_ok=True)
            await page.screenshot(path=picture, animations="disabled")
        gateway.kill()
        fetched = (Path(folder) / "ledger").read_text(encoding="utf-8").splitlines()
    size = picture.stat().st_size
    print(f"{picture.name}: {size} bytes; {len(fetched)} pages fetched for {len(SHOPS)} shops")
    return 0 if len(fetched) == len(SHOPS) and size < MOST_BYTES else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1:])))
