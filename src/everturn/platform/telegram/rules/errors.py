"""Maps an error response of Telegram to the error that names the right reaction."""

from __future__ import annotations

from everturn.errors import OutcomeUnknown, PlatformError, Refused, TryLater

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
