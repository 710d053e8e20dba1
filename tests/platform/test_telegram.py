"""Telegram: its updates become messages for the gateway, and our messages appear there."""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from msgspec.structs import replace as replace_in

from everturn.errors import OutcomeUnknown, Refused, TryLater
from everturn.home.files import Media
from everturn.http_client import trusted
from everturn.inbox.rules import in_reply
from everturn.model import Attachment, Heard, Inbound, SessionSource
from everturn.outbox.rules.text import utf16
from everturn.people.rules.rights import ChatRights, Rights
from everturn.platform import interface
from everturn.platform.interface import Choice, Contact, Outgoing
from everturn.platform.telegram import TelegramPlatform
from everturn.platform.telegram.wire import WANTED, done
from everturn.testing import ManualClock, ScriptedAgent, World
from everturn.testing.platform import Pauses
from everturn.testing.telegram import BOT_ID, TOKEN, group, topic, upgrade
from everturn.turns.rules import turn_texts
from tests.contracts.platform import MARKED_CALLS
from tests.contracts.telegram import TelegramDriver
from tests.crash.streaming import WITH_FILES, FastClock
from tests.scenes import while_time_passes
from tests.waiting import WAIT_S, within


@pytest.fixture
async def driver() -> AsyncIterator[TelegramDriver]:
    async with TelegramDriver() as driver:
        yield driver


async def heard(platform: TelegramPlatform, count: int) -> list[Inbound]:
    """So many, each acknowledged but the last."""
    found: list[Inbound] = []
    reading = platform.inbound(None)
    async with within(WAIT_S, lambda: found):
        while len(found) < count:
            found.append(await anext(reading))
    await reading.aclose()
    return found


ABILITIES = (
    "CanPull", "CanSend", "CanEdit", "CanType", "CanReact", "CanAsk", "CanSendFiles", "CanFetch", "CanClose", "CanTellContact",
    "CanDelete", "HasCredential",
)  # fmt: skip


async def test_it_can_what_telegram_can(driver: TelegramDriver) -> None:
    platform = driver.connected()
    assert [each for each in ABILITIES if not isinstance(platform, getattr(interface, each))] == []


async def test_each_is_offered_the_commands_that_they_may_use(driver: TelegramDriver) -> None:
    """Made from the registry and the rights, at every start, as soon as Telegram allows; a menu for somebody who never wrote
    is not worth an error.
    """
    ann = driver.person("Ann")
    scope = ChatRights(admins=("999",), commands=("status",))
    rights = Rights(owners=(f"telegram:{ann.id}", "telegram:555", "api:1"), scopes={"telegram:group": scope})
    ann.says("hello")
    driver.telegram.fail("flood", "setMyCommands", retry_after=1)
    reading = driver.connected(rights=rights, clock=FastClock(time.time(), 1000), poll_s=0).inbound(None)
    assert (await anext(reading)).text == "hello"  # nobody waits for the menus
    waiting = asyncio.ensure_future(anext(reading))
    commands = driver.telegram.state.commands
    await driver.until(lambda: f"chat {ann.id}" in commands)
    waiting.cancel()
    offered = {scope: {each["command"] for each in menu} for scope, menu in commands.items()}
    assert {"help", "status"} <= offered["default"]
    assert "new" not in offered["default"]
    assert {"new", "stop"} <= offered["all_private_chats"] < offered[f"chat {ann.id}"]
    assert offered.keys() == {"default", "all_private_chats", f"chat {ann.id}"}


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
    assert [each.text for each in found] == ["for you", "/status", in_reply("and this", "I am here", None)]
    assert {each.source.chat_name for each in found} == {"Team"}


async def test_who_answers_somebody_else_and_names_us_tells_what_it_is_about(driver: TelegramDriver) -> None:
    """Also the picture beneath which they ask; a command says what it means by itself."""
    ann, bob, team = driver.person("Ann"), driver.person("Bob"), group(driver.telegram, "Team")
    theirs = bob.says("guten Tag, wie geht es?", chat=team)
    ann.says("@everturn_bot translate", chat=team, reply_to=theirs)
    ann.says("/status@everturn_bot", chat=team, reply_to=theirs)
    picture = bob.sends_photo(b"a photo here", chat=team)
    ann.says("@everturn_bot what is this?", chat=team, reply_to=picture)
    ann.says("/status@everturn_bot", chat=team, reply_to=picture)
    found = await heard(driver.connected(listening=False), 4)
    assert [each.text for each in found] == [
        in_reply("translate", "guten Tag, wie geht es?", "Bob"),
        "/status",
        in_reply("what is this?", "[image]", "Bob"),
        "/status",
    ]
    assert [len(each.attachments) for each in found] == [0, 0, 1, 0]


