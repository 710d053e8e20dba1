"""The page in a real browser: how much it loads, and its first contentful paint."""

from __future__ import annotations

import asyncio
import shutil
import statistics

from playwright.async_api import Browser, BrowserContext, Response, async_playwright
from starlette.types import Receive, Scope, Send

from bench.disk import folder
from bench.process import Child, gateway
from bench.report import Line, at_most, say
from bench.serving import bare

METHOD = (
    "Chromium opens a login link of a real gateway: the bodies of all answers until the page is connected, nothing cached and nothing "
    "compressed. First contentful paint of the page against that of a page with one word on the same server, in turn, each in a browser "
    "context of its own, ratio of neighbours, median"
)
ROUNDS = 7
# The page forbids eval, which Playwright's own waiting uses; a promise needs none.
PAINT = """new Promise(done => new PerformanceObserver(list => {
    const first = list.getEntriesByName("first-contentful-paint")[0]
    if (first) done(first.startTime)
}).observe({ type: "paint", buffered: true }))"""
WORD = b"<!doctype html><title>hello</title><p>hello"


async def hello_page(_scope: Scope, _receive: Receive, send: Send) -> None:
    """The smallest page there is."""
    headers = [(b"content-type", b"text/html"), (b"content-length", b"%d" % len(WORD))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": WORD})


async def measure() -> list[Line]:
    """Measure its size, then its first paint."""
    with folder() as path, gateway(path) as child:
        await asyncio.to_thread(child.wait_ready)
        async with async_playwright() as playwright, bare(hello_page) as hello:
            browser = await playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            context = await browser.new_context()
            size, count = await _weighed(context, _link(child))
            state = await context.storage_state()
            paints = [
                (
                    await _painted(browser, f"http://127.0.0.1:{child.port}/", state),
                    await _painted(browser, hello.url, None),
                )
                for _ in range(ROUNDS)
            ]
            await browser.close()
    ours, theirs = (statistics.median(each) for each in zip(*paints, strict=True))
    say(f"  first paint: the page {ours:.0f} ms, one word {theirs:.0f} ms")
    return [
        Line(name="all that the page loads", value=size / 1000, unit="kB", target=at_most(150, aim=100), detail=f"{count} answers"),
        Line(name="first paint of the page", value=ours, unit="ms"),
        Line(name="first paint, the page / one word", value=statistics.median(a / b for a, b in paints)),
    ]  # fmt: skip


def _link(child: Child) -> str:
    _, login = child.ask("/control/login", b"{}")
    return f"http://127.0.0.1:{child.port}/login#{login['code']}"


async def _weighed(context: BrowserContext, link: str) -> tuple[int, int]:
    """The bytes of all answers to the page, and how many. Its service worker keeps copies for later: they come when they come."""
    came: list[Response] = []
    page = await context.new_page()
    page.on("response", lambda answer: came.append(answer))  # noqa: PLW0108  a method cannot be marked
    await page.goto(link)
    await page.locator("#welcome").wait_for()
    await page.locator("#banner").wait_for(state="hidden")
    sizes = [int(each.headers["content-length"]) for each in came if "content-length" in each.headers]  # not the stream
    await page.close()
    return sum(sizes), len(sizes)


async def _painted(browser: Browser, url: str, state: object) -> float:
    """Milliseconds from the start of the navigation to the first thing seen."""
    context = await browser.new_context(storage_state=state)  # type: ignore[arg-type]
    page = await context.new_page()
    await page.goto(url)
    seen: float = await page.evaluate(PAINT)
    await context.close()
    return seen
