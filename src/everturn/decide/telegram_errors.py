"""What an answer of Telegram that says no demands of us."""

from __future__ import annotations

from everturn.errors import OutcomeUnknown, PlatformError, Refused, TryLater

CONFLICT_S = 5.0


class NotModified(Refused):
    """It already says so: as good as done."""


class Unparsed(Refused):
    """The formatting was not understood; plain text will be."""


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
        return Refused("Telegram does not know the bot's token any more; get a new one from @BotFather (/token)")
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
    if "message is not modified" in lower:
        return NotModified(words)
    if "can't parse entities" in lower:
        return Unparsed(words)
    return Refused(words)