async def test_topics_are_threads_and_replies_in_a_plain_group_are_not(driver: TelegramDriver) -> None:
    ann, forum = driver.person("Ann"), group(driver.telegram, "Forum", forum=True)
    plans, team = topic(driver.telegram, forum, "Plans"), group(driver.telegram, "Team")
    ann.says("in plans", chat=forum, thread=plans)
    ann.says("in general", chat=forum)
    first = ann.says("a thread begins", chat=team)
    ann.says("a reply", chat=team, reply_to=first)
    platform = driver.connected()
    found = await heard(platform, 4)
    assert driver.telegram.screen(team)[-1]["message_thread_id"] == first
    assert [each.source.thread_id for each in found] == [str(plans), None, None, None]
    assert [each.source.chat_topic for each in found] == ["Plans", None, None, None]
    assert [each.text for each in found[:2]] == ["in plans", "in general"]
    await platform.send(found[0].source, "here", "1-0")
    assert driver.telegram.texts(forum, plans) == ["here"]


async def test_a_channel_post_is_said_by_the_channel(driver: TelegramDriver) -> None:
    news = group(driver.telegram, "News", "channel")
    ann = driver.person("Ann")
    ann.edits(ann.says("a post", chat=news), "a better post", chat=news)
    found, edit = await heard(driver.connected(), 2)
    assert (found.text, edit.what, edit.of) == ("a better post", Heard.EDITED, found.id)
    assert (found.source.chat_type, found.source.user_id, found.source.user_name) == ("channel", str(news), "News")


async def test_an_edit_names_what_it_changes_and_every_edit_is_another(driver: TelegramDriver) -> None:
    ann = driver.person("Ann")
    number = ann.says("hello")
    ann.edits(number, "hello there")
    ann.edits(number, "hello all")
    said, *edits = await heard(driver.connected(), 3)
    assert (said.what, said.text) == (Heard.SAID, "hello all")
    assert [each.what for each in edits] == [Heard.EDITED, Heard.EDITED]
    assert {each.of for each in edits} == {said.id}
    assert len({each.id for each in edits}) == 2


async def test_an_edit_without_our_name_still_changes_what_was_said_to_us(driver: TelegramDriver) -> None:
    ann, team, platform = driver.person("Ann"), group(driver.telegram, "Team"), driver.connected(listening=False)
    place = SessionSource(platform="telegram", chat_id=str(team), chat_type="group")
    ours = int(await platform.send(place, "I am here", "1-0"))
    named = ann.says("@everturn_bot red", chat=team)
    reply = ann.says("green", chat=team, reply_to=ours)
    ann.edits(named, "blue", chat=team)
    ann.edits(reply, "white", chat=team)
    found = await heard(platform, 4)
    assert [each.text for each in found] == ["blue", in_reply("white", "I am here", None)] * 2
    assert [each.of for each in found] == [None, None, f"{named}@{team}", f"{reply}@{team}"]


async def test_fetching_a_file_reads_no_list_of_whom_to_trust_again(driver: TelegramDriver) -> None:
    """All others would wait for a tenth of a second at every file."""
    driver.person("Ann").sends_document(b"a,b", "t.csv", "text/csv")
    platform, asked = driver.connected(), [trusted.cache_info()]
    (found,) = await heard(platform, 1)
    for _ in range(2):
        assert [piece async for piece in platform.fetch(found.attachments[0])] == [b"a,b"]
        asked.append(trusted.cache_info())
    before, first, second = asked
    assert (first.hits + first.misses, second.hits) == (before.hits + before.misses + 1, first.hits + 1)
    assert second.misses == first.misses


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
    assert found[0].album == found[1].album is not None
    sticker, voice = found[4].attachments[0], found[3].attachments[0]
    assert (sticker.unique != "", sticker.family, sticker.moving, voice.seconds) == (True, "things", False, 1)
    for ref, size, why in (("x", 30_000_000, "20 MB"), ("x", 0, "does not have the file any more")):
        with pytest.raises(Refused, match=why):
            await anext(platform.fetch(Attachment(kind="document", ref=ref, size=size)))
    driver.telegram.fail("server", "file")
    with pytest.raises(TryLater):
        await anext(platform.fetch(found[2].attachments[0]))


