"""Coming in: the printed link, a link used twice, logging out, and pages of other sites."""

import asyncio
import os
import pty
import re
import select
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.async_api import Browser, expect

from tests.browser.browsing import PROVE, Gateway, Screen, window
from tests.cli.outside import call
from tests.cli.program import PROGRAM, environment
from tests.waiting import WAIT_S

pytestmark = PROVE

LINK = re.compile(rb"http://127\.0\.0\.1:\d+/login#[\w-]+")


@pytest.fixture
def printed(tmp_path: Path) -> Iterator[str]:
    """The link that a gateway prints on a terminal."""
    ours, theirs = pty.openpty()
    command = [*PROGRAM, "run", "--supervise", "--port", "0", "--home", str(tmp_path / "home")]
    program = subprocess.Popen(command, stdout=theirs, stderr=subprocess.DEVNULL, env=environment())
    os.close(theirs)
    try:
        yield link_in(ours)
    finally:
        program.terminate()
        program.wait(WAIT_S)
        os.close(ours)


def link_in(screen: int) -> str:
    """Wait until a login link stands there."""
    seen = b""
    while not (found := LINK.search(seen)):
        ready, _, _ = select.select([screen], [], [], WAIT_S)
        assert ready, seen
        seen += os.read(screen, 4096)
    return found[0].decode()


async def test_first_use_from_the_printed_link(printed: str, browser: Browser, shots: Path) -> None:
    screen = await window(await browser.new_context(viewport={"width": 1200, "height": 800}), shots)
    await screen.page.goto(printed)
    await expect(screen.page.locator("#welcome")).to_be_visible()
    await screen.shot("first")
    await screen.talk("hello")
    await expect(screen.answers()).to_contain_text("You said: hello")
    code = printed.partition("#")[2]
    assert code not in screen.page.url
    assert not [url for url in screen.asked if code in url.partition("#")[0]]
    await screen.unhurt()


async def test_a_link_that_was_used_is_refused_with_a_reason(gateway: Gateway, browser: Browser, shots: Path) -> None:
    link = gateway.link()
    mine = await window(await browser.new_context(), shots)
    await mine.page.goto(link)
    await expect(mine.page.locator("#welcome")).to_be_visible()
    thief = await window(await browser.new_context(), shots)
    await thief.page.goto(link)
    await expect(thief.page.locator("#said")).to_contain_text("used before")
    await thief.shot("replayed")
    await thief.page.goto(gateway.url)
    await expect(thief.page.locator("#said")).to_contain_text("everturn login")


async def test_the_link_of_a_key_leads_to_the_operations(gateway: Gateway, browser: Browser, shots: Path) -> None:
    key = call(gateway.home, "/control/keys", {"name": "helper", "scopes": ["admin"]})["key"]
    async with httpx.AsyncClient(base_url=gateway.url, headers={"Authorization": f"Bearer {key}"}) as program:
        made = await program.post("/control/login")
    screen = await window(await browser.new_context(), shots)
    await screen.page.goto(f"{gateway.url}/login#{made.json()['code']}")
    await screen.page.wait_for_url("**/ops")
    await expect(screen.page.locator("#status")).not_to_contain_text("Loading")


async def test_a_logout_ends_the_session_and_loses_no_message(gateway: Gateway, screen: Screen) -> None:
    await screen.talk("hello")
    await screen.page.locator("#logout").click()
    await expect(screen.page.locator("#said")).to_contain_text("everturn login")
    await screen.page.goto(gateway.url)
    await expect(screen.page.locator("#said")).to_contain_text("everturn login")
    await screen.page.goto(gateway.link())
    await expect(screen.said()).to_contain_text("hello")


async def test_a_logout_elsewhere_is_shown_and_keeps_what_was_written(gateway: Gateway, screen: Screen) -> None:
    await screen.talk("hello")
    call(gateway.home, "/control/logout", {})
    await expect(screen.page.locator("#banner")).to_contain_text("logged out")
    await screen.say("still here")
    await expect(screen.said().locator(".status")).to_contain_text("sending")
    await screen.page.goto(gateway.link())
    await expect(screen.answers().last).to_contain_text("echo: still here")
    await expect(screen.page.locator("li.user")).to_have_count(2)


async def other_site() -> asyncio.Server:
    """A page of another origin on the same machine: browsers send it our strictest cookies."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 13\r\nconnection: close\r\n\r\n<p>hello</p>\r\n"
        )
        await writer.drain()
        writer.close()

    return await asyncio.start_server(answer, "127.0.0.1", 0)


async def test_a_page_of_another_origin_can_neither_act_nor_read(gateway: Gateway, screen: Screen, shots: Path) -> None:
    evil = await window(screen.page.context, shots)
    tries = """async (url) => {
      const body = JSON.stringify({ id: 'x', text: 'evil words' });
      const post = (mode) => fetch(url + '/web/conversations/evil/messages', { method: 'POST', mode, credentials: 'include', body }).then((a) => a.type, () => 'refused');
      const read = fetch(url + '/web/conversations', { credentials: 'include' }).then((a) => a.text(), () => 'refused');
      return [await post('no-cors'), await post('cors'), await read];
    }"""
    async with await other_site() as server:
        await evil.page.goto(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/")
        assert await evil.page.evaluate(tries, gateway.url) == ["refused"] * 3
        await evil.page.close()
    await screen.talk("hello")
    await expect(screen.page.locator("#list .name")).to_have_text(["hello"])
