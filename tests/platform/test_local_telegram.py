"""The local Telegram is one: two client libraries that know nothing of it agree, and it fails only on order."""

import asyncio
import json
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import httpx
import pytest
from telegram import Bot, InlineKeyboardButton, InlineKeyboardMarkup
from telegram.error import BadRequest, ChatMigrated, Conflict, Forbidden, InvalidToken, NetworkError, RetryAfter

from everturn.testing.telegram import (
    TOKEN,
    Person,
    Telegram,
    TelegramServer,
    group,
    methods,
    people,
    person,
    serving,
    state,
    topic,
    upgrade,
)
from tests.waiting import WAIT_S, within


@pytest.fixture
async def server() -> AsyncIterator[TelegramServer]:
    async with TelegramServer() as server:
        yield server


@pytest.fixture
async def bot(server: TelegramServer) -> AsyncIterator[Bot]:
    async with Bot(TOKEN, base_url=f"{server.url}/bot", base_file_url=f"{server.url}/file/bot") as bot:
        yield bot


async def test_an_update_stays_until_a_later_poll_confirms_it(server: TelegramServer, bot: Bot) -> None:
    ann = person(server.telegram, "Ann")
    ann.says("one 😀")
    ann.says("/new@everturn_bot two")
    first = await bot.get_updates()
    again = await bot.get_updates(limit=1)
    rest = await bot.get_updates(offset=first[0].update_id + 1)
    assert [each.message.text for each in first if each.message] == ["one 😀", "/new@everturn_bot two"]
    assert [len(first), len(again), len(rest)] == [2, 1, 1]
    assert rest[0].message is not None
    assert rest[0].message.parse_entities() == {rest[0].message.entities[0]: "/new@everturn_bot"}


async def test_of_two_pollers_the_earlier_is_sent_away_and_nothing_is_kept_for_more_than_a_day() -> None:
    at = [1_000_000.0]
    async with TelegramServer(Telegram(now=lambda: at[0])) as server:
        base = f"{server.url}/bot"
        async with Bot(TOKEN, base_url=base) as bot, Bot(TOKEN, base_url=base) as other:
            first = asyncio.ensure_future(bot.get_updates(timeout=20))
            await server.telegram.until(lambda: server.telegram.queue.polls == 1)
            assert await other.get_updates() == ()
            with pytest.raises(Conflict, match="other getUpdates"):
                await first
            person(server.telegram, "Ann").says("old")
            at[0] += 86_400
            assert await bot.get_updates() == ()


async def test_what_is_sent_is_on_the_screen_and_can_be_replaced(server: TelegramServer, bot: Bot) -> None:
    ann, telegram = person(server.telegram, "Ann"), server.telegram
    keyboard = InlineKeyboardMarkup([[InlineKeyboardButton("Yes", callback_data="/approve 1")]])
    text = 'a <b>b</b> <a href="https://x.example">c</a>'
    sent = await bot.send_message(ann.id, text, parse_mode="HTML", reply_markup=keyboard)
    assert telegram.texts(ann.id) == ["a b c"]
    assert [each.type for each in sent.entities] == ["bold", "text_link"]
    query = ann.presses(sent.message_id, "Yes")
    press = (await bot.get_updates())[-1].callback_query
    assert press is not None
    assert (press.id, press.data) == (query, "/approve 1")
    assert await bot.answer_callback_query(query)
    await bot.edit_message_text("other", ann.id, sent.message_id)
    with pytest.raises(BadRequest, match=r"(?i)message is not modified"):
        await bot.edit_message_text("other", ann.id, sent.message_id)
    assert telegram.texts(ann.id) == ["other"]


@pytest.mark.parametrize(
    ("text", "mode", "error"),
    [
        ("x" * 4097, None, "too long"),
        ("😀" * 2049, None, "too long"),
        ("<b>open", "HTML", "can't parse entities"),
        ("a < b", "HTML", "can't parse entities"),
        ("<b><i>x</b></i>", "HTML", "can't parse entities"),
        ("<h1>x</h1>", "HTML", 'Unsupported start tag "h1"'),
        (" \n ", None, "text is empty"),
    ],
)
async def test_a_text_that_telegram_refuses(server: TelegramServer, bot: Bot, text: str, mode: str, error: str) -> None:
    ann = person(server.telegram, "Ann")
    with pytest.raises(BadRequest, match=f"(?i){error}"):
        await bot.send_message(ann.id, text, parse_mode=mode)
    await bot.send_message(ann.id, "😀" * 2048)
    assert server.telegram.texts(ann.id) == ["😀" * 2048]