async def test_an_album_is_answered_once_whatever_becomes_of_its_photos(driver: TelegramDriver, tmp_path: Path) -> None:
    ann, png = driver.person("Ann"), b"\x89PNG\r\n\x1a\n"
    driver.telegram.fail("reset", "file")
    driver.telegram.fail("flood", "getFile", retry_after=1)
    ann.sends_album([png + b"first", png + b"second"], "look")
    ann.sends_document(b"x" * 20_000_001, "film.bin", "video/mp4")
    url, media = f"sqlite:///{tmp_path / 'everturn.db'}", Media(tmp_path / "files")
    clock, platform = ManualClock(time.time()), driver.connected()
    async with World(url, ScriptedAgent(), [platform], clock, WITH_FILES, media=media) as world:
        await driver.until(lambda: driver.acknowledged() == 3)
        answered = driver.until(lambda: any("film.bin did not arrive" in each for each in driver.texts("Ann")))
        await while_time_passes(world, answered)
    answers = [each for each in driver.texts("Ann") if each.startswith("echo:")]
    assert len(answers) == 2
    assert answers[0].count("image/png") == 2
    (told,) = [each for each in driver.texts("Ann") if each.startswith("I did not get")]
    assert told == (
        "I did not get film.bin (the file is larger than the 20 MB that Telegram lets a bot download). I answer without it."
    )
    assert len(list((tmp_path / "files").iterdir())) == 2


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


@pytest.mark.parametrize("call", MARKED_CALLS)
async def test_a_question_shows_the_call_exactly(driver: TelegramDriver, call: str) -> None:
    """Markup is not read in it: `[the docs](https://...)` would hide what else the command does."""
    ann, platform = driver.person("Ann"), driver.connected()
    ask = turn_texts.request("run_command", call, 7, 60, approvers=False)
    number = int(await platform.ask(driver.place("Ann"), ask, [Choice("Yes", "/approve 7")], "1-0"))
    (shown,) = (each for each in driver.telegram.screen(ann.id) if each["message_id"] == number)
    assert shown["text"].splitlines()[2] == call
    (style,) = shown["entities"]
    assert (style["type"], style["length"]) == ("code", utf16(call))


async def test_the_next_message_does_not_wait_until_a_press_is_answered(driver: TelegramDriver) -> None:
    ann, platform = driver.person("Ann"), driver.connected()
    number = int(await platform.ask(driver.place("Ann"), "May I?", [Choice("Yes", "/approve 7")], "1-0"))
    driver.telegram.fail("slow", "answerCallbackQuery", seconds=600)
    ann.presses(number, "Yes")
    ann.says("hello")
    assert [each.text for each in await heard(platform, 2)] == ["/approve 7", "hello"]
    await driver.until(lambda: driver.telegram.called_with("answerCallbackQuery"))
    await platform.close_connections()  # and nothing of it is left


async def test_an_answered_poll_counts_also_when_nothing_was_said(driver: TelegramDriver) -> None:
    """By that the gateway knows that single failures are no row of failures."""
    platform = driver.connected(poll_s=0)
    for _ in range(3):
        before = platform.contact.answers
        reading = asyncio.ensure_future(anext(platform.inbound(None)))
        await driver.until(lambda before=before: platform.contact.answers > before)  # type: ignore[misc]
        driver.telegram.fail("server", "getUpdates")
        with pytest.raises(OutcomeUnknown):
            await reading


async def test_formatting_is_shown_and_falls_back_to_plain_text(driver: TelegramDriver) -> None:
    platform, place, telegram = driver.connected(), driver.place("Ann"), driver.telegram
    await platform.send(place, "**bold** & `code`", "1-0")
    assert [each["type"] for each in telegram.screen(int(place.chat_id or 0))[0]["entities"]] == ["bold", "code"]
    telegram.fail("error", "sendMessage", description="Bad Request: can't parse entities: on order")
    await platform.send(place, "**bold**", "2-0")
    assert driver.texts("Ann") == ["bold & code", "**bold**"]


async def test_what_is_nothing_but_marks_is_shown_as_it_is(driver: TelegramDriver) -> None:
    """A preview that ends where a block of code begins, and an answer that is an empty one."""
    platform, place = driver.connected(), driver.place("Ann")
    number = await platform.send(place, "```\n```", "1-0")
    assert driver.texts("Ann") == ["```\n```"]
    await platform.edit(place, number, "```python ▌\n```")
    assert driver.texts("Ann") == ["```python ▌\n```"]


