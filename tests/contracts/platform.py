"""The fakes of `everturn.testing` for the questions that every platform is asked (`everturn.testing.platform`)."""

import asyncio
import re
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

from everturn.clock import Clock
from everturn.errors import OutcomeUnknown, PlatformError, Refused, TryLater
from everturn.model import Attachment, SessionSource
from everturn.outbox.rules.delivery import Surety
from everturn.platform.interface import (
    CanDelete,
    CanEdit,
    CanReact,
    CanSendFiles,
    CanStream,
    CanTellContact,
    CanType,
    TextLimits,
)
from everturn.testing import CardPlatform, EditingPlatform, FakePlatform, FilePlatform, RemotePlatform, SendFault

_CODE = re.compile(r"^```\w*\n(.*?)\n```$", re.DOTALL | re.MULTILINE)
WAITED_S = 3.0  # the delay that a platform asks for
REVOKED_S = 60.0  # replies wait for a new credential, and are not retried too often
SENDING: dict[str, float | None] = {
    "later": WAITED_S,
    "revoked": REVOKED_S,
    "refused": None,
    "unknown": None,
    "unknown_but_done": None,
}
# Calls that a reader of Markdown or HTML would show as something else.
MARKED_CALLS = [
    "echo '[the docs](https://example.org/';touch${IFS}PWNED;echo${IFS}')'",
    "a **b** __c__ `d` ~~e~~ _f_ ``` <b>g</b> &amp; h  i \\\\n",
    "> # - 1. ```",
]
READING: dict[str, float | None] = {"hangs": None, "fails": None, "away": None}


def code_in(text: str) -> str:
    """What of a text in Markdown is code."""
    return "\n".join(_CODE.findall(text))


class FakeDriver:
    """FakePlatform: the adapter and its platform are one; a file keeps the messages."""

    after: str | None = None
    offers: frozenset[type] = frozenset()
    failures = SENDING | READING
    kind: type[FakePlatform] = FakePlatform

    def __init__(self, folder: Path) -> None:
        self._file = folder / "platform"
        self._ordered: deque[SendFault] = deque()
        self._now = self.made()

    def made(self, **more: Any) -> FakePlatform:
        """A new adapter of this kind."""
        faults: Any = _Endless(self._ordered)
        return self.kind(surety=Surety.NEITHER, faults=faults, file=self._file, limits=TextLimits(text=400), **more)

    def connected(self, *, clock: Clock | None = None) -> FakePlatform:  # noqa: ARG002  it never waits
        self._now = self.made()
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
        return [code_in(each) for each in self.texts(chat)]

    def types(self, chat: str = "one") -> bool:
        assert isinstance(self._now, RemotePlatform)
        return chat in self._now.typing_in

    def marks(self, message_id: str, chat: str = "one") -> list[str]:  # noqa: ARG002  the id is enough here
        assert isinstance(self._now, RemotePlatform)
        mark = self._now.marks.get(message_id)
        return [mark] if mark else []

    def acknowledged(self) -> int:
        return self._now.acknowledged

    def deliver_again(self) -> None:
        self._now.acknowledged = 0

    def garble(self) -> None:
        self._now.garble()

    @asynccontextmanager
    async def failing(self, kind: str) -> AsyncIterator[Callable[[], object]]:
        """A read hangs while nothing is written."""
        errors: dict[str, PlatformError] = {
            "later": TryLater("later", WAITED_S),
            "revoked": TryLater("get a new token", REVOKED_S),
            "refused": Refused("no"),
            "unknown": OutcomeUnknown("?"),
            "unknown_but_done": OutcomeUnknown("?"),
        }
        if kind in errors:
            self._ordered.append(SendFault(errors[kind], accepted=kind == "unknown_but_done"))
        self._now.set_disconnected(disconnected=kind in {"away", "fails"})
        yield lambda: self._now.reads
        self._now.set_disconnected(disconnected=False)

    async def until(self, true: Callable[[], object]) -> None:
        await self._now.until(lambda: bool(true()))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.sleep(0)


class Echoing(FilePlatform):
    """A platform with files, each of which is what it is called."""

    async def fetch(self, attachment: Attachment) -> AsyncIterator[bytes]:
        yield attachment.ref.encode()


class FileDriver(FakeDriver):
    """FilePlatform."""

    kind = Echoing
    offers = frozenset({CanSendFiles})


class EditingDriver(FakeDriver):
    """EditingPlatform."""

    kind = EditingPlatform
    offers = frozenset({CanEdit})


class CardDriver(FakeDriver):
    """CardPlatform."""

    kind = CardPlatform
    offers = frozenset({CanStream})


class RemoteDriver(FakeDriver):
    """RemotePlatform."""

    kind = RemotePlatform
    offers = frozenset({CanEdit, CanDelete, CanType, CanReact, CanTellContact})

    def connected(self, *, clock: Clock | None = None) -> FakePlatform:
        self._now = self.made(clock=clock)
        return self._now


class _Endless(Iterator[SendFault | None]):
    """The faults that were ordered, and nothing when there are none."""

    def __init__(self, ordered: deque[SendFault]) -> None:
        self._ordered = ordered

    def __next__(self) -> SendFault | None:
        return self._ordered.popleft() if self._ordered else None