@pytest.mark.filterwarnings("ignore:Deprecated since version v22.2")  # the library warns of its own error
async def test_it_fails_on_order_and_may_have_done_it(server: TelegramServer, bot: Bot) -> None:
    ann, telegram = person(server.telegram, "Ann"), server.telegram
    telegram.fail("flood", "sendMessage", retry_after=7)
    telegram.fail("server", "sendMessage", accepted=True)
    telegram.fail("reset", "sendMessage", accepted=True)
    telegram.fail("reset", "sendMessage")
    with pytest.raises(RetryAfter) as flood:
        await bot.send_message(ann.id, "1")
    for text in ("2", "3", "4"):
        with pytest.raises(NetworkError):
            await bot.send_message(ann.id, text)
    assert "7 seconds" in flood.value.message
    assert telegram.texts(ann.id) == ["2", "3"]
    telegram.state.revoked = True
    with pytest.raises(InvalidToken):
        await bot.send_message(ann.id, "5")


async def test_chats_that_moved_closed_or_never_were(server: TelegramServer, bot: Bot) -> None:
    telegram = server.telegram
    team, forum = group(telegram, "Team", "group"), group(telegram, "Forum", forum=True)
    plans = topic(telegram, forum, "Plans")
    await bot.send_message(forum, "in the topic", message_thread_id=plans)
    assert telegram.texts(forum, plans) == ["in the topic"]
    new = upgrade(telegram, team)
    with pytest.raises(ChatMigrated) as moved:
        await bot.send_message(team, "x")
    assert moved.value.new_chat_id == new
    person(telegram, "Bob").blocks()
    with pytest.raises(Forbidden):
        await bot.send_message(person(telegram, "Bob").id, "x")
    for chat, thread in ((12345, None), (forum, 999)):
        with pytest.raises(BadRequest, match="not found"):
            await bot.send_message(chat, "x", message_thread_id=thread)


async def test_a_group_keeps_from_a_private_bot_what_is_not_for_it(server: TelegramServer, bot: Bot) -> None:
    ann, telegram = person(server.telegram, "Ann"), server.telegram
    team = group(telegram, "Team")
    ours = (await bot.send_message(team, "hello")).message_id
    for text in ("nothing", "/other@another_bot", "@everturn_bot hi", "/new", "/new@everturn_bot"):
        ann.says(text, chat=team)
    ann.says("a reply", chat=team, reply_to=ours)
    heard = [each.message.text for each in await bot.get_updates() if each.message]
    assert heard == ["@everturn_bot hi", "/new", "/new@everturn_bot", "a reply"]


async def test_files_go_both_ways(server: TelegramServer, bot: Bot) -> None:
    ann = person(server.telegram, "Ann")
    ann.sends_album([b"first photo here", b"second photo here"], "look")
    ann.sends_document(b"a,b", "t.csv", "text/csv")
    ann.sends_voice(b"ogg")
    ann.sends_sticker("😀")
    messages = [each.message for each in await bot.get_updates() if each.message]
    assert [each.caption for each in messages] == ["look", None, None, None, None]
    assert messages[0].media_group_id == messages[1].media_group_id is not None
    assert messages[2].document is not None
    file = await bot.get_file(messages[2].document.file_id)
    assert bytes(await file.download_as_bytearray()) == b"a,b"
    await bot.send_photo(ann.id, b"jpeg", caption="a photo")
    await bot.send_voice(ann.id, b"ogg")
    assert server.telegram.texts(ann.id) == ["a photo", ""]


