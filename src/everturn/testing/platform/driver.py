"""The driver that the contract questions need of each platform: it lets people act there, and sees what they see."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol, Self

from everturn.clock import Clock, SystemClock
from everturn.model import SessionSource
from everturn.platform.interface import (
    CanDelete,
    CanEdit,
    CanPull,
    CanReact,
    CanSend,
    CanSendFiles,
    CanStream,
    CanTellContact,
    CanType,
    Platform,
)

ABILITIES: frozenset[type] = frozenset({CanDelete, CanEdit, CanReact, CanSendFiles, CanStream, CanTellContact, CanType})


class Adapter(Platform, CanPull, CanSend, Protocol):
    """The least that a chat platform's adapter implements."""


class Driver(Protocol):
    """One platform, from the outside. Used with `async with`."""

    after: str | None  # the cursor that is committed when the test begins

    @property
    def offers(self) -> frozenset[type]:
        """The ABILITIES that the adapter has: the questions about these are asked, and no others."""
        ...

    @property
    def failures(self) -> Mapping[str, float | None]:
        """The kinds of `failing` that it supports; for one of a send: the delay that the platform asks for."""
        ...

    def connected(self, *, clock: Clock | None = None) -> Adapter:
        """Make a new adapter, as after a restart; what an earlier one acknowledged stays acknowledged."""
        ...

    def says(self, text: str, chat: str = "one") -> None:
        """Let somebody write in a direct chat."""
        ...

    def says_everywhere(self, text: str) -> int:
        """Let different people write this in every kind of chat; returns how many conversations that makes."""
        ...

    def place(self, chat: str = "one") -> SessionSource:
        """The source to which replies in that chat are sent."""
        ...

    def texts(self, chat: str = "one") -> list[str]:
        """The texts of ours that people see in that chat."""
        ...

    def code(self, chat: str = "one") -> list[str]:
        """What people see as code, for each of these messages."""
        ...

    def acknowledged(self) -> int:
        """How many of the messages were acknowledged to the platform."""
        ...

    def deliver_again(self) -> None:
        """Deliver the acknowledged messages once more."""
        ...

    def garble(self) -> None:
        """Deliver what is read next in the ways this platform is known for: twice, out of order, with gaps."""
        ...

    def failing(self, kind: str) -> AbstractAsyncContextManager[Callable[[], object]]:
        """Make something fail while the context is entered.

        The next send meets `later`, `revoked` (our credential is), `refused`, `unknown` (and is not done) or
        `unknown_but_done`. With `hangs` or `fails` every read does so, while our account can be looked up. With `away` the
        platform is unreachable. It yields whether a read has met the fault; a platform that cannot tell says no.
        """
        ...

    async def until(self, true: Callable[[], object]) -> None:
        """Wait for a condition on the platform."""
        ...

    def attaches(self, content: bytes, name: str, chat: str = "one") -> None:
        """Let somebody send a document. Only for platforms with files."""
        ...

    def types(self, chat: str = "one") -> bool:
        """Whether people there see our typing indicator. Only for platforms that have one."""
        ...

    def marks(self, message_id: str, chat: str = "one") -> list[str]:
        """Our reactions that people see on a message. Only for platforms with reactions."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *_: object) -> None: ...


class Pauses(SystemClock):
    """The machine's clock, on which the first pauses take no time and are recorded; one more waits until it is released."""

    def __init__(self, count: int) -> None:
        self._left = count
        self.seconds: list[float] = []
        self.enough, self.go_on = asyncio.Event(), asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        """Record a pause, and wait if it is one too many."""
        self.seconds.append(seconds)
        if len(self.seconds) > self._left:
            self.enough.set()
            await self.go_on.wait()
