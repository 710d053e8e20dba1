"""Whole updates, and what each becomes. They are made after https://core.telegram.org/bots/api#available-types by hand, with
values of our own, and not by the local Telegram: what both have wrong is not hidden.
"""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from telegram import Bot, Update

from everturn.inbox.rules import in_reply
from everturn.model import Heard, Inbound
from everturn.platform.telegram.reading import TelegramReader
from everturn.platform.telegram.wire import UNREADABLE, read_update, text_only
from everturn.testing.telegram import BOT_ID, TOKEN

FOLDER = Path(__file__).parent / "payloads" / "telegram"
READER = TelegramReader(str(BOT_ID), "everturn_bot")
ANN, TEAM, FORUM, NEWS = "271828182", "-1001618033988", "-1001414213562", "-1001732050807"
NOTHING = {
    "plain_in_a_group", "command_of_another_bot", "automatic_forward", "another_bot", "press_of_an_inline_message",
    "forum_topic_created", "location_that_moves", "joined", "pinned",
}  # fmt: skip
TEXTS: dict[str, tuple[str, str, str, str]] = {  # the id, the text, the chat, who
    "mention": (f"11@{TEAM}", "what is new?", TEAM, ANN),
    "only_our_name": (f"12@{TEAM}", "@everturn_bot", TEAM, ANN),
    "reply_to_us": (f"14@{TEAM}", in_reply("and then?", "first", None), TEAM, ANN),
    "anonymous_admin": (f"31@{TEAM}", "hello", TEAM, TEAM),
    "press": ("press-1167000000000000001", "/approve 7", ANN, ANN),
    "press_of_an_inaccessible_message": ("press-1167000000000000002", "/approve 8", TEAM, ANN),
    "album_item": (f"51@{ANN}", "both of us", ANN, ANN),
    "forum_topic": (f"62@{FORUM}", "in plans", FORUM, ANN),
    "forum_general": (f"63@{FORUM}", "in general", FORUM, ANN),
    "unknown_fields": (f"71@{ANN}", in_reply("hello", "a", ""), ANN, ANN),
    "voice": (f"81@{ANN}", "[voice]", ANN, ANN),
    "voice_that_lasts_strangely": (f"82@{ANN}", "listen", ANN, ANN),
    "sticker": (f"83@{ANN}", "[sticker: 😀]", ANN, ANN),
    "animation": (f"84@{ANN}", "[video]", ANN, ANN),
    "location": (f"85@{ANN}", "[location: 48.2082, 16.3738]", ANN, ANN),
    "venue": (f"87@{ANN}", "[venue: Café, Ring 1, 48.2, 16.37]", ANN, ANN),
    "contact": (f"88@{ANN}", "[contact: Bob Roe, +431234]", ANN, ANN),
    "poll": (f"89@{ANN}", "[poll: Lunch? (Soup / Bread)]", ANN, ANN),
    "dice": (f"90@{ANN}", "[dice: 🎲 4]", ANN, ANN),
    "story": (f"91@{ANN}", "[story]", ANN, ANN),
}
LISTENING: dict[str, tuple[str, str, str, str]] = {  # nobody names a bot in a channel
    "channel_post": (f"21@{NEWS}", "a post", NEWS, NEWS),
}
CHANGES = {
    "edited": (Heard.EDITED, f"72@{ANN}", "hello all", ANN),
    "edited_channel_post": (Heard.EDITED, f"21@{NEWS}", "a better post", NEWS),
    "migrate_to": (Heard.MOVED, "-4123456789", "", TEAM),
    "migrate_from": (Heard.MOVED, "-4123456789", "", TEAM),
}
MORE: list[tuple[str, dict[str, Any]]] = [
    ("mention", {"chat_type": "group", "chat_name": "Team", "user_name": "Ann Lee", "message_id": "11"}),
    ("reply_to_us", {"thread_id": None}),
    ("anonymous_admin", {"user_name": "Team"}),
    ("press_of_an_inaccessible_message", {"message_id": "42", "chat_type": "group"}),
    ("forum_topic", {"thread_id": "61", "chat_topic": "Plans"}),
    ("forum_general", {"thread_id": None, "chat_topic": None}),
    ("voice", {"chat_type": "dm", "chat_name": None}),
]


def read(name: str, *, listening: bool = False) -> Inbound | None:
    """As the adapter does it."""
    raw, reader = (FOLDER / f"{name}.json").read_bytes(), TelegramReader(READER.account, READER.name, listening)
    try:
        return reader.read(read_update(raw))
    except UNREADABLE:
        return reader.read(text_only(raw))


def test_the_tables_name_every_payload() -> None:
    assert {file.stem for file in FOLDER.iterdir()} == NOTHING | TEXTS.keys() | LISTENING.keys() | CHANGES.keys()


@pytest.mark.parametrize("name", sorted(NOTHING))
def test_what_is_nothing_to_us(name: str) -> None:
    assert read(name) is None


@pytest.mark.parametrize("name", [*TEXTS, *LISTENING])
def test_what_was_said(name: str) -> None:
    found = read(name, listening=name in LISTENING)
    assert found is not None
    assert found.what is Heard.SAID
    assert (found.id, found.text, found.source.chat_id, found.source.user_id) == (TEXTS | LISTENING)[name]


@pytest.mark.parametrize("name", CHANGES)
def test_what_changes_something(name: str) -> None:
    found = read(name)
    assert found is not None
    assert (found.what, found.of, found.text, found.source.chat_id) == CHANGES[name]


@pytest.mark.parametrize(("name", "about"), MORE)
def test_where_it_was_said(name: str, about: dict[str, Any]) -> None:
    found = read(name)
    assert found is not None
    assert {field: getattr(found.source, field) for field in about} == about


def test_the_largest_photo_of_an_album_and_what_a_sticker_is() -> None:
    album, sticker, voice = read("album_item"), read("sticker"), read("voice")
    assert album and sticker and voice  # noqa: PT018  three of a kind
    assert (album.album, album.attachments[0].size) == ("13570000000000001", 140_000)
    assert (sticker.attachments[0].family, sticker.attachments[0].moving) == ("Faces", True)
    assert (voice.attachments[0].seconds, voice.attachments[0].mime) == (4, "audio/ogg")


@pytest.fixture(scope="module")
def bot() -> Bot:
    return Bot(TOKEN)


@pytest.mark.parametrize("name", sorted(file.stem for file in FOLDER.iterdir()))
def test_the_library_takes_it_for_one_of_telegrams(name: str, bot: Bot) -> None:
    """So that the payloads are not only our reading of the documentation."""
    raw = (FOLDER / f"{name}.json").read_bytes()
    update = Update.de_json(msgspec.json.decode(raw), bot)
    assert update.update_id > 0
    assert update.effective_chat is not None or name == "press_of_an_inline_message"