async def test_a_webhook_gets_each_update_with_the_secret_until_it_takes_it(server: TelegramServer, bot: Bot) -> None:
    ann, seen = person(server.telegram, "Ann"), []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        size = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
        seen.append((b"my-secret" in head, json.loads(await reader.readexactly(size))["update_id"]))
        status = b"500 Oh" if len(seen) == 1 else b"200 OK"
        writer.write(b"HTTP/1.1 " + status + b"\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as listening:
        port = listening.sockets[0].getsockname()[1]
        await bot.set_webhook(f"http://127.0.0.1:{port}/hook", secret_token="my-secret", max_connections=1)
        ann.says("one")
        ann.says("two")
        await server.telegram.until(lambda: len(seen) == 3 and not server.telegram.state.waiting)
        with pytest.raises(Conflict):
            await bot.get_updates()
        assert "500" in ((await bot.get_webhook_info()).last_error_message or "")
    assert all(secret for secret, _ in seen)
    assert [number - seen[0][1] for _, number in seen] == [0, 0, 1]


async def test_a_webhook_gets_as_many_updates_at_once_as_it_allows(server: TelegramServer, bot: Bot) -> None:
    """Nobody is answered before two are there, and never are there three."""
    ann, here, both = person(server.telegram, "Ann"), set[asyncio.StreamWriter](), asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        here.add(writer)
        assert len(here) <= 2
        both.set() if len(here) == 2 else None
        await both.wait()
        here.discard(writer)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as listening:
        port = listening.sockets[0].getsockname()[1]
        await bot.set_webhook(f"http://127.0.0.1:{port}/hook", max_connections=2)
        for word in ("one", "two", "three"):
            ann.says(word)
        await server.telegram.until(lambda: not server.telegram.state.waiting)
        assert (await bot.get_webhook_info()).max_connections == 2


async def test_a_webhook_with_a_public_name_is_posted_to_where_it_is_now(server: TelegramServer, bot: Bot) -> None:
    ann, telegram, public = person(server.telegram, "Ann"), server.telegram, "https://bot.example.org"

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"POST /hook ")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    telegram.webhook_urls[public] = ""
    await bot.set_webhook(f"{public}/hook")
    ann.says("one")
    await telegram.until(lambda: telegram.state.hook and telegram.state.hook.last_error)
    assert telegram.state.waiting
    async with await asyncio.start_server(answer, "127.0.0.1", 0) as listening:
        telegram.webhook_urls[public] = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        await telegram.until(lambda: not telegram.state.waiting)


async def test_faults_that_were_not_met_can_be_taken_back_from_elsewhere(server: TelegramServer) -> None:
    server.telegram.fail("server", "sendMessage")
    async with httpx.AsyncClient() as client:
        assert (await client.delete(f"{server.url}/control/faults")).json() == {"faults": 0}
    assert server.telegram.faults == []


async def test_it_outlives_its_process_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "telegram.json"
    person(Telegram(file), "Ann").says("hello")
    later = Telegram(file)
    assert [each.update["message"]["text"] for each in later.state.waiting] == ["hello"]
    assert [each["text"] for each in later.screen(person(later, "Ann").id)] == ["hello"]


async def test_updates_come_twice_in_disorder_and_with_any_number_on_order(server: TelegramServer, bot: Bot) -> None:
    ann, queue = person(server.telegram, "Ann"), server.telegram.queue
    ann.says("one")
    queue.jump(5)
    ann.says("two")
    queue.reorder = True
    first = await bot.get_updates()
    queue.reorder = False
    assert [each.message.text for each in first if each.message] == ["two", "one"]
    assert first[0].update_id == 5
    assert len(await bot.get_updates(offset=first[1].update_id + 1)) == 0
    queue.repeat(0)
    assert len(await bot.get_updates(offset=first[1].update_id + 1)) == 0
    queue.repeat(2)
    assert len(await bot.get_updates(offset=first[1].update_id + 1)) == 2


