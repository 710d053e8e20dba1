"""What the suite of all platforms needs of each: a driver that lets people act there, and sees what they see.

A platform joins by one such class; tests/platform/test_contract.py then asks it the same questions as the others.
"""

import asyncio
import re
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, Protocol, Self

from everturn.clock import Clock, SystemClock
from everturn.decide.delivery import Surety
from everturn.errors import OutcomeUnknown, Refused, TryLater
from everturn.model import Attachment, SessionSource
from everturn.platform.interface import CanPull, CanSend, Limits, Platform
from everturn.testing import CardPlatform, EditingPlatform, FakePlatform, Fault, FilePlatform

_CODE = re.compile(r"^```\w*\n(.*?)\n```$", re.DOTALL | re.MULTILINE)
WAITED_S = 3.0  # the delay that a platform which wants to be left alone asks for
REVOKED_S = 60.0  # what we say waits for a new credential, and is not tried too often


class Adapter(Platform, CanPull, CanSend, Protocol):
    """The least that a chat platform can do."""


class Driver(Protocol):
    """One platform, from the outside. It is entered with `async with`."""

    after: str | None  # the place that is committed when the story begins

    def connected(self) -> Adapter:
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

    def attaches(self, content: bytes, name: str, chat: str = "one") -> None:
        """Somebody sends a document."""
        ...

    def fail(self, kind: str) -> None:
        """The next send meets `later`, `revoked` (our credential is), `refused`, `unknown` (and is not done) or
        `unknown_but_done`.
        """
        ...

    async def until(self, true: Callable[[], object]) -> None:
        """Wait for something to be true of the platform."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *_: object) -> None: ...


class Remote(Driver, Protocol):
    """A platform on the other side of a network."""

    def connected(self, *, clock: Clock | None = None) -> Adapter:
        """The same, with a clock of the test's."""
        ...

    def garble(self) -> None:
        """What is read next comes in the ways this platform is known for: twice, in disorder, with holes."""
        ...

    async def away(self) -> None:
        """It can not be reached."""
        ...

    async def back(self) -> None:
        """It can be again."""
        ...


class Pauses(SystemClock):
    """The machine's clock, on which the first pauses take no time and are kept; one more waits until it is let go."""

    def __init__(self, count: int) -> None:
        self._left = count
        self.seconds: list[float] = []
        self.enough, self.go_on = asyncio.Event(), asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        self.seconds.append(seconds)
        if len(self.seconds) > self._left:
            self.enough.set()
            await self.go_on.wait()


class FakeDriver:
    """FakePlatform: the adapter and what it talks to are one; a file keeps what people said."""

    after: str | None = None
    kind: type[FakePlatform] = FakePlatform

    def __init__(self, folder: Path) -> None:
        self._file = folder / "platform"
        self._ordered: deque[Fault] = deque()
        self._now = self._made(1)

    def connected(self) -> FakePlatform:
        self._now = self._made(1)
        return self._now

    def says(self, text: str, chat: str = "one") -> None:
        self._now.say(chat, text)

    def attaches(self, content: bytes, name: str, chat: str = "one") -> None:
        self._now.attach(chat, "", [Attachment(kind="document", ref=content.decode(), name=name)])

    def says_everywhere(self, text: str) -> int:
        places = [("a", "ann", "dm", ""), ("b", "bob", "dm", ""), ("g", "ann", "group", ""), ("g", "bob", "group", "")]
        places += [("g", "ann", "group", "t1"), ("g", "ann", "group", "t2")]
        for chat, who, kind, thread in places:
            about = {"user_id": who, "chat_type": kind} | ({"thread_id": thread} if thread else {})
            self._now.say(chat, text, **about)
        return len(places)

    def place(self, chat: str = "one") -> SessionSource:
        return SessionSource(platform=self._now.name, chat_id=chat, user_id="ann")

    def texts(self, chat: str = "one") -> list[str]:
        return self._now.texts(chat)

    def code(self, chat: str = "one") -> list[str]:
        return ["\n".join(_CODE.findall(each)) for each in self.texts(chat)]

    def acknowledged(self) -> int:
        return self._now.acknowledged

    def deliver_again(self) -> None:
        self._now.acknowledged = 0

    def fail(self, kind: str) -> None:
        faults = {
            "later": Fault(TryLater("later", WAITED_S)),
            "revoked": Fault(TryLater("get a new token", REVOKED_S)),
            "refused": Fault(Refused("no")),
            "unknown": Fault(OutcomeUnknown("?")),
            "unknown_but_done": Fault(OutcomeUnknown("?"), accepted=True),
        }
        self._ordered.append(faults[kind])

    async def until(self, true: Callable[[], object]) -> None:
        await self._now.until(lambda: bool(true()))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.sleep(0)

    def _made(self, repeat: int) -> FakePlatform:
        faults: Any = _Endless(self._ordered)
        return self.kind(surety=Surety.NEITHER, faults=faults, file=self._file, limits=Limits(text=400), repeat=repeat)


class Echoing(FilePlatform):
    """A platform with files, each of which is what it is called."""

    async def fetch(self, attachment: Attachment) -> AsyncIterator[bytes]:
        yield attachment.ref.encode()


class FileDriver(FakeDriver):
    """FilePlatform."""

    kind = Echoing


class EditingDriver(FakeDriver):
    """EditingPlatform."""

    kind = EditingPlatform


class CardDriver(FakeDriver):
    """CardPlatform."""

    kind = CardPlatform


class _Endless(Iterator[Fault | None]):
    """The faults that were ordered, and nothing when there are none."""

    def __init__(self, ordered: deque[Fault]) -> None:
        self._ordered = ordered

    def __next__(self) -> Fault | None:
        return self._ordered.popleft() if self._ordered else None
