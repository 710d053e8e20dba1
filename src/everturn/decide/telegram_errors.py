"""What an answer of Telegram that says no demands of us."""

from __future__ import annotations

from everturn.errors import OutcomeUnknown, PlatformError, Refused, TryLater

CONFLICT_S = 5.0
TOKEN_S = 60.0
REVOKED = "Telegram does not know the bot's token any more; get a new one from @BotFather (/token)"


class NotModified(Refused):
    """It already says so: as good as done."""


class Gone(Refused):
    """What was to be deleted is not there: as good as done."""


class Unparsed(Refused):
    """The formatting was not understood; plain text will be."""


class NoThread(Refused):
    """The topic was deleted; the forum is still there."""


class Unfit(Refused):
    """A file is not taken as the picture or voice that it is; as a document it will be."""


class Moved(Refused):
    """The group became a supergroup with another number."""

    def __init__(self, chat_id: int) -> None:
        super().__init__("the group became a supergroup")
        self.chat_id = chat_id


def error_of(
    code: int, description: str, retry_after: float | None = None, moved_to: int | None = None
) -> PlatformError:
    """The error that an answer with this status and these words means."""
    words = description or f"HTTP {code}"
    if moved_to is not None:
        return Moved(moved_to)
    if code == 429:
        return TryLater(words, retry_after or 1.0)
    if code in {401, 404}:
        return TryLater(REVOKED, TOKEN_S)  # nothing is wrong with what we say: it waits for the owner
    if code == 409:
        return TryLater(_conflict(words), CONFLICT_S)
    if code >= 500:
        return OutcomeUnknown(f"Telegram had an error: {words}")
    return _bad_request(words)


def _conflict(words: str) -> str:
    if "webhook" in words:
        return "a webhook is set for this bot, so it can not be polled"
    return "another program reads this bot's messages with the same token; end it, or give each its own bot"


def _bad_request(words: str) -> PlatformError:
    lower = words.lower()
    kind = next((kind for part, kind in _BAD_REQUESTS.items() if part in lower), Refused)
    return kind(words)


_BAD_REQUESTS: dict[str, type[Refused]] = {
    "message is not modified": NotModified,
    "message to delete not found": Gone,
    "can't parse entities": Unparsed,
    "message thread not found": NoThread,
    "topic_deleted": NoThread,
    "photo_invalid_dimensions": Unfit,
    "image_process_failed": Unfit,
    "voice_messages_forbidden": Unfit,
}
