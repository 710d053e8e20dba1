"""The page and the end of things: the gateway killed in the middle, stopped for a while, reloads, and two windows."""

from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from tests.browser.browsing import MARKS, Gateway, Screen, window

pytestmark = MARKS


async def test_a_kill_in_the_middle_of_a_stream_ends_in_the_same_message(gateway: Gateway, screen: Screen) -> None:
    await screen.say("slow")
    bubble = screen.answers().locator(".bubble")
    await expect(bubble).to_have_text("attempt 1: one two")
    await screen.answers().evaluate("(node) => { node.sameAsBefore = true; }")
    gateway.kill()
    await expect(screen.page.locator("#banner")).to_contain_text("Disconnected")
    await screen.shot("disconnected")
    gateway.start()
    await expect(bubble).to_have_text("attempt 2: one two")
    await expect(screen.page.locator("#banner")).to_be_hidden()
    await screen.shot("resumed")
    gateway.go.touch()
    await expect(bubble).to_have_text("attempt 2: one two three and done")
    assert await screen.answers().evaluate("(node) => node.sameAsBefore")
    await expect(screen.page.locator("li.user")).to_have_count(1)
    await expect(screen.said().locator(".status")).to_contain_text("answered")
    await screen.page.reload()
    await expect(bubble).to_have_text(["attempt 2: one two three and done"])
    await expect(screen.page.locator("li.user")).to_have_count(1)


@pytest.mark.prove
async def test_a_first_visit_can_be_reloaded_while_the_page_is_disconnected(gateway: Gateway, screen: Screen) -> None:
    page = screen.page
    await page.evaluate("async () => { await navigator.serviceWorker.ready; }")
    gateway.kill()
    await page.reload()
    await expect(page.locator("#banner")).to_contain_text("Disconnected")
    await screen.say("while down")
    gateway.start()
    await expect(screen.answers().last).to_contain_text("echo: while down")
    await screen.unhurt()


@pytest.mark.prove
async def test_what_is_written_while_disconnected_is_kept_over_a_reload_and_sent_once(
    gateway: Gateway, screen: Screen
) -> None:
    page = screen.page
    await screen.talk("before")
    await page.evaluate("async () => { await navigator.serviceWorker.ready; }")
    await page.reload()  # from now on the copy for reloads is in force
    await expect(screen.said()).to_contain_text("before")
    gateway.kill()
    await expect(page.locator("#banner")).to_contain_text("Disconnected")
    await screen.say("while down")
    await expect(screen.said().locator(".status")).to_contain_text("sending")
    await screen.text().fill("half a thou")
    await page.reload()
    await expect(page.locator("li.user .bubble")).to_have_text(["before", "while down"])
    await expect(screen.text()).to_have_value("half a thou")
    await screen.shot("reloaded-while-disconnected")
    gateway.start()
    await expect(screen.answers().last).to_contain_text("echo: while down")
    await expect(page.locator("li.user")).to_have_count(2)
    await expect(screen.text()).to_have_value("half a thou")
    await expect(screen.answers()).to_have_count(2)


@pytest.mark.prove
async def test_a_lost_network_is_noticed_by_what_cannot_be_sent(screen: Screen) -> None:
    await screen.talk("before")
    await screen.page.context.set_offline(True)
    await screen.say("in a tunnel")
    await expect(screen.said().locator(".status")).to_contain_text("sending")
    await screen.page.context.set_offline(False)
    await expect(screen.answers().last).to_contain_text("echo: in a tunnel")
    await expect(screen.page.locator("li.user")).to_have_count(2)


@pytest.mark.prove
async def test_two_windows_stay_in_step(gateway: Gateway, screen: Screen, shots: Path) -> None:
    other = await window(screen.page.context, shots)
    await other.page.goto(screen.page.url)
    await screen.say("slow")
    await expect(other.answers().locator(".bubble")).to_have_text("attempt 1: one two")
    await other.say("from the other")
    await expect(screen.said()).to_contain_text("from the other")
    gateway.go.touch()
    for each in (screen, other):
        await expect(each.page.locator("li.user")).to_have_count(2)
        await expect(each.page.locator("#items")).to_contain_text("three and done")
        await expect(each.said(0).locator(".status")).to_contain_text("answered")
    await other.page.locator("#new").click()
    await other.talk("another conversation")
    await expect(screen.page.locator("#list .name").first).to_contain_text("another conversation")


@pytest.mark.prove
async def test_two_devices_stay_in_step(browser: Browser, gateway: Gateway, screen: Screen, shots: Path) -> None:
    await screen.talk("on the first")
    context = await browser.new_context()
    device = await window(context, shots)
    await device.page.goto(gateway.link())
    await expect(device.said()).to_contain_text("on the first")
    await device.talk("on the second")
    await expect(screen.said()).to_contain_text("on the second")
    await context.close()


@pytest.mark.prove
async def test_a_suspended_conversation_is_resumed_with_a_button(gateway: Gateway, screen: Screen) -> None:
    await screen.talk("before")
    await screen.say("die")
    for serves in (False, False, True):  # what resumes may end the process before it listens
        gateway.died()
        gateway.start(serves=serves)
    card = screen.page.locator("#suspended")
    await expect(card).to_contain_text("suspended")
    await expect(screen.page.locator("#list .state")).to_have_text("suspended")
    await screen.shot("suspended")
    await card.get_by_role("button", name="Resume").click()
    await expect(card).to_be_hidden()
    await expect(screen.said(0)).to_contain_text("before")
    await screen.talk("go on")


@pytest.mark.prove
async def test_a_conversation_that_was_reset_does_not_mix_with_the_one_before(gateway: Gateway, screen: Screen) -> None:
    await screen.talk("old words")
    await screen.talk("more old words")
    await screen.say("/new")
    await expect(screen.page.locator("li.user")).to_have_count(0)
    await screen.talk("new words")
    await expect(screen.page.locator("li.user .bubble")).to_have_text(["new words"])
    await screen.say("/resume 1")
    await expect(screen.page.locator("li.user .bubble")).to_have_text(["old words", "more old words"])
