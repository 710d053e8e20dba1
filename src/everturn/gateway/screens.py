"""How a platform shows an answer that grows: as a message that is edited, or as a card that has to be closed."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Protocol

from everturn.errors import PlatformError, Refused, TryLater
from everturn.model import SessionSource
from everturn.platform.interface import CanDelete, CanEdit, CanReadBack, CanSend, CanStream, Platform


class Screen(Protocol):
    """The one way to change what people see of a bubble."""

    closes: bool  # its parts have to be ended, once

    async def show(self, to: SessionSource, text: str, key: str) -> str:
        """A new part; returns its id."""
        ...

    async def change(self, to: SessionSource, part: str, text: str) -> None:
        """Replace what a part shows; doing it again does no harm."""
        ...

    async def end(self, to: SessionSource, part: str, text: str) -> None:
        """Its last shape; doing it again does no harm."""
        ...

    async def remove(self, to: SessionSource, part: str) -> bool:
        """Take a part away; doing it again does no harm. False where that can not be."""
        ...


class Edited:
    """Messages that are edited."""

    closes = False

    def __init__(self, sender: CanSend, editor: CanEdit) -> None:
        self._sender = sender
        self._editor = editor

    async def show(self, to: SessionSource, text: str, key: str) -> str:
        """Send it."""
        return await self._sender.send(to, text, key)

    async def change(self, to: SessionSource, part: str, text: str) -> None:
        """Edit it."""
        await harmlessly(self._editor.edit(to, part, text))

    async def end(self, to: SessionSource, part: str, text: str) -> None:
        """Edit it."""
        await self.change(to, part, text)

    async def remove(self, to: SessionSource, part: str) -> bool:
        """Delete it, where the platform can."""
        return await _removed(self._editor, to, part)


class Cards:
    """Cards that are opened, updated and closed."""

    closes = True

    def __init__(self, platform: CanStream) -> None:
        self._platform = platform

    async def show(self, to: SessionSource, text: str, key: str) -> str:
        """Open a card."""
        return await self._platform.open(to, text, key)

    async def change(self, to: SessionSource, part: str, text: str) -> None:
        """Update it."""
        await harmlessly(self._platform.update(to, part, text))

    async def end(self, to: SessionSource, part: str, text: str) -> None:
        """Close it."""
        await harmlessly(self._platform.close(to, part, text))

    async def remove(self, to: SessionSource, part: str) -> bool:
        """Delete it, where the platform can."""
        return await _removed(self._platform, to, part)


async def _removed(platform: object, to: SessionSource, part: str) -> bool:
    if not isinstance(platform, CanDelete):
        return False
    try:
        await harmlessly(platform.delete(to, part))
    except Refused:
        return False
    return True


def screen_of(platform: Platform) -> Screen | None:
    """How a platform shows what grows; None where an answer can only be sent when it is whole."""
    if not isinstance(platform, CanSend):
        return None
    if isinstance(platform, CanStream):
        return Cards(platform)
    return Edited(platform, platform) if isinstance(platform, CanEdit) else None


async def look(platform: object, to: SessionSource, key: str, text: str) -> str | None:
    """The id of a part that may be out already, where the platform's history can be read."""
    return await platform.find(to, key, text) if isinstance(platform, CanReadBack) else None


async def harmlessly(changing: Awaitable[None]) -> None:
    """Change what is on the screen: whatever is not known of the outcome, it can be done again."""
    try:
        await changing
    except (Refused, TryLater):
        raise
    except PlatformError as error:
        raise TryLater(str(error), 0.0) from error
    except Exception as error:
        raise TryLater(f"{type(error).__name__}: {error}", 0.0) from error
