"""Rules of Telegram: what an error means, how text is written, which messages are an album, and which edit counts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from everturn.commands.rules.registry import parse_command
from everturn.errors import OutcomeUnknown, PlatformError, Refused, TryLater
from everturn.model import Heard, Inbound
from everturn.platform import rules

CONFLICT_S = 5.0
TOKEN_S = 60.0
REVOKED = "Telegram rejects the bot's token; get a new one from @BotFather (/token)"


class NotModified(Refused):
    """The message has this text already: as good as done."""


class AlreadyGone(Refused):
    """The message to delete does not exist: as good as done."""


class Unparsed(Refused):
    """Telegram could not parse the formatting; plain text will be accepted."""


class NoThread(Refused):
    """The topic was deleted; the forum is still there."""


class Unfit(Refused):
    """A file is not accepted as a picture or voice message; as a document it will be."""


class ChatMoved(Refused):
    """The group became a supergroup with another id."""

    def __init__(self, chat_id: int) -> None:
        super().__init__("the group became a supergroup")
        self.chat_id = chat_id


def error_of(
    code: int, description: str, retry_after: float | None = None, moved_to: int | None = None
) -> PlatformError:
    """The error for a response with this status and description."""
    text = description or f"HTTP {code}"
    if moved_to is not None:
        return ChatMoved(moved_to)
    if code == 429:
        return TryLater(text, retry_after or 1.0)
    if code in {401, 404}:
        return TryLater(REVOKED, TOKEN_S)  # the message itself is fine: it waits for the owner
    if code == 409:
        return TryLater(_conflict(text), CONFLICT_S)
    if code >= 500:
        return OutcomeUnknown(f"Telegram had an error: {text}")
    return _bad_request(text)


def _conflict(text: str) -> str:
    if "webhook" in text:
        return "a webhook is set for this bot, so it cannot be polled"
    return "another program reads this bot's messages with the same token; stop it, or give each its own bot"


def _bad_request(text: str) -> PlatformError:
    lower = text.lower()
    kind = next((kind for part, kind in _BAD_REQUESTS.items() if part in lower), Refused)
    return kind(text)


_BAD_REQUESTS: dict[str, type[Refused]] = {
    "message is not modified": NotModified,
    "message to delete not found": AlreadyGone,
    "can't parse entities": Unparsed,
    "message thread not found": NoThread,
    "topic_deleted": NoThread,
    "photo_invalid_dimensions": Unfit,
    "image_process_failed": Unfit,
    "voice_messages_forbidden": Unfit,
}


# Converts Markdown to the HTML that Telegram understands: a few tags, and line breaks as they are.
# The visible text is never longer than what it was made from, so that a piece that fits still fits.


_TAG = re.compile(r"<[^>]*>")
TELEGRAM = rules.Dialect(bold="b", slanted="i", struck="s")


def to_html(text: str) -> str:
    """The text with its Markdown as HTML."""
    return rules.to_html(text, TELEGRAM)


def exact_html(text: str) -> str:
    """The text as it is, in HTML: an approval request shows what runs, whatever marks stand in it."""
    return rules.exact_html(text, TELEGRAM)


def shows(html: str) -> bool:
    """Whether anything is left to be seen: Telegram refuses a text of nothing but tags and space."""
    return bool(_TAG.sub("", html).strip())


# Albums where our name must be mentioned: they arrive message by message, and our name stands under one of them.


def whole(batch: Sequence[Inbound]) -> list[Inbound]:
    """The messages of a batch, where every part of an album is for us if one part in the same batch is."""
    named = {album_of(each) for each in batch if each.album and each.what is Heard.SAID and not each.only_with_album}
    return [taken(each) if each.only_with_album and album_of(each) in named else each for each in batch]


def undecided(heard: Mapping[int, Inbound]) -> set[int]:
    """The update ids of messages that are for us only if a later part of their album is, and of their edits."""
    parts = {each.id for each in heard.values() if each.only_with_album}
    return {number for number, each in heard.items() if each.id in parts or each.of in parts}


def taken(part: Inbound) -> Inbound:
    """Mark a part of an album as being for us."""
    return replace(part, only_with_album=False)


def album_of(inbound: Inbound) -> tuple[str | None, str | None]:
    """The chat and the album of a message."""
    return inbound.source.chat_id, inbound.album


# Edits that arrive in one batch with the message they change.


def folded(batch: Sequence[Inbound]) -> list[Inbound]:
    """The messages of a batch, each with the text of its last edit in the same batch.

    After a disconnect a message and its edit arrive together: taken one after the other, the message would begin its turn with
    a text that is already replaced. The edits follow all the same, for a message that an earlier process has stored.
    """
    edits = {(each.of, each.source.user_id): each for each in batch if each.what is Heard.EDITED}
    if not edits:
        return list(batch)
    return [_revised(each, edits.get((each.id, each.source.user_id))) for each in batch]


def _revised(said: Inbound, edit: Inbound | None) -> Inbound:
    if said.what is not Heard.SAID or edit is None or _commands(said) != _commands(edit):
        return said
    return replace(said, text=edit.text, attachments=edit.attachments, edition=edit.edition)


def _commands(inbound: Inbound) -> bool:
    """Whether it is a command: a text does not become one by an edit, nor a command a text."""
    return inbound.text.startswith("/") and parse_command(inbound.text) is not None