async def test_plain_text_is_sent_to_a_group_that_moved_in_either_order(driver: TelegramDriver) -> None:
    old = group(driver.telegram, "Team", "group")
    new = upgrade(driver.telegram, old)
    unparsed = {"kind": "error", "description": "Bad Request: can't parse entities: on order"}
    driver.telegram.fail(method="sendMessage", **unparsed)
    place, platform = SessionSource(platform="telegram", chat_id=str(old), chat_type="group"), driver.connected()
    await platform.send(place, "**first**", "1-0")
    driver.telegram.fail(method="sendMessage", **unparsed)
    await platform.send(place, "**second**", "2-0")
    assert driver.telegram.texts(new) == ["**first**", "**second**"]


async def test_a_group_that_became_a_supergroup_is_followed(driver: TelegramDriver) -> None:
    old = group(driver.telegram, "Team", "group")
    new = upgrade(driver.telegram, old)
    place = SessionSource(platform="telegram", chat_id=str(old), chat_type="group")
    platform = driver.connected()
    for text in ("first", "second"):
        await platform.send(place, text, f"{text}-0")
    assert driver.telegram.texts(new) == ["first", "second"]
    moves = await heard(platform, 3)  # as the error said, in the old chat, in the new one
    assert {(each.what, each.of, each.source.chat_id) for each in moves} == {(Heard.MOVED, str(old), str(new))}


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


async def test_what_is_no_picture_for_telegram_or_no_voice_for_a_person_comes_as_a_document(
    driver: TelegramDriver, tmp_path: Path
) -> None:
    platform, place, telegram = driver.connected(), driver.place("Ann"), driver.telegram
    telegram.fail("error", "sendPhoto", description="Bad Request: PHOTO_INVALID_DIMENSIONS")
    telegram.fail("error", "sendVoice", description="Bad Request: VOICE_MESSAGES_FORBIDDEN")
    for name, mime in (("a.png", "image/png"), ("a.ogg", "audio/ogg")):
        (tmp_path / name).write_bytes(b"content")
        await platform.send_file(place, Outgoing(tmp_path / name, name, mime, name), "1-0")
    assert [each["document"]["file_name"] for each in telegram.screen(int(place.chat_id or 0))] == ["a.png", "a.ogg"]


async def test_what_belongs_into_a_topic_that_was_deleted_is_said_in_the_forum(
    driver: TelegramDriver, tmp_path: Path
) -> None:
    forum = group(driver.telegram, "Forum", forum=True)
    thread = topic(driver.telegram, forum, "Plans")
    del driver.telegram.state.rooms[forum].topics[thread]
    place = SessionSource(platform="telegram", chat_id=str(forum), chat_type="group", thread_id=str(thread))
    platform, file = driver.connected(), tmp_path / "a.csv"
    file.write_bytes(b"content")
    await platform.send(place, "hello", "1-0")
    await platform.send_file(place, Outgoing(file, "a.csv", "text/csv", "a file"), "2-0")
    assert driver.telegram.texts(forum) == ["hello", "a file"]


async def test_the_outcome_of_what_cannot_have_left_is_never_unknown(driver: TelegramDriver) -> None:
    """Numbers that are none, and closed connections; a response that the library cannot read is an unknown outcome."""
    platform, place = driver.connected(), driver.place()
    strange = replace_in(place, thread_id="not a number")
    for call in (platform.send(strange, "x", "1-0"), platform.edit(place, "x", "x"), platform.delete(place, "x")):
        with pytest.raises(Refused, match="not an id of a Telegram message"):
            await call
    await platform.typing(strange)
    await platform.react(place, "x", "👀")
    await platform.close_connections()
    with pytest.raises(TryLater, match="closed"):
        await platform.send(place, "x", "1-0")
    assert driver.texts() == []
    with pytest.raises(OutcomeUnknown, match="KeyError"):
        await done(strange_answer())


async def strange_answer() -> None:
    raise KeyError("date")


