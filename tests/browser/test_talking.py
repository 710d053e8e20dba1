"""Talking at the page: streams, tools, approval requests, files, and what a person does with a conversation."""

from pathlib import Path

from playwright.async_api import expect

from tests.browser.browsing import PROVE, Gateway, Screen

pytestmark = PROVE

PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6360f8cf50000000030101"
    "00c9fe92ef0000000049454e44ae426082"
)


async def test_an_answer_appears_as_it_is_streamed(gateway: Gateway, screen: Screen) -> None:
    await screen.say("slow please")
    bubble = screen.answers().locator(".bubble.live")
    await expect(bubble).to_have_text("attempt 1: one two")
    await expect(bubble.locator("strong")).to_have_text("two")
    await expect(screen.said().locator(".status")).to_contain_text("saved")
    await expect(screen.page.locator("#stop")).to_be_visible()
    await screen.shot("streaming")
    gateway.go.touch()
    await expect(screen.answers().locator(".bubble.answer")).to_have_text("attempt 1: one two three and done")
    await expect(screen.said().locator(".status")).to_contain_text("answered")
    await screen.unhurt()


async def test_tool_calls_are_quiet_lines_that_open(screen: Screen) -> None:
    await screen.talk("tool")
    call = screen.page.locator("details.call")
    await expect(call.locator("summary")).to_contain_text("done")
    await expect(call.locator(".call-body")).to_be_hidden()
    await call.locator("summary").click()
    await expect(call.locator(".call-body pre").last).to_contain_text("<script>")
    await screen.shot("tool")
    await screen.unhurt()


async def test_an_approval_request_is_answered_with_a_button(screen: Screen) -> None:
    await screen.say("ask")
    card = screen.page.locator(".approval")
    await expect(card).to_contain_text("run `make`? <script>")
    await screen.page.reload()
    await expect(card).to_be_visible()
    await screen.shot("approval_request")
    await card.get_by_role("button", name="Allow", exact=True).click()
    await expect(screen.answers().last).to_contain_text("the tool said: it is done")
    await expect(card).to_have_count(0)
    await screen.unhurt()


async def test_an_approval_request_can_be_denied(screen: Screen) -> None:
    await screen.say("ask")
    await screen.page.locator(".approval").get_by_role("button", name="Deny").click()
    await expect(screen.answers().last).to_contain_text("the tool said:")
    await expect(screen.answers().last).not_to_contain_text("it is done")


async def test_files_go_in_and_come_back(screen: Screen, tmp_path: Path) -> None:
    page = screen.page
    files = [
        {"name": "cat.png", "mimeType": "image/png", "buffer": PNG},
        {"name": "note.html", "mimeType": "text/html", "buffer": b"<script>1</script>"},
    ]
    await page.locator("#file").set_input_files(files)  # type: ignore[arg-type]
    await expect(page.locator(".chip")).to_have_count(2)
    await expect(page.locator("#send")).to_be_enabled()
    await screen.talk("look at these")
    picture = screen.answers().locator("img.picture")
    await expect(picture).to_have_js_property("naturalWidth", 1)
    async with page.expect_download() as saving:
        await screen.answers().locator("a.file").click()
    assert (await saving.value).suggested_filename == "note.html"
    await page.reload()
    await expect(screen.said().locator("img.picture")).to_have_js_property("naturalWidth", 1)
    await screen.unhurt()


async def test_the_last_message_is_changed_and_sent_again(screen: Screen) -> None:
    await screen.talk("first words")
    await screen.talk("wrong words")
    await screen.said().get_by_role("button", name="Edit").click()
    await expect(screen.text()).to_have_value("wrong words")
    await screen.say("right words")
    await expect(screen.answers().last).to_contain_text("echo: right words")
    await expect(screen.page.locator("li.user")).to_have_count(2)
    await screen.page.reload()
    await expect(screen.page.locator("li.user .bubble")).to_have_text(["first words", "right words"])


async def test_a_call_that_failed_is_seen_to_have_failed(screen: Screen) -> None:
    await screen.talk("fail")
    await expect(screen.page.locator(".call summary")).to_contain_text("failed")
    await expect(screen.page.locator(".call summary .dot.failed")).to_be_visible()


async def test_what_runs_is_stopped_and_what_it_had_said_stays(screen: Screen, gateway: Gateway) -> None:
    await screen.say("slow")
    await expect(screen.answers().locator(".live")).to_be_visible()
    await screen.page.locator("#stop").click()
    await expect(screen.said().locator(".status")).to_contain_text("stopped")
    await expect(screen.answers().locator(".bubble")).to_have_text("attempt 1: one two")
    await expect(screen.answers().locator(".foot")).to_contain_text("Stopped.")
    gateway.kill()
    gateway.start()
    await screen.page.reload()
    await expect(screen.answers().locator(".bubble")).to_have_text("attempt 1: one two")
    await expect(screen.answers().locator(".foot")).to_contain_text("Stopped.")
    await expect(screen.page.locator("li.command")).to_contain_text("Stopped.")
    await expect(screen.page.locator("#stop")).to_be_hidden()
    await screen.talk("go on")


async def test_conversations_are_listed_named_found_and_opened_again(screen: Screen) -> None:
    page = screen.page
    await screen.talk("the blue whale")
    await page.locator("#new").click()
    await screen.talk("a red fox")
    names = page.locator("#list .name")
    await expect(names).to_have_text(["a red fox", "the blue whale"])
    await page.locator("#rename").click()
    await page.locator("#rename-text").fill("Foxes <b>")
    await page.locator("#rename-text").press("Enter")
    await expect(page.locator("#title")).to_have_text("Foxes <b>")
    await expect(names.first).to_contain_text("Foxes")
    await page.locator("#search").fill("WHALE")
    await expect(names).to_have_text(["the blue whale"])
    await names.first.click()
    await expect(screen.said()).to_contain_text("the blue whale")
    await screen.shot("list")
    await screen.unhurt()


async def test_commands_complete(screen: Screen) -> None:
    await screen.text().type("/sta")
    await expect(screen.page.locator("#commands li")).to_have_count(1)
    await screen.text().press("Tab")
    await expect(screen.text()).to_have_value("/status ")
    await screen.text().press("Enter")
    await expect(screen.page.locator("li.command .command-answer")).not_to_be_empty()
    await screen.shot("command")


async def test_a_message_that_is_too_long_is_refused_with_a_reason_and_can_be_dropped(screen: Screen) -> None:
    await screen.text().evaluate("(box) => { box.value = 'x'.repeat(5 * 1024 * 1024); }")
    await screen.text().press("Enter")
    await expect(screen.said().locator(".status")).to_contain_text("not sent")
    await screen.said().get_by_role("button", name="Drop it").click()
    await expect(screen.page.locator("li.user")).to_have_count(0)
    await screen.talk("short")
    await screen.unhurt()


async def test_what_was_said_before_it_was_summed_up_is_shown_again(screen: Screen) -> None:
    page = screen.page
    await screen.talk("first")
    await screen.talk("second")
    await screen.say("sum up")
    await expect(page.locator("li.summary")).to_contain_text("Summary")
    await expect(screen.said(0)).not_to_contain_text("first")
    await page.locator("#earlier").click()
    await expect(page.locator("li.user .bubble")).to_have_text(["first", "second", "sum up"])
    await expect(page.locator("#earlier")).to_be_hidden()
    await screen.talk("third")
    await expect(page.locator("li.user .bubble")).to_have_text(["first", "second", "sum up", "third"])
    await screen.shot("summed-up")
