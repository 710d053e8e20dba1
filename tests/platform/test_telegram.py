"""Telegram: what it says becomes what the gateway hears, and what we say appears there."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from everturn.errors import Refused, TryLater
from everturn.model import Attachment, Heard, Inbound, SessionSource
from everturn.platform import interface
from everturn.platform.interface import Choice, Outgoing
from everturn.platform.telegram import TelegramPlatform
from everturn.platform.telegram.adapter import menu
from everturn.testing_telegram import BOT_ID, TOKEN, group, topic, upgrade
from tests.contracts.telegram import TelegramDriver


@pytest.fixture
async def driver() -> AsyncIterator[TelegramDriver]:
    async with TelegramDriver() as driver:
        yield driver


async def heard(platform: TelegramPlatform, count: int) -> list[Inbound]:
    """So many, each acknowledged but the last."""
    found: list[Inbound] = []
    reading = platform.inbound(None)
    async with asyncio.timeout(20):
        while len(found) < count:
            found.append(await anext(reading))
    await reading.aclose()
    return found


ABILITIES = (
    "CanPull", "CanSend", "CanEdit", "CanType", "CanReact", "CanAsk", "CanSendFiles", "CanFetch", "CanClose", "CanTellContact",
)  # fmt: skip


async def test_it_can_what_telegram_can(driver: TelegramDriver) -> None:
    platform = driver.connected()
    assert [each for each in ABILITIES if not isinstance(platform, getattr(interface, each))] == []
    assert {"new", "stop", "help"} <= {each.command for each in menu()}


async def test_a_direct_message_has_its_place_and_its_time(driver: TelegramDriver) -> None:
    ann = driver.person("Ann")
    number = ann.says("hello")
    (found,) = await heard(driver.connected(), 1)
    source = found.source
    assert (found.id, found.text, found.what) == (f"{number}@{ann.id}", "hello", Heard.SAID)
    assert (source.platform, source.account, source.chat_id, source.chat_type) == (
        "telegram",
        str(BOT_ID),
        str(ann.id),
        "dm",
    )
    assert (source.user_id, source.user_name, source.message_id) == (str(ann.id), "Ann", str(number))
    assert found.said_at == pytest.approx(driver.telegram.now(), abs=30)


async def test_in_a_group_only_what_is_said_to_us_is_heard(driver: TelegramDriver) -> None:
    ann, team = driver.person("Ann"), group(driver.telegram, "Team")
    platform = driver.connected(listening=False)
    place = SessionSource(platform="telegram", chat_id=str(team), chat_type="group")
    ours = int(await platform.send(place, "I am here", "1-0"))
    ann.says("not for you", chat=team)
    ann.says("@everturn_bot for you", chat=team)
    ann.says("/status@everturn_bot", chat=team)
    ann.says("and this", chat=team, reply_to=ours)
    found = await heard(platform, 3)
    assert [each.text for each in found] == ["for you", "/status", "and this"]
    assert {each.source.chat_name for each in found} == {"Team"}


async def test_topics_are_threads_and_replies_in_a_plain_group_are_not(driver: TelegramDriver) -> None:
    ann, forum = driver.person("Ann"), group(driver.telegram, "Forum", forum=True)
    plans, team = topic(driver.telegram, forum, "Plans"), group(driver.telegram, "Team")
    ann.says("in plans", chat=forum, thread=plans)
    ann.says("in general", chat=forum)
    first = ann.says("a thread begins", chat=team)
    second = ann.says("a reply", chat=team, reply_to=first)
    driver.telegram.state.rooms[team].messages[second]["message_thread_id"] = first
    platform = driver.connected()
    found = await heard(platform, 4)
    assert [each.source.thread_id for each in found] == [str(plans), None, None, None]
    await platform.send(found[0].source, "here", "1-0")
    assert driver.telegram.texts(forum, plans) == ["here"]


async def test_a_channel_post_is_said_by_the_channel(driver: TelegramDriver) -> None:
    news = group(driver.telegram, "News", "channel")
    driver.person("Ann").says("a post", chat=news)
    (found,) = await heard(driver.connected(), 1)
    assert (found.source.chat_type, found.source.user_id, found.source.user_name) == ("channel", str(news), "News")


async def test_an_edit_names_what_it_changes_and_every_edit_is_another(driver: TelegramDriver) -> None:
    ann = driver.person("Ann")
    number = ann.says("hello")
    ann.edits(number, "hello there")
    ann.edits(number, "hello all")
    said, *edits = await heard(driver.connected(), 3)
    assert [each.what for each in edits] == [Heard.EDITED, Heard.EDITED]
    assert {each.of for each in edits} == {said.id}
    assert len({each.id for each in edits}) == 2


async def test_files_come_as_attachments_and_can_be_fetched(driver: TelegramDriver) -> None:
    ann = driver.person("Ann")
    ann.sends_album([b"one photo here", b"two photos here"], "look")
    ann.sends_document(b"a,b", "t.csv", "text/csv")
    ann.sends_voice(b"ogg")
    ann.sends_sticker("😀")
    platform = driver.connected()
    found = await heard(platform, 5)
    kinds = [each.attachments[0].kind for each in found]
    assert kinds == ["image", "image", "document", "voice", "sticker"]
    assert [each.text for each in found] == ["look", "[image]", "[document: t.csv]", "[voice]", "[sticker: 😀]"]
    pieces = [piece async for piece in platform.fetch(found[1].attachments[0])]
    assert b"".join(pieces) == b"two photos here"
    with pytest.raises(Refused):
        await anext(platform.fetch(Attachment(kind="document", ref="x", size=30_000_000)))
    driver.telegram.fail("server", "file")
    with pytest.raises(TryLater):
        await anext(platform.fetch(found[2].attachments[0]))


async def test_a_button_is_a_command_and_is_answered_after_it_is_taken(driver: TelegramDriver) -> None:
    ann, platform = driver.person("Ann"), driver.connected()
    choices = [Choice("Yes", "/approve 7"), Choice("Long", "/approve " + "x" * 80)]
    number = int(await platform.ask(driver.place("Ann"), "May I?", choices, "1-0"))
    query = ann.presses(number, "Yes")
    reading = platform.inbound(None)
    press = await anext(reading)
    assert (press.text, press.source.user_id) == ("/approve 7", str(ann.id))
    assert driver.telegram.state.presses[query] is False
    next_one = asyncio.ensure_future(anext(reading))
    await driver.until(lambda: driver.telegram.state.presses[query])
    next_one.cancel()
    assert "/approve xxx" in driver.telegram.texts(ann.id)[0]


async def test_formatting_is_shown_and_falls_back_to_plain_text(driver: TelegramDriver) -> None:
    platform, place, telegram = driver.connected(), driver.place("Ann"), driver.telegram
    await platform.send(place, "**bold** & `code`", "1-0")
    assert [each["type"] for each in telegram.screen(int(place.chat_id or 0))[0]["entities"]] == ["bold", "code"]
    telegram.fail("error", "sendMessage", description="Bad Request: can't parse entities: on order")
    await platform.send(place, "**bold**", "2-0")
    assert driver.texts("Ann") == ["bold & code", "**bold**"]


async def test_a_group_that_became_a_supergroup_is_followed(driver: TelegramDriver) -> None:
    old = group(driver.telegram, "Team", "group")
    new = upgrade(driver.telegram, old)
    place = SessionSource(platform="telegram", chat_id=str(old), chat_type="group")
    platform = driver.connected()
    for text in ("first", "second"):
        await platform.send(place, text, f"{text}-0")
    assert driver.telegram.texts(new) == ["first", "second"]


async def test_files_are_sent_as_what_they_are(driver: TelegramDriver, tmp_path: Path) -> None:
    platform, place = driver.connected(), driver.place("Ann")
    for name, mime in (("a.png", "image/png"), ("a.ogg", "audio/ogg"), ("a.csv", "text/csv")):
        (tmp_path / name).write_bytes(b"content")
        await platform.send_file(place, Outgoing(tmp_path / name, name, mime, f"*{name}*"), "1-0")
    screen = driver.telegram.screen(int(place.chat_id or 0))
    assert [next(iter({"photo", "voice", "document"} & each.keys())) for each in screen] == [
        "photo",
        "voice",
        "document",
    ]
    assert driver.texts("Ann") == ["a.png", "a.ogg", "a.csv"]


async def test_ids_that_jump_lose_nothing(driver: TelegramDriver) -> None:
    """After a quiet week the next number may be lower than all before: an old offset must not confirm it."""
    ann, queue, platform = driver.person("Ann"), driver.telegram.queue, driver.connected(poll_s=1)
    reading = platform.inbound(None)
    ann.says("before")
    assert (await anext(reading)).text == "before"
    waiting = asyncio.ensure_future(anext(reading))
    await driver.until(lambda: queue.polls >= 3)  # one poll confirmed, and was empty
    queue.jump(5)
    ann.says("after")
    assert (await waiting).text == "after"
    await reading.aclose()


async def test_a_batch_in_disorder_is_heard_in_the_order_in_which_it_was_said(driver: TelegramDriver) -> None:
    for word in ("one", "two", "three"):
        driver.says(word)
    driver.telegram.queue.reorder = True
    assert [each.text for each in await heard(driver.connected(), 3)] == ["one", "two", "three"]


async def test_an_update_that_nobody_understands_holds_up_nothing(driver: TelegramDriver) -> None:
    driver.telegram.queue.add("message", {"message_id": "not a number", "chat": []})
    driver.telegram.queue.add("poll", {"id": "1"})
    driver.person("Ann").says("hello")
    (found,) = await heard(driver.connected(), 1)
    assert found.text == "hello"


async def test_a_revoked_token_is_told_with_its_remedy_and_never_shown(
    driver: TelegramDriver, capsys: pytest.CaptureFixture[str]
) -> None:
    platform = driver.connected()
    driver.telegram.state.revoked = True
    reading = asyncio.ensure_future(anext(platform.inbound(None)))
    with pytest.raises(Refused, match="BotFather"):
        await platform.send(driver.place(), "hello", "1-0")
    await driver.away()
    with pytest.raises(TryLater) as error:
        await platform.send(driver.place(), "hello", "1-0")
    reading.cancel()
    told = "".join([*capsys.readouterr(), str(error.value), str(platform.contact.trouble)])
    assert TOKEN not in told
    assert TOKEN.partition(":")[2] not in told


async def test_a_webhook_in_the_way_of_polling_is_removed_and_what_waits_is_kept(driver: TelegramDriver) -> None:
    async with httpx.AsyncClient() as client:
        await client.post(f"{driver.server.url}/bot{TOKEN}/setWebhook", json={"url": "http://127.0.0.1:9/nobody"})
    driver.says("hello")
    (found,) = await heard(driver.connected(), 1)
    assert found.text == "hello"
