"""What the questions need of each platform: a driver that lets people act there, and sees what they see."""

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
    """The least that a chat platform can do."""


class Driver(Protocol):
    """One platform, from the outside. It is entered with `async with`."""

    after: str | None  # the place that is committed when the story begins

    @property
    def offers(self) -> frozenset[type]:
        """Those of the ABILITIES that its adapter has: it is asked about each, and about no other."""
        ...

    @property
    def failures(self) -> Mapping[str, float | None]:
        """Those of `failing` that it knows; of a send: the delay that it asks for."""
        ...

    def connected(self, *, clock: Clock | None = None) -> Adapter:
        """A new adapter, as after a restart; what was acknowledged by an earlier one stays so."""
        ...

    def says(self, text: str, chat: str = "one") -> None:
        """Somebody writes in a direct chat."""
        ...

    def says_everywhere(self, text: str) -> int:
        """Somebody says it in every kind of place and by different people; how many conversations that makes."""
        ...

    def place(self, chat: str = "one") -> SessionSource:
        """Where replies to that chat go."""
        ...

    def texts(self, chat: str = "one") -> list[str]:
        """What is seen of us in that chat."""
        ...

    def code(self, chat: str = "one") -> list[str]:
        """Of each of these messages, what is seen as code."""
        ...

    def acknowledged(self) -> int:
        """How many of the messages the platform was told are taken."""
        ...

    def deliver_again(self) -> None:
        """What was acknowledged is delivered once more."""
        ...

    def garble(self) -> None:
        """What is read next comes in the ways this platform is known for: twice, in disorder, with holes."""
        ...

    def failing(self, kind: str) -> AbstractAsyncContextManager[Callable[[], object]]:
        """What goes wrong while it is entered.

        The next send meets `later`, `revoked` (our credential is), `refused`, `unknown` (and is not done) or
        `unknown_but_done`. Who we are there is answered, and every read `hangs` or `fails`. Or the platform is `away`.
        It yields whether a read has met it; a platform that can not tell says no.
        """
        ...

    async def until(self, true: Callable[[], object]) -> None:
        """Wait for something to be true of the platform."""
        ...

    def attaches(self, content: bytes, name: str, chat: str = "one") -> None:
        """Somebody sends a document. Asked of those with files."""
        ...

    def types(self, chat: str = "one") -> bool:
        """Whether people there see that we are at work. Asked of those who can show it."""
        ...

    def marks(self, message_id: str, chat: str = "one") -> list[str]:
        """The marks of ours that people see on a message. Asked of those who have marks."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *_: object) -> None: ...


class Pauses(SystemClock):
    """The machine's clock, on which the first pauses take no time and are kept; one more waits until it is let go."""

    def __init__(self, count: int) -> None:
        self._left = count
        self.seconds: list[float] = []
        self.enough, self.go_on = asyncio.Event(), asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        """Keep it, and wait if it is one too many."""
        self.seconds.append(seconds)
        if len(self.seconds) > self._left:
            self.enough.set()
            await self.go_on.wait()
