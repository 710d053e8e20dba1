"""The page for everybody: phone, keyboard, screen readers, dark rooms; and what it weighs."""

from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.async_api import Browser, Page, expect

from tests.browser.browsing import MARKS, Gateway, Screen, enter, serious
from tests.browser.talker import ATTACK
from tests.house import ROOT

pytestmark = MARKS

MOST_BYTES = 150_000


async def full_page(screen: Screen) -> None:
    """A conversation with one of everything."""
    await screen.talk(
        "# Title\n\n- a\n- b\n\n```py\nprint(1)\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n> quoted [link](https://a.example)"
    )
    await screen.talk("tool")
    await screen.say("/status")
    await expect(screen.page.locator("li.command .command-answer")).not_to_be_empty()
    await screen.say("ask")
    await expect(screen.page.locator(".approval")).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.prove)])
async def test_axe_finds_nothing_serious(
    browser: Browser, gateway: Gateway, shots: Path, scheme: Literal["light", "dark"]
) -> None:
    context = await browser.new_context(
        viewport={"width": 1200, "height": 900}, color_scheme=scheme, reduced_motion="reduce"
    )
    screen = await enter(context, gateway, shots)
    assert await serious(screen.page) == []
    await full_page(screen)
    await screen.page.locator("details.call summary").first.click()
    await screen.shot(f"everything-{scheme}")
    assert await serious(screen.page) == []
    await screen.text().fill("/")
    await expect(screen.page.locator("#commands")).to_be_visible()
    assert await serious(screen.page) == []
    await context.close()


@pytest.mark.prove
async def test_on_a_phone(browser: Browser, gateway: Gateway, shots: Path) -> None:
    context = await browser.new_context(
        viewport={"width": 390, "height": 760}, has_touch=True, is_mobile=True, reduced_motion="reduce"
    )
    screen = await enter(context, gateway, shots)
    page = screen.page
    await screen.text().fill("hello from a phone " + "long" * 60 + "\n\n```\n" + "wide " * 60 + "\n```")
    await page.locator("#send").tap()
    await expect(screen.said().locator(".status")).to_contain_text("answered")
    await screen.shot("phone")
    assert await page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
    await expect(page.locator("#side")).not_to_be_in_viewport()
    await page.locator("#menu").tap()
    await expect(page.locator("#list .name")).to_be_in_viewport()
    await screen.shot("phone-list")
    assert await serious(page) == []
    await page.locator("#new").tap()
    await expect(page.locator("#welcome")).to_be_visible()
    await expect(page.locator("#side")).not_to_be_in_viewport()
    await context.close()


@pytest.mark.prove
async def test_with_the_keyboard_alone(gateway: Gateway, screen: Screen) -> None:
    page = screen.page
    await expect(screen.text()).to_be_focused()
    await page.keyboard.type("hello")
    await page.keyboard.press("Shift+Enter")
    await page.keyboard.type("there")
    await page.keyboard.press("Enter")
    await expect(screen.answers()).to_contain_text("there")
    await page.keyboard.type("/s")
    await page.keyboard.press("ArrowDown")
    await expect(page.locator("#commands li[aria-selected=true]")).to_have_count(1)
    await page.keyboard.press("Escape")
    await expect(page.locator("#commands")).to_be_hidden()
    await page.keyboard.press("Control+a")
    await page.keyboard.press("Delete")
    await page.reload()
    await expect(screen.said()).to_contain_text("hello")
    await page.locator("body").press("Tab")
    await tab_to(page, "new")
    await page.keyboard.press("Enter")
    await expect(page.locator("#welcome")).to_be_visible()
    await expect(screen.text()).to_be_focused()


async def tab_to(page: Page, wanted: str) -> None:
    """Press Tab until the focus is there, as a person would."""
    for _ in range(30):
        if await page.evaluate("() => document.activeElement.id") == wanted:
            return
        await page.keyboard.press("Shift+Tab")
    raise AssertionError(f"#{wanted} cannot be reached with the keyboard")


@pytest.mark.prove
async def test_an_answer_is_told_to_a_screen_reader_once_it_is_whole(gateway: Gateway, screen: Screen) -> None:
    await screen.say("slow")
    await expect(screen.answers().locator(".live")).to_be_visible()
    await expect(screen.page.locator("#announce")).to_have_text("")
    gateway.go.touch()
    await expect(screen.page.locator("#announce")).to_contain_text("three and done")


@pytest.mark.prove
async def test_hostile_text_is_text(screen: Screen) -> None:
    await screen.talk("hostile")
    await screen.talk("tool")
    await screen.talk(f"</li><script>{ATTACK}</script><img src=x onerror='{ATTACK}'>")
    await screen.say(f"/title <img src=x onerror='{ATTACK}'>")
    await expect(screen.page.locator("#title")).to_contain_text("<img src=x")
    named = {"name": f'"><img src=x onerror={ATTACK}>.svg', "mimeType": "image/svg+xml", "buffer": b"<svg onload='1'>"}
    await screen.page.locator("#file").set_input_files([named])  # type: ignore[arg-type]
    await expect(screen.page.locator("#send")).to_be_enabled()
    await screen.talk("a file")
    await screen.page.reload()
    await expect(screen.answers()).to_have_count(4)
    await screen.page.locator("#search").fill("pwned")
    await expect(screen.page.locator("#list .where")).to_contain_text("pwned")
    await screen.shot("hostile")
    assert await screen.page.locator("#items script, #items iframe, #items svg, #list img").count() == 0
    assert await screen.page.locator("#items a[href^='javascript'], #items [onerror], #items [onclick]").count() == 0
    await screen.unhurt()


@pytest.mark.prove
async def test_the_page_is_light(browser: Browser, gateway: Gateway, shots: Path) -> None:
    context = await browser.new_context()
    sizes: dict[str, int] = {}

    async def weigh(route: Any) -> None:
        answer = await route.fetch()
        sizes[route.request.url] = len(await answer.body())
        await route.fulfill(response=answer)

    for pattern in ("**/assets/*", "**/login"):
        await context.route(pattern, weigh)
    await enter(context, gateway, shots)
    home = len((ROOT / "src" / "everturn" / "web" / "page" / "index.html").read_bytes())
    assert len(sizes) > 10
    assert sum(sizes.values()) + home < MOST_BYTES
    await context.unroute_all(behavior="wait")  # a picture may still be on its way
    await context.close()