async def test_ids_that_jump_lose_nothing(driver: TelegramDriver) -> None:
    """After a quiet week the next number may be lower than all before: an old offset must not confirm it."""
    ann, queue, platform = driver.person("Ann"), driver.telegram.queue, driver.connected(poll_s=0)
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
    platform = driver.connected()
    (found,) = await heard(platform, 1)
    assert found.text == "hello"
    update = b'{"update_id":1,"message":{"message_id":1,"chat":{"id":1,"type":"private"},"text":"%b"}}'
    nested = update.replace(b'"text"', b'"x":' + b"[" * 100_000 + b"]" * 100_000 + b',"text"')
    for body in (update % b"\xff", nested % b"deep"):
        assert await platform.read_webhook(body) == []


async def test_the_words_of_a_message_are_heard_however_strange_the_rest_of_it_is(driver: TelegramDriver) -> None:
    driver.person("Ann").shares(caption="listen", voice={"file_id": "1", "duration": 1.5})
    (found,) = await heard(driver.connected(), 1)
    assert (found.text, found.attachments) == ("listen", ())


async def test_what_is_neither_words_nor_a_file_is_heard_and_what_only_happened_is_not(driver: TelegramDriver) -> None:
    ann, team = driver.person("Ann"), group(driver.telegram, "Team")
    ann.joins(team)
    ann.shares(location={"latitude": 48.5, "longitude": 16.5})
    ann.shares(dice={"emoji": "🎲", "value": 4})
    found = await heard(driver.connected(), 2)
    assert [each.text for each in found] == ["[location: 48.5, 16.5]", "[dice: 🎲 4]"]


async def test_a_revoked_token_is_told_with_its_remedy_and_never_shown(
    driver: TelegramDriver, capsys: pytest.CaptureFixture[str]
) -> None:
    platform = driver.connected()
    driver.telegram.state.revoked = True
    with pytest.raises(TryLater, match="BotFather"):
        await anext(platform.inbound(None))
    with pytest.raises(TryLater, match="BotFather"):
        await platform.send(driver.place(), "hello", "1-0")
    await driver.away()
    with pytest.raises(TryLater) as error:
        await platform.send(driver.place(), "hello", "1-0")
    with pytest.raises(TryLater) as unread:
        await anext(platform.inbound(None))
    told = "".join([*capsys.readouterr(), str(error.value), str(unread.value)])
    assert TOKEN not in told
    assert TOKEN.partition(":")[2] not in told


async def test_the_webhook_is_set_again_by_each_process_and_drops_nothing(driver: TelegramDriver) -> None:
    """Telegram does not say with which secret it posts, and an earlier process may have had another token."""
    url, clock = f"{driver.server.url}/hooks/telegram/1", Pauses(0)  # where each post meets a 404, as it is told below
    driver.says("hello")
    async with httpx.AsyncClient() as client:
        old = {"url": url, "secret_token": "old", "allowed_updates": ["poll"]}
        await client.post(f"{driver.server.url}/bot{TOKEN}/setWebhook", json=old)
    platform, state = driver.connected(hook_url=url, clock=clock), driver.telegram.state
    reading = asyncio.ensure_future(anext(platform.inbound(None)))
    await clock.enough.wait()
    assert state.hook
    assert state.hook.secret == platform.secret
    assert (state.hook.max_connections, set(state.allowed or ())) == (1, set(WANTED))
    assert len(state.waiting) == 1
    assert not any("drop_pending_updates" in each for each in driver.telegram.called_with("setWebhook"))
    state.hook = replace(state.hook, secret="another", last_error="Wrong response from the webhook: 404 Not Found")
    clock.go_on.set()
    await driver.until(lambda: state.hook and state.hook.secret == platform.secret)
    assert "404" in (platform.contact.trouble or "")
    reading.cancel()


async def test_a_webhook_that_nothing_came_through_proves_nothing(driver: TelegramDriver) -> None:
    clock = Pauses(2)
    platform = driver.connected(hook_url="http://127.0.0.1:9/hooks/telegram/1", clock=clock)
    reading = asyncio.ensure_future(anext(platform.inbound(None)))
    await clock.enough.wait()
    assert platform.contact == Contact()
    assert platform.contact.answers == 3  # it knows us and our URL
    await platform.read_webhook(b'{"update_id":1}')
    assert platform.contact.received_at is not None
    reading.cancel()


async def test_a_webhook_in_the_way_of_polling_is_removed_and_what_waits_is_kept(driver: TelegramDriver) -> None:
    async with httpx.AsyncClient() as client:
        await client.post(f"{driver.server.url}/bot{TOKEN}/setWebhook", json={"url": "http://127.0.0.1:9/nobody"})
    driver.says("hello")
    (found,) = await heard(driver.connected(), 1)
    assert found.text == "hello"
