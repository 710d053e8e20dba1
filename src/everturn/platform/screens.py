"""How a platform shows a streaming message: as a message that is edited, or as a card that has to be closed."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Protocol

from everturn.errors import PlatformError, Refused, TryLater
from everturn.model import SessionSource
from everturn.platform.interface import CanDelete, CanEdit, CanReadBack, CanSend, CanStream, Platform


class MessageScreen(Protocol):
    """Sends, edits and removes the parts of a streaming message."""

    closes: bool  # its parts have to be ended, once

    async def show(self, to: SessionSource, text: str, key: str) -> str:
        """Send a new part; returns its id."""
        ...

    async def change(self, to: SessionSource, part: str, text: str) -> None:
        """Replace the text of a part; repeating that does no harm."""
        ...

    async def end(self, to: SessionSource, part: str, text: str) -> None:
        """Set the final text of a part; repeating that does no harm."""
        ...

    async def remove(self, to: SessionSource, part: str) -> bool:
        """Delete a part; repeating that does no harm. False where the platform cannot."""
        ...


class EditScreen:
    """Streaming messages as messages that are edited."""

    closes = False

    def __init__(self, sender: CanSend, editor: CanEdit) -> None:
        self._sender = sender
        self._editor = editor

    async def show(self, to: SessionSource, text: str, key: str) -> str:
        """Send a message."""
        return await self._sender.send(to, text, key)

    async def change(self, to: SessionSource, part: str, text: str) -> None:
        """Edit the message."""
        await retryable(self._editor.edit(to, part, text))

    async def end(self, to: SessionSource, part: str, text: str) -> None:
        """Edit the message."""
        await self.change(to, part, text)

    async def remove(self, to: SessionSource, part: str) -> bool:
        """Delete the message, where the platform can."""
        return await _removed(self._editor, to, part)


class CardScreen:
    """Streaming messages as cards that are opened, updated and closed."""

    closes = True

    def __init__(self, platform: CanStream) -> None:
        self._platform = platform

    async def show(self, to: SessionSource, text: str, key: str) -> str:
        """Open a card."""
        return await self._platform.open(to, text, key)

    async def change(self, to: SessionSource, part: str, text: str) -> None:
        """Update the card."""
        await retryable(self._platform.update(to, part, text))

    async def end(self, to: SessionSource, part: str, text: str) -> None:
        """Close the card."""
        await retryable(self._platform.close(to, part, text))

    async def remove(self, to: SessionSource, part: str) -> bool:
        """Delete the card, where the platform can."""
        return await _removed(self._platform, to, part)


async def _removed(platform: object, to: SessionSource, part: str) -> bool:
    if not isinstance(platform, CanDelete):
        return False
    try:
        await retryable(platform.delete(to, part))
    except Refused:
        return False
    return True


def screen_of(platform: Platform) -> MessageScreen | None:
    """How a platform shows streaming messages; None where an answer can only be sent as a whole."""
    if not isinstance(platform, CanSend):
        return None
    if isinstance(platform, CanStream):
        return CardScreen(platform)
    return EditScreen(platform, platform) if isinstance(platform, CanEdit) else None


async def find_sent(platform: object, to: SessionSource, key: str, text: str) -> str | None:
    """The id of a part that may have been sent, if the platform's history can be read and has it."""
    return await platform.find(to, key, text) if isinstance(platform, CanReadBack) else None


async def retryable(changing: Awaitable[None]) -> None:
    """Await a call that may be repeated: every failure but Refused is raised as TryLater."""
    try:
        await changing
    except (Refused, TryLater):
        raise
    except PlatformError as error:
        raise TryLater(str(error), 0.0) from error
    except Exception as error:
        raise TryLater(f"{type(error).__name__}: {error}", 0.0) from error
