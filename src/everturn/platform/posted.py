"""The platforms whose messages are posted to us: the HTTP interface, the chat page, and OpenAI-compatible programs."""

from __future__ import annotations

import re
from urllib.parse import unquote_to_bytes

import msgspec

from everturn.model import Inbound, SessionSource
from everturn.sessions.rules.keys import PROGRAMS, SINGLE_CALL

ID_CHARS = 200
CHAT_CHARS = 200
_UNFIT = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
OWNER = "owner"
SESSION_CHARS = 200
KEY_CHARS = 255


class Post(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a posted message."""

    id: str
    text: str


_read_post = msgspec.json.Decoder(Post).decode


class PostedPlatform:
    """A platform whose clients post messages and watch events."""

    name = ""
    account = ""
    person: str | None = None

    def chat(self, raw: bytes) -> str:
        """The chat's name from the request's path, where it is percent-encoded."""
        try:
            name = (unquote_to_bytes(raw) if b"%" in raw else raw).decode()
        except UnicodeDecodeError:
            raise ValueError("the chat's name is not UTF-8; percent-encode its UTF-8 bytes") from None
        return fit_name("the chat's name", name, CHAT_CHARS)

    def source(self, chat: str, message_id: str | None = None, person: str | None = None) -> SessionSource:
        """The source of a message in this chat."""
        who = person or self.person
        return SessionSource(platform=self.name, chat_id=chat, message_id=message_id, user_id=who)

    def read(self, chat: str, body: bytes, person: str | None = None) -> Inbound:
        """The message in a posted body."""
        post = _post(body)
        fit_name("the id", post.id, ID_CHARS)
        if not post.text or post.text.isspace():
            raise ValueError("the text is empty; a message needs a text")
        if "\x00" in post.text:
            raise ValueError("the text holds a NUL character, which cannot be stored; remove it")
        return Inbound(id=unique_id(chat, post.id), source=self.source(chat, post.id, person), text=post.text)

    def stored_ids(self, message_id: str) -> list[str]:
        """The forms in which an id may be stored: as it is, or escaped in front of an `@` and the chat."""
        return list(dict.fromkeys([message_id, _escaped(message_id)]))


def unique_id(chat: str, message_id: str) -> str:
    """An id that is unique over all chats: a client's id is unique within its chat. The first `@` separates the two."""
    return f"{_escaped(message_id)}@{chat}"


def _escaped(message_id: str) -> str:
    return message_id.replace("%", "%25").replace("@", "%40")


def _post(body: bytes) -> Post:
    try:
        return _read_post(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(f'the body must be JSON like {{"id": "...", "text": "..."}}: {error}') from None


def fit_name(what: str, text: str, longest: int) -> str:
    """The name, if it can be stored. Raises ValueError with `what` in its text."""
    if not text:
        raise ValueError(f"{what} is empty")
    if len(text) > longest:
        raise ValueError(f"{what} has {len(text)} characters; at most {longest} are allowed")
    if _UNFIT.search(text):
        raise ValueError(f"{what} holds a control character; remove it")
    return text


class ApiPlatform(PostedPlatform):
    """Programs that post messages and watch events over HTTP. A program with a key is known by the key's name."""

    name = "api"


class WebPlatform(PostedPlatform):
    """The chat page. Whoever is logged in is the owner; other people use other platforms. Each conversation is a chat."""

    name = "web"
    person = OWNER


class V1Platform:
    """Programs that speak the OpenAI API. One client is a chat, each of its sessions a thread there: no client reaches another's.

    Nothing is sent to these: the request's row leads to its answer.
    """

    name = PROGRAMS
    account = ""

    def session(self, client: str, name: str) -> SessionSource:
        """The source of a session that the client has named. Raises ValueError with what is wrong with the name."""
        return self._source(client, "session:" + fit_name("the session's name", name, SESSION_CHARS))

    def call(self, client: str, name: str) -> SessionSource:
        """The source of a call without a session."""
        return self._source(client, SINGLE_CALL + name)

    def stored_id(self, client: str, key: str) -> str:
        """The stored form of a client's Idempotency-Key, which is unique within the client."""
        return unique_id(client, fit_name("the Idempotency-Key", key, KEY_CHARS))

    def _source(self, client: str, thread: str) -> SessionSource:
        return SessionSource(platform=self.name, chat_id=client, thread_id=thread, user_id=client)
