"""Updates as they are on the wire, and only what we use of them: other fields may come, go and change.

https://core.telegram.org/bots/api#available-types
"""

from __future__ import annotations

import msgspec
from msgspec.structs import asdict


class User(msgspec.Struct, frozen=True):
    """Somebody, or a bot."""

    id: int
    first_name: str = ""
    last_name: str = ""
    username: str = ""
    is_bot: bool = False


class Chat(msgspec.Struct, frozen=True):
    """Where it was said."""

    id: int
    type: str
    title: str = ""


class File(msgspec.Struct, frozen=True):
    """What came with a message, whatever it is; each kind has some of these."""

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
    """A place on the map."""

    latitude: float
    longitude: float


class Venue(msgspec.Struct, frozen=True):
    """A place with a name."""

    location: Location
    title: str = ""
    address: str = ""


class Contact(msgspec.Struct, frozen=True):
    """How somebody can be reached."""

    phone_number: str
    first_name: str = ""
    last_name: str = ""


class Option(msgspec.Struct, frozen=True):
    """What a poll lets people choose."""

    text: str = ""


class Poll(msgspec.Struct, frozen=True):
    """A question to many."""

    question: str
    options: list[Option] = msgspec.field(default_factory=list)


class Dice(msgspec.Struct, frozen=True):
    """An emoji with a number by chance."""

    emoji: str = ""
    value: int = 0


class Topic(msgspec.Struct, frozen=True):
    """What a forum's topic was called when it was made."""

    name: str = ""


class Quote(msgspec.Struct, frozen=True):
    """The part of an answered message that was chosen."""

    text: str = ""


class Words(msgspec.Struct, frozen=True):
    """Who said what, and where: what is read even of a message whose other fields are not as they should be."""

    message_id: int
    chat: Chat
    date: float = 0
    edit_date: float = 0
    sender: User | None = msgspec.field(name="from", default=None)
    sender_chat: Chat | None = None
    message_thread_id: int | None = None
    is_topic_message: bool = False
    is_automatic_forward: bool = False
    text: str = ""
    caption: str = ""


class Message(Words, frozen=True):
    """A message, edited or not."""

    migrate_to_chat_id: int | None = None
    migrate_from_chat_id: int | None = None
    media_group_id: str | None = None
    reply_to_message: Message | None = None  # in a topic, where one answers to nobody, what made the topic
    forum_topic_created: Topic | None = None
    quote: Quote | None = None
    photo: list[File] = msgspec.field(default_factory=list)
    document: File | None = None
    voice: File | None = None
    audio: File | None = None
    video: File | None = None
    video_note: File | None = None
    animation: File | None = None
    sticker: File | None = None
    location: Location | None = None
    venue: Venue | None = None
    contact: Contact | None = None
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
    message: Message | None = None
    data: str = ""


class Update(msgspec.Struct, frozen=True):
    """One thing that happened. Exactly one of the others is there, or none that we know."""

    update_id: int
    message: Message | None = None
    edited_message: Message | None = None
    channel_post: Message | None = None
    edited_channel_post: Message | None = None
    callback_query: Press | None = None


class WordsUpdate(msgspec.Struct, frozen=True):
    """The same, with nothing but the words of a message."""

    update_id: int
    message: Words | None = None
    edited_message: Words | None = None
    channel_post: Words | None = None
    edited_channel_post: Words | None = None


WANTED = ("message", "edited_message", "channel_post", "edited_channel_post", "callback_query")


class Number(msgspec.Struct, frozen=True):
    """What even an update that is not understood has."""

    update_id: int


class Parameters(msgspec.Struct, frozen=True):
    """What some errors tell more. https://core.telegram.org/bots/api#responseparameters"""

    retry_after: float | None = None
    migrate_to_chat_id: int | None = None


class Answer(msgspec.Struct, frozen=True):
    """Every answer of the Bot API."""

    ok: bool = False
    result: msgspec.Raw = msgspec.Raw(b"null")
    description: str = ""
    parameters: Parameters = Parameters()


read_answer = msgspec.json.Decoder(Answer).decode
read_batch = msgspec.json.Decoder(list[msgspec.Raw]).decode
read_update = msgspec.json.Decoder(Update).decode
read_number = msgspec.json.Decoder(Number).decode
read_words = msgspec.json.Decoder(WordsUpdate).decode
STRANGE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)  # how reading what Telegram sent can fail


def only_words(raw: bytes | msgspec.Raw) -> Update:
    """What can be read of an update that is strange as a whole. Raises one of STRANGE."""
    found = read_words(raw)
    return Update(
        found.update_id,
        message=_message(found.message),
        edited_message=_message(found.edited_message),
        channel_post=_message(found.channel_post),
        edited_channel_post=_message(found.edited_channel_post),
    )


def _message(words: Words | None) -> Message | None:
    return None if words is None else Message(**asdict(words))
