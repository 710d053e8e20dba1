"""The operations page: finding what went wrong and putting it right, over refreshes, crashes and hostile text."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, Page, expect

from everturn.errors import OutcomeUnknown, Refused
from everturn.outbox.rules.delivery import MAY_REPEAT, Surety
from everturn.people.rules.access import PAIR, AccessPolicy, Admission
from everturn.testing import SendFault
from tests.browser.browsing import MARKS, Gateway, Screen, serious, window
from tests.browser.operating import ASKING, ATTACK, Operations, operations

pytestmark = MARKS

MOST_BYTES = 90_000
VIEWS = ("Conversations", "Messages", "Metrics", "People", "Find a message", "Now")
BLOCKED = SendFault(Refused("the bot was blocked by the user"))
LOST = SendFault(OutcomeUnknown("the line was cut"), accepted=True)


async def test_a_dead_letter_is_found_understood_and_sent_again(browser: Browser, tmp_path: Path, shots: Path) -> None:
    async with operations(browser, tmp_path, [BLOCKED, BLOCKED], shots=shots) as ops:
        await expect(ops.status).to_contain_text("All well")
        ops.people.say("7", "hello", user_name="Ann")
        await expect(ops.status).to_have_text("1 reply was not delivered.")
        await expect(ops.row("Ann")).to_contain_text("blocked by the user")
        await ops.row("Ann").get_by_role("link", name="Timeline").click()
        await expect(ops.screen.page.locator(".verdict")).to_contain_text("not delivered")
        await expect(ops.screen.page.locator(".timeline li.trouble")).to_contain_text("blocked by the user")
        await ops.screen.shot("ops-timeline")
        await ops.look("Messages")  # opens where something is
        await expect(ops.screen.page.locator("#message-states [aria-current]")).to_have_attribute("data-count", "1")
        await ops.press("Ann", "Send again")
        await expect(ops.said).to_have_text("The reply to Ann was sent again, and not delivered.")
        await expect(ops.row("Ann")).to_contain_text(
            re.compile("Sent again at .*, refused again: .*blocked by the user")
        )
        await ops.press("Ann", "Send again")
        await expect(ops.said).to_have_text("The reply to Ann is being sent.")
        await expect(ops.status).to_contain_text("All well")
        await ops.look("Now")
        await expect(ops.said).to_be_empty()
        await expect(ops.screen.page.get_by_role("heading", name="Needs attention")).to_be_hidden()
        await ops.people.until(lambda: ops.people.texts("7") == ["echo: hello"])
        await ops.screen.unhurt()


@pytest.mark.prove
async def test_the_owner_decides_about_replies_whose_delivery_is_unknown(browser: Browser, tmp_path: Path) -> None:
    async with operations(browser, tmp_path, [LOST, None, LOST, None, LOST], Surety.NEITHER) as ops:
        for name in ("Ann", "Bob", "Cem"):
            ops.people.say(name, f"hello from {name}", user_name=name)
            await ops.seen(name, 2)  # the chat is asked as well
        await expect(ops.status).to_have_text("The delivery of 3 replies is unknown.")
        await ops.press("Ann", "It arrived")
        await expect(ops.row("Ann")).to_be_hidden()
        await ops.press("Bob", "Send again, marked")
        await expect(ops.row("Bob")).to_be_hidden()
        await ops.press("Cem", "Drop")
        await expect(ops.row("Cem").locator("tr.more td[colspan='5']")).to_contain_text("It leaves this list")
        await ops.press("Cem", "Keep it")
        await ops.press("Cem", "Drop")
        await ops.press("Cem", "Drop it")  # the last one: its heading goes with it
        await expect(ops.screen.page.get_by_role("heading", name="Needs attention")).to_be_hidden()
        await expect(ops.status).to_contain_text("All well")
        await ops.seen("Bob", 3)
        assert [len(ops.people.texts(name)) for name in ("Ann", "Bob", "Cem")] == [2, 3, 2]
        assert ops.people.texts("Bob")[-1].endswith(MAY_REPEAT)


@pytest.mark.prove
async def test_with_the_keyboard_alone_a_conversation_is_suspended_and_resumed(
    browser: Browser, tmp_path: Path
) -> None:
    async with operations(browser, tmp_path) as ops:
        ops.people.say("7", "hello", user_name="Ann")
        await ops.people.until(lambda: ops.people.texts("7") == ["echo: hello"])
        await tab_to(ops, "Conversations")
        await expect(ops.row("Ann")).to_be_visible()
        await tab_to(ops, "Suspend: “hello” (Ann)")
        await expect(ops.row("Ann").get_by_role("button", name="Cancel")).to_be_focused()
        await ops.screen.page.keyboard.press("Escape")
        await expect(ops.row("Ann").get_by_role("button", name="Suspend")).to_be_focused()
        await ops.screen.page.keyboard.press("Enter")
        await expect(ops.row("Ann").get_by_role("button", name="Cancel")).to_be_focused()
        await ops.screen.page.keyboard.press("Shift+Tab")
        await ops.screen.page.keyboard.press("Enter")
        await expect(ops.status).to_have_text("1 conversation is suspended.")
        await tab_to(ops, "Resume: “hello” (Ann)")
        await expect(ops.said).to_contain_text("“hello” (Ann): The conversation")
        await expect(ops.row("Ann").get_by_role("button", name="Resume now")).to_have_count(0)
        await expect(ops.status).to_contain_text("All well")
        ops.people.say("7", "again", user_name="Ann")
        await ops.people.until(lambda: "echo: again" in ops.people.texts("7"))


async def tab_to(ops: Operations, name: str) -> None:
    """Press Tab until the link or button of this name has the focus, then Enter, as a person would."""
    said = "() => document.activeElement.getAttribute('aria-label') ?? document.activeElement.textContent"
    for _ in range(40):
        if await ops.screen.page.evaluate(said) == name:
            return await ops.screen.page.keyboard.press("Enter")
        await ops.screen.page.keyboard.press("Tab")
    raise AssertionError(f"{name!r} cannot be reached with the keyboard")


@pytest.mark.prove
async def test_the_focus_stays_where_it_is_when_the_lists_are_read_again(browser: Browser, tmp_path: Path) -> None:
    async with operations(browser, tmp_path, [BLOCKED] * 3) as ops:
        for name in ("Ann", "Bob"):
            ops.people.say(name, "hello", user_name=name)
        await expect(ops.status).to_contain_text("2 replies")
        button = ops.row("Bob").get_by_role("button", name="Send again")
        await button.focus()
        await button.evaluate("(node) => { node.sameAsBefore = true; }")
        ops.people.say("Cem", "hello", user_name="Cem")
        await expect(ops.row("Cem")).to_be_visible()
        await expect(button).to_be_focused()
        assert await button.evaluate("(node) => node.sameAsBefore")
        await button.press("Enter")
        await expect(ops.row("Bob")).to_be_hidden()
        assert await ops.screen.page.evaluate("() => document.activeElement.closest('table, section') !== null")


@pytest.mark.prove
async def test_why_a_message_got_no_answer_is_one_step_from_the_chat(browser: Browser, tmp_path: Path) -> None:
    async with operations(browser, tmp_path) as ops:
        await ops.screen.page.get_by_role("link", name="Chat").click()
        await expect(ops.screen.page.locator("#welcome")).to_be_visible()
        await ops.screen.say("fail please")
        await expect(ops.screen.said().locator(".status")).to_contain_text("not answered")
        await ops.screen.said().get_by_role("link", name="Timeline").click()
        await expect(ops.screen.page.locator(".verdict")).to_contain_text(
            "No answer: the message failed: RuntimeError: the oven"
        )
        await expect(ops.screen.page.locator(".timeline li.trouble").first).to_be_visible()
        await ops.screen.page.get_by_role("link", name="Chat").click()
        await expect(ops.screen.page.get_by_role("link", name="Operations 1 needs attention")).to_be_visible()
        await ops.screen.unhurt()


@pytest.mark.prove
async def test_a_kill_is_shown_and_survived_and_an_action_requested_meanwhile_is_done_once(
    gateway: Gateway, screen: Screen, shots: Path
) -> None:
    await screen.say("slow")
    await expect(screen.answers().locator(".live")).to_be_visible()  # from now on it is resumed
    await screen.page.evaluate("async () => { await navigator.serviceWorker.ready; }")  # it serves what is opened next
    ops = await window(screen.page.context, shots)
    await ops.page.goto(f"{gateway.url}/ops")
    row = ops.page.locator("#turns tbody tr")
    await expect(row).to_contain_text("web")
    gateway.kill()
    await expect(ops.page.locator("#banner")).to_contain_text("Last known state")
    await row.get_by_role("button", name="Stop").click()
    await row.get_by_role("button", name="Stop it").click()
    await expect(row).to_contain_text("not yet done")
    await ops.shot("ops-disconnected")
    await ops.page.reload()  # the requested action is kept, too
    await expect(ops.page.locator("#status")).to_have_text("Disconnected from the gateway.")
    gateway.start()
    await expect(ops.page.locator("#banner")).to_be_hidden()
    await expect(ops.page.locator("#recoveries li").first).to_contain_text("killed or crashed, ready after")
    await expect(row).to_have_count(0)
    await expect(screen.said().locator(".status")).to_contain_text("stopped")
    assert ops.errors == []


PAIRING = replace(ASKING, admission=Admission(policies={"people": AccessPolicy(unknown=PAIR)}))


@pytest.mark.prove
async def test_an_access_request_is_approved_and_revoked_with_the_keyboard(browser: Browser, tmp_path: Path) -> None:
    async with operations(browser, tmp_path, settings=PAIRING) as ops:
        for name in ("Ann", "Bob"):
            ops.people.say(name, "hello", user_id=name, user_name=f"{name} {ATTACK}")
        await expect(ops.screen.page.locator("nav [data-view=people]")).to_have_attribute("data-count", "2")
        await ops.look("People")
        await expect(ops.row("Ann")).to_be_visible()
        await tab_to(ops, f"Approve: Ann {ATTACK}")
        await expect(ops.said).to_contain_text("They may speak now")
        await ops.people.until(lambda: any("You are approved" in text for text in ops.people.texts("Ann")))
        await ops.seen("Bob", 1)
        code = ops.people.texts("Bob")[0].partition("pair approve ")[2][:8]
        await ops.screen.page.get_by_label("Pairing code").fill(code.lower())
        await ops.screen.page.keyboard.press("Enter")
        await expect(ops.screen.page.locator("#known tbody")).to_have_count(2)
        await expect(ops.screen.page.get_by_text("No access request is open.")).to_be_visible()
        ops.people.say("Ann", "wait for me", user_id="Ann")
        await ops.press("Ann", "Revoke")
        await ops.press("Ann", "Revoke access")
        await expect(ops.row("Ann")).to_contain_text("revoked")
        await expect(ops.screen.page.locator("#by-settings")).to_have_text(
            "people: nobody is named; strangers get a pairing code."
        )
        await ops.screen.unhurt()


async def fill(ops: Operations) -> None:
    """One of everything, with hostile names and texts."""
    ops.people.say(
        "7", f"hello {ATTACK}", user_name=f"Ann {ATTACK}", chat_name="</table><script>window.pwned=1</script>"
    )
    await expect(ops.status).to_contain_text("not delivered")
    ops.people.say("8", "fail", user_name="Bob")
    ops.people.say("9", f"wait {ATTACK}", user_name="Cem")
    await expect(ops.screen.page.locator("#turns tbody tr")).to_have_count(1)


PHONE = {"viewport": {"width": 390, "height": 780}, "is_mobile": True, "has_touch": True, "color_scheme": "dark"}
DESK = {"viewport": {"width": 1280, "height": 900}, "color_scheme": "light"}


@pytest.mark.prove
@pytest.mark.parametrize(("name", "device"), [("desktop", DESK), ("phone", PHONE)])
async def test_everybody_can_use_it_and_hostile_text_is_text(
    browser: Browser, tmp_path: Path, shots: Path, name: str, device: dict[str, Any]
) -> None:
    async with operations(browser, tmp_path, [BLOCKED], shots=shots, reduced_motion="reduce", **device) as ops:
        await fill(ops)
        page = ops.screen.page
        for view in VIEWS:
            await ops.look(view)
            await expect(page.locator("nav [aria-current=page]")).to_have_text(view)
            await expect(page.locator("#view[aria-busy=false]")).to_be_visible()
            await ops.screen.shot(f"ops-{view.split()[0].lower()}-{name}")
            assert (name == "phone" and view not in {"Now", "Metrics"}) or await serious(page) == []
            assert await page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
        assert await page.locator("main script, main iframe, main img").count() == 0
        await ops.screen.unhurt()


@pytest.mark.prove
async def test_the_charts_speak_to_the_keyboard_and_have_a_table_and_all_is_light(
    browser: Browser, tmp_path: Path
) -> None:
    async with operations(browser, tmp_path) as ops:
        ops.people.say("7", "hello")
        await ops.people.until(lambda: ops.people.texts("7") == ["echo: hello"])
        assert await weight(ops.screen.page) < MOST_BYTES  # without the charts, which come when they are looked at
        await ops.look("Metrics")
        await expect(ops.screen.page.locator("#total")).to_contain_text("1 turn, 1 answered")
        chart = ops.screen.page.get_by_role("slider", name="Turns")
        await chart.focus()
        if "answered 0" in str(await chart.get_attribute("aria-valuetext")):
            await chart.press("ArrowLeft")  # a new quarter of an hour has begun since
        await expect(chart).to_have_attribute("aria-valuetext", re.compile("answered 1, stopped 0, failed 0"))
        await expect(ops.screen.page.locator(".chart .tip").first).to_contain_text("answered: 1")
        await chart.press("ArrowLeft")
        await expect(ops.screen.page.locator(".chart .tip").first).to_contain_text("answered: 0")
        await ops.screen.page.locator(".chart summary").first.click()
        await expect(
            ops.screen.page.locator(".chart table").first.get_by_role("cell", name="1", exact=True)
        ).to_be_visible()


async def weight(page: Page) -> int:
    """The bytes of all that the page is made of; fetched, as what the browser had kept has no size there."""
    sizes: list[int] = await page.evaluate(
        "() => Promise.all([...new Set(['/ops', ...performance.getEntriesByType('resource').map((each) => each.name)])]"
        ".filter((name) => !name.includes('/api/')).map(async (name) => (await (await fetch(name)).arrayBuffer()).byteLength))"
    )
    assert len(sizes) > 10
    return sum(sizes)
