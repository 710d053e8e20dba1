"""Updates as they are on the wire, and only what we use of them: other fields may come, go and change.

https://core.telegram.org/bots/api#available-types
"""

from __future__ import annotations

import msgspec


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
    file_size: int = 0
    file_name: str = ""
    mime_type: str = ""
    emoji: str = ""
    duration: int = 0


class TextPart(msgspec.Struct, frozen=True):
    """A part of a text that has a meaning."""

    type: str
    offset: int
    length: int
    user: User | None = None


class Replied(msgspec.Struct, frozen=True):
    """The message that one answers to."""

    message_id: int
    sender: User | None = msgspec.field(name="from", default=None)


class Message(msgspec.Struct, frozen=True):
    """A message, edited or not."""

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
    reply_to_message: Replied | None = None
    photo: list[File] = msgspec.field(default_factory=list)
    document: File | None = None
    voice: File | None = None
    audio: File | None = None
    video: File | None = None
    video_note: File | None = None
    animation: File | None = None
    sticker: File | None = None


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
