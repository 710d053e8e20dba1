"""What the gateway asks of a chat platform. The core is narrow; every other ability is a protocol of its own that an
adapter may have. A platform that cannot send has its replies delivered as events (api, web).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from everturn.decide.delivery import Surety
from everturn.model import Inbound, SessionSource


@dataclass(frozen=True, slots=True)
class Limits:
    """The longest text, measured in the platform's own unit, and how long a reply stays of use."""

    text: int = 4000
    unit: Callable[[str], int] = len
    valid_s: float | None = None


class Platform(Protocol):
    """Where people write."""

    @property
    def name(self) -> str:
        """telegram, matrix, api, ..."""
        ...

    @property
    def account(self) -> str:
        """Which of our accounts there; empty for the only one."""
        ...


@runtime_checkable
class CanPull(Protocol):
    """It is read by us."""

    def inbound(self) -> AsyncIterator[Inbound]:
        """The messages that arrive. Asking for the next one acknowledges the last, which is committed by then."""
        ...


@runtime_checkable
class CanSend(Protocol):
    """Replies are sent to it. Library errors become TryLater, Refused or OutcomeUnknown inside the adapter."""

    @property
    def surety(self) -> Surety:
        """What it lets us know about a send whose answer was lost."""
        ...

    @property
    def limits(self) -> Limits:
        """What one message may hold."""
        ...

    async def send(self, to: SessionSource, text: str, key: str) -> str:
        """Send one part under a key that is the same for every repetition; returns the platform's id of it."""
        ...


@runtime_checkable
class CanEdit(Protocol):
    """What was sent to it can be replaced."""

    async def edit(self, to: SessionSource, message_id: str, text: str) -> None:
        """Replace a part that was sent; the same text again does no harm. Errors are those of `send`."""
        ...


@runtime_checkable
class CanReadBack(Protocol):
    """It can be asked whether a part is out."""

    async def find(self, to: SessionSource, key: str, text: str) -> str | None:
        """The platform's id of the part sent under this key, None when it is not there."""
        ...
