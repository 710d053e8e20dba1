"""Telegram's updates as JSON, and only the fields we use: other fields may appear, vanish and change.

https://core.telegram.org/bots/api#available-types
"""

from __future__ import annotations

import msgspec
from msgspec.structs import asdict


class User(msgspec.Struct, frozen=True):
    """A person or a bot."""

    id: int
    first_name: str = ""
    last_name: str = ""
    username: str = ""
    is_bot: bool = False


class TelegramChat(msgspec.Struct, frozen=True):
    """The chat of a message."""

    id: int
    type: str
    title: str = ""


class TelegramFile(msgspec.Struct, frozen=True):
    """A file of a message, of any kind; each kind has some of these fields."""

    file_id: str
    file_unique_id: str = ""
    file_size: int = 0
    file_name: str = ""
    mime_type: str = ""
    emoji: str = ""
    set_name: str | None = None
    is_animated: bool = False
    is_video: bool = False
    duration: int = 0


class Location(msgspec.Struct, frozen=True):
    """A location."""

    latitude: float
    longitude: float


class Venue(msgspec.Struct, frozen=True):
    """A location with a name."""

    location: Location
    title: str = ""
    address: str = ""


class SharedContact(msgspec.Struct, frozen=True):
    """A contact that somebody shared."""

    phone_number: str
    first_name: str = ""
    last_name: str = ""


class Option(msgspec.Struct, frozen=True):
    """An option of a poll."""

    text: str = ""


class Poll(msgspec.Struct, frozen=True):
    """A poll."""

    question: str
    options: list[Option] = msgspec.field(default_factory=list)


class Dice(msgspec.Struct, frozen=True):
    """An emoji with a random value."""

    emoji: str = ""
    value: int = 0


class Topic(msgspec.Struct, frozen=True):
    """The creation of a forum's topic, with its name."""

    name: str = ""


class Quote(msgspec.Struct, frozen=True):
    """The quoted part of the message that is replied to."""

    text: str = ""


class MessageText(msgspec.Struct, frozen=True):
    """The sender, chat and text of a message: what is read even if its other fields are invalid."""

    message_id: int
    chat: TelegramChat
    date: float = 0
    edit_date: float = 0
    sender: User | None = msgspec.field(name="from", default=None)
    sender_chat: TelegramChat | None = None
    message_thread_id: int | None = None
    is_topic_message: bool = False
    is_automatic_forward: bool = False
    text: str = ""
    caption: str = ""


class TelegramMessage(MessageText, frozen=True):
    """A message, edited or not."""

    migrate_to_chat_id: int | None = None
    migrate_from_chat_id: int | None = None
    media_group_id: str | None = None
    reply_to_message: TelegramMessage | None = None  # in a topic, for a message that is no reply, what made the topic
    forum_topic_created: Topic | None = None
    quote: Quote | None = None
    photo: list[TelegramFile] = msgspec.field(default_factory=list)
    document: TelegramFile | None = None
    voice: TelegramFile | None = None
    audio: TelegramFile | None = None
    video: TelegramFile | None = None
    video_note: TelegramFile | None = None
    animation: TelegramFile | None = None
    sticker: TelegramFile | None = None
    location: Location | None = None
    venue: Venue | None = None
    contact: SharedContact | None = None
    poll: Poll | None = None
    dice: Dice | None = None
    story: object = None
    game: object = None
    invoice: object = None
    checklist: object = None
    paid_media: object = None
    giveaway: object = None


class Press(msgspec.Struct, frozen=True):
    """A button was pressed."""

    id: str
    sender: User = msgspec.field(name="from")
    message: TelegramMessage | None = None
    data: str = ""


class Update(msgspec.Struct, frozen=True):
    """One update. Exactly one of the optional fields is there, or none that we know."""

    update_id: int
    message: TelegramMessage | None = None
    edited_message: TelegramMessage | None = None
    channel_post: TelegramMessage | None = None
    edited_channel_post: TelegramMessage | None = None
    callback_query: Press | None = None


class TextUpdate(msgspec.Struct, frozen=True):
    """An update with nothing but the text of its message."""

    update_id: int
    message: MessageText | None = None
    edited_message: MessageText | None = None
    channel_post: MessageText | None = None
    edited_channel_post: MessageText | None = None


WANTED = ("message", "edited_message", "channel_post", "edited_channel_post", "callback_query")


class Number(msgspec.Struct, frozen=True):
    """The id, which even an update has that cannot be read."""

    update_id: int


class Parameters(msgspec.Struct, frozen=True):
    """The details of some errors. https://core.telegram.org/bots/api#responseparameters"""

    retry_after: float | None = None
    migrate_to_chat_id: int | None = None


class BotResponse(msgspec.Struct, frozen=True):
    """A response of the Bot API."""

    ok: bool = False
    result: msgspec.Raw = msgspec.Raw(b"null")
    description: str = ""
    parameters: Parameters = Parameters()


read_answer = msgspec.json.Decoder(BotResponse).decode
read_batch = msgspec.json.Decoder(list[msgspec.Raw]).decode
read_update = msgspec.json.Decoder(Update).decode
read_number = msgspec.json.Decoder(Number).decode
read_words = msgspec.json.Decoder(TextUpdate).decode
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)  # how decoding a Telegram update can fail


def text_only(raw: bytes | msgspec.Raw) -> Update:
    """Read only the text of an update that cannot be read as a whole. Raises one of UNREADABLE."""
    found = read_words(raw)
    return Update(
        found.update_id,
        message=_message(found.message),
        edited_message=_message(found.edited_message),
        channel_post=_message(found.channel_post),
        edited_channel_post=_message(found.edited_channel_post),
    )


def _message(text: MessageText | None) -> TelegramMessage | None:
    return None if text is None else TelegramMessage(**asdict(text))
