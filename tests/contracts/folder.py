"""The platform in one file (examples/folder_platform.py) for the questions that every platform is asked, as its author would ask them."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Self

from everturn.clock import Clock, SystemClock
from everturn.model import SessionSource
from everturn.platform.interface import CanEdit, CanTellContact
from examples.folder_platform import FolderPlatform
from tests.contracts.platform import code_in
from tests.waiting import poll

FAILURES: dict[str, float | None] = {"later": 5.0, "fails": None, "away": None}


class Quick(SystemClock):
    """The machine's clock, on which no pause is long."""

    async def sleep(self, seconds: float) -> None:
        await super().sleep(min(seconds, 0.01))


class FolderDriver:
    """People put files there. A folder that was moved away is a platform that cannot be reached."""

    after: str | None = None
    offers = frozenset({CanEdit, CanTellContact})
    failures = FAILURES

    def __init__(self, home: Path) -> None:
        self._home = home
        self._folder = home / "folder"
        self._count = 0
        (self._folder / "in").mkdir(parents=True)

    def connected(self, *, clock: Clock | None = None) -> FolderPlatform:
        return FolderPlatform(self._home, clock or Quick())

    def says(self, text: str, chat: str = "one") -> None:
        self._count += 1
        place = self._folder / "in" / chat
        place.mkdir(exist_ok=True)
        draft = place / f".{self._count:03}"
        draft.write_text(text, encoding="utf-8")
        draft.rename(place / f"{self._count:03}.txt")

    def says_everywhere(self, text: str) -> int:
        for chat in ("ann", "bob"):
            self.says(text, chat)
        return 2

    def place(self, chat: str = "one") -> SessionSource:
        return SessionSource(platform="folder", chat_id=chat, user_id=chat)

    def texts(self, chat: str = "one") -> list[str]:
        return [path.read_text() for path in sorted((self._folder / "out" / chat).glob("[!.]*.txt"), key=_key)]

    def code(self, chat: str = "one") -> list[str]:
        return [code_in(each) for each in self.texts(chat)]

    def acknowledged(self) -> int:
        return len(self._taken())

    def deliver_again(self) -> None:
        for path in self._taken():
            path.rename(path.with_suffix(".txt"))

    def garble(self) -> None:
        self.deliver_again()

    @asynccontextmanager
    async def failing(self, kind: str) -> AsyncIterator[Callable[[], object]]:
        in_the_way, elsewhere, here = self._folder / "out" / "one", self._home / "elsewhere", self._folder
        if kind == "later":
            in_the_way.parent.mkdir()
            in_the_way.touch()
        else:
            self._folder = here.rename(elsewhere)
        yield lambda: False
        if kind == "later":
            in_the_way.unlink()
        else:
            self._folder = elsewhere.rename(here)

    def _taken(self) -> list[Path]:
        return list(self._folder.glob("in/*/*.taken"))

    def attaches(self, content: bytes, name: str, chat: str = "one") -> None:
        raise NotImplementedError

    def types(self, chat: str = "one") -> bool:
        raise NotImplementedError

    def marks(self, message_id: str, chat: str = "one") -> list[str]:
        raise NotImplementedError

    async def until(self, true: Callable[[], object]) -> None:
        await poll(lambda: bool(true()))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.sleep(0)


def _key(path: Path) -> tuple[str, int]:
    """Replies are called after their keys, which grow: PART is a number."""
    reply, _, part = path.stem.rpartition("-")
    return reply, int(part)