class Aiogram:
    """The other library, in a process of its own: to load it takes longer than all that it is asked."""

    def __init__(self, process: Process) -> None:
        self._process = process

    async def __call__(self, number: int, what: str) -> dict[str, Any]:
        """What it finds."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(f"{what} {number}\n".encode())
        async with within(4 * WAIT_S, lambda: "no answer"):  # the first has to wait until it is loaded
            told: dict[str, Any] = json.loads(await self._process.stdout.readline())
        return told


@pytest.fixture
async def aiogram(server: TelegramServer) -> AsyncIterator[Aiogram]:
    program, pipe = str(Path(__file__).with_name("aiogram_client.py")), asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(sys.executable, program, server.url, TOKEN, stdin=pipe, stdout=pipe)
    yield Aiogram(process)
    process.kill()
    await process.communicate()


@pytest.mark.prove
async def test_aiogram_takes_it_for_the_real_one(server: TelegramServer, bot: Bot, aiogram: Aiogram) -> None:
    await aiogram_talks(server.telegram, aiogram)
    await aiogram_deletes_what_it_sent_once(server.telegram, aiogram)
    await aiogram_reads_what_people_do(server.telegram, bot, aiogram)


async def aiogram_reads_what_people_do(telegram: Telegram, bot: Bot, aiogram: Aiogram) -> None:
    ann = person(telegram, "Ann")
    news, keyboard = group(telegram, "News", "channel"), [[InlineKeyboardButton("Yes", callback_data="/approve 1")]]
    question = await bot.send_message(ann.id, "May I?", reply_markup=InlineKeyboardMarkup(keyboard))
    ann.presses(question.message_id, "Yes")
    ann.edits(ann.says("hello"), "hello all")
    ann.edits(ann.says("a post", chat=news), "a better post", chat=news)
    ann.sends_album([b"first photo here", b"second photo here"], "look")
    ann.sends_voice(b"ogg", duration=4)
    ann.sends_sticker("😀")
    ann.shares(location={"latitude": 48.5, "longitude": 16.5})
    told = await aiogram(telegram.state.waiting[0].update["update_id"] - 1, "listen")
    assert told["kinds"] == [
        "callback_query", "message", "edited_message", "channel_post", "edited_channel_post", *["message"] * 5
    ]  # fmt: skip
    assert (told["presses"], told["answered"], told["again"]) == (
        [["Ann", "/approve 1"]],
        [True],
        ["TelegramBadRequest"],
    )
    assert (told["edited"], told["posts"], told["reposts"]) == (["hello all"], [[True, "News"]], ["a better post"])
    assert told["contents"] == ["text", "photo", "photo", "voice", "sticker", "location"]
    assert (told["albums"], told["voices"], told["stickers"], told["places"]) == (1, [4], ["😀"], [48.5])


async def aiogram_deletes_what_it_sent_once(telegram: Telegram, aiogram: Aiogram) -> None:
    bob = person(telegram, "Bob")
    assert await aiogram(bob.id, "tidy") == {"deleted": True, "deleted_again": "TelegramBadRequest"}
    assert telegram.texts(bob.id) == []


async def aiogram_talks(telegram: Telegram, aiogram: Aiogram) -> None:
    ann = person(telegram, "Ann")
    ann.says("hello")
    telegram.fail("flood", "pinChatMessage")
    telegram.fail("server", "unpinAllChatMessages")
    told = await aiogram(ann.id, "talk")
    assert told["said"] == ["hello"]
    assert [len(each) for each in told["ids"]] == [1, 1, 0]
    assert (told["sent"], told["edited"], told["file"]) == ("hi & bye", "other", "content")
    assert told["long"] == told["tags"] == "TelegramBadRequest"
    assert (told["flood"], told["server"]) == ("TelegramRetryAfter", "TelegramServerError")
    assert telegram.texts(ann.id) == ["other", "a file"]


async def test_a_wrong_token_or_method_is_told_so(server: TelegramServer) -> None:
    async with httpx.AsyncClient(base_url=server.url) as client:
        answers = [await client.get(path) for path in ("/bot1:x/getMe", "/botx/getMe", f"/bot{TOKEN}/getNothing")]
        assert [each.status_code for each in answers] == [401, 404, 404]
        posted = await client.post(f"/bot{TOKEN}/GETME", json={})
    assert posted.json()["result"]["username"] == "everturn_bot"


async def test_who_waits_for_a_call_is_woken_by_it() -> None:
    telegram = Telegram()
    waiting = asyncio.ensure_future(telegram.until(lambda: telegram.calls))
    await asyncio.sleep(0)
    telegram.called("answerCallbackQuery", {})
    await waiting


# -- what it follows ---------------------------------------------------------------------------------------------------


def pageless(place: ModuleType | type) -> list[str]:
    """What is public there, was made there, and names no page of Telegram's documentation."""
    module = place.__name__ if isinstance(place, ModuleType) else place.__module__
    public = {name: each for name, each in vars(place).items() if not name.startswith("_")}
    acts = {
        name: each
        for name, each in public.items()
        if isinstance(each, property) or (isinstance(each, FunctionType | type) and each.__module__ == module)
    }
    return [name for name, each in acts.items() if "https://core.telegram.org/" not in (each.__doc__ or "")]


def test_each_method_names_its_own_page() -> None:
    page = "https://core.telegram.org/bots/api#{}"
    named = {name: method.__doc__ or "" for name, method in methods.METHODS.items()}
    assert [name for name, text in named.items() if page.format(name) not in text.split()] == []


@pytest.mark.parametrize("place", [methods, people, Person, serving.Api])
def test_what_telegram_and_its_people_do_names_the_page_that_it_follows(place: ModuleType | type) -> None:
    assert pageless(place) == []


@pytest.mark.parametrize("module", [state, serving, methods, people])
def test_what_follows_one_page_throughout_names_it_above(module: ModuleType) -> None:
    assert "https://core.telegram.org/bots/api#" in (module.__doc__ or "")


def test_a_behaviour_without_a_page_is_seen() -> None:
    class Silent:
        """One without, and one with."""

        def says(self) -> None:
            """Write."""

        def edits(self) -> None:
            """Change it. https://core.telegram.org/bots/api#update"""

    assert pageless(Silent) == ["says"]
