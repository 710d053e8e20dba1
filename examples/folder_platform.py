"""A platform in one file: a folder. Who writes puts a file `*.txt` into `folder/in/CHAT/`; answers appear in `folder/out/CHAT/`.

everturn.toml: [platforms.own.folder] enabled = true, object = "folder_platform:FolderPlatform", allow = ["*"]; this file in
the home, and the folder beside it.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TypeVar

from everturn.clock import Clock
from everturn.decide.delivery import Surety
from everturn.errors import Refused, TryLater
from everturn.model import Inbound, SessionSource
from everturn.platform.interface import Contact, Limits

T = TypeVar("T")


class FolderPlatform:
    """Reads, sends, and shows answers while they grow."""

    name = "folder"
    account = ""
    surety = Surety.KEYED  # a reply is a file that is called after its key: sent again it is the same file
    limits = Limits(text=20_000)

    def __init__(self, home: Path, clock: Clock) -> None:
        self.contact = Contact()  # nothing proves yet that we receive
        self._folder = home / "folder"
        self._clock = clock

    async def inbound(self, after: str | None) -> AsyncIterator[Inbound]:  # noqa: ARG002  the folder knows what was taken
        """What was put there. Being asked for the next one says that the last is committed: only then it is moved away."""
        while True:
            waiting = await done(self._waiting)
            self.contact = self.contact.answered(self._clock.now())
            for path in waiting:
                source = SessionSource(platform=self.name, chat_id=path.parent.name, user_id=path.parent.name)
                text = await done(path.read_text, "utf-8", "replace")
                yield Inbound(id=f"{path.parent.name}/{path.name}", source=source, text=text)
                await done(path.rename, path.with_suffix(".taken"))
            await self._clock.sleep(1.0)

    async def send(self, to: SessionSource, text: str, key: str) -> str:
        """Write a file."""
        if not to.chat_id or "/" in to.chat_id:
            raise Refused("a chat is a folder's name")
        folder = self._folder / "out" / to.chat_id
        await done(self._write, folder, f"{key}.txt", text)
        return key

    async def edit(self, to: SessionSource, message_id: str, text: str) -> None:
        """The same file with other words; the same words again change nothing."""
        await self.send(to, text, message_id)

    def _waiting(self) -> list[Path]:
        """The oldest first. A folder that is not there is trouble, and not the same as one in which nothing is."""
        found = [path for chat in (self._folder / "in").iterdir() for path in chat.glob("[!.]*.txt")]
        return sorted(found, key=lambda path: (path.stat().st_mtime_ns, path.name))

    def _write(self, folder: Path, name: str, text: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        draft = folder / f".{name}"
        draft.write_text(text, encoding="utf-8")
        draft.replace(folder / name)


async def done(what: Callable[..., T], *given: object) -> T:
    """Do it in a thread; what keeps us from it is named by the reaction it demands."""
    try:
        return await asyncio.to_thread(what, *given)
    except OSError as error:
        raise TryLater(f"the folder can not be used: {error.strerror}", 5.0) from None
