"""The Bot API: its updates as values, and its calls."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, TypeVar

import httpx
import msgspec
from msgspec.structs import asdict
from telegram.error import TelegramError
from telegram.request import HTTPXRequest

from everturn.errors import OutcomeUnknown, PlatformError, TryLater
from everturn.platform.telegram.rules import error_of


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


# Requests to Telegram: each failure becomes the error that names the right reaction.
# python-telegram-bot makes and reads the requests; the responses are judged here, once, for its methods and for our
# own polling. https://core.telegram.org/bots/api#making-requests


T = TypeVar("T")
CONNECTIONS = 16
CONNECT_S = 10.0
READ_S = 20.0
UPLOAD_S = 60.0
UNREACHABLE_S = 2.0
# Nothing left this machine.
NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol, httpx.ProxyError)


class TelegramRequests(HTTPXRequest):
    """The library's HTTP requests; an error response raises one of our errors."""

    def __init__(self) -> None:
        super().__init__(
            connection_pool_size=CONNECTIONS,
            connect_timeout=CONNECT_S,
            read_timeout=READ_S,
            write_timeout=READ_S,
            pool_timeout=READ_S,
            media_write_timeout=UPLOAD_S,
        )
        self._closed = False

    async def shutdown(self) -> None:
        """Close the connections: no request is made any more."""
        self._closed = True
        await super().shutdown()

    async def do_request(self, *args: Any, **named: Any) -> tuple[int, bytes]:
        """Make a request. Raises PlatformError."""
        if self._closed:
            raise TryLater("the connections to Telegram are closed", UNREACHABLE_S)
        try:
            code, payload = await super().do_request(*args, **named)
        except TelegramError as error:
            raise _unanswered(error.__cause__) from None  # its text may hold the URL, and that the token
        if 200 <= code <= 299:
            return code, payload
        answer = _answer(payload)
        more = answer.parameters
        raise error_of(code, answer.description, more.retry_after, more.migrate_to_chat_id)


async def done(call: Awaitable[T]) -> T:
    """The result of one of the library's methods. Raises PlatformError."""
    try:
        return await call
    except TelegramError as error:
        if isinstance(error.__cause__, PlatformError):
            raise error.__cause__ from None
        raise OutcomeUnknown(f"Telegram's response cannot be read: {type(error).__name__}") from None
    except (
        TypeError,
        ValueError,
        LookupError,
        AttributeError,
    ) as error:  # the library reads the answer after all is done
        raise OutcomeUnknown(f"Telegram's response cannot be read: {type(error).__name__}") from error


def _unanswered(cause: BaseException | None) -> PlatformError:
    what = type(cause).__name__ if cause else "no answer"
    if isinstance(cause, NOT_SENT):
        return TryLater(f"Telegram cannot be reached: {what}", UNREACHABLE_S)
    return OutcomeUnknown(f"Telegram did not answer: {what}")


def _answer(payload: bytes) -> BotResponse:
    try:
        return read_answer(payload)
    except UNREADABLE:
        return BotResponse()  # from a proxy between us and Telegram
