"""A platform in one file: a folder. People put files `*.txt` into `folder/in/CHAT/`; answers appear in `folder/out/CHAT/`.

everturn.toml: [platforms.own.folder] enabled = true, object = "folder_platform:FolderPlatform", allow = ["*"]; this file in
the home, and the folder beside it.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TypeVar

from everturn.clock import Clock
from everturn.errors import Refused, TryLater
from everturn.model import Inbound, SessionSource
from everturn.outbox.rules.delivery import Surety
from everturn.platform.interface import Contact, TextLimits

T = TypeVar("T")


class FolderPlatform:
    """Reads, sends, and edits messages while they stream."""

    name = "folder"
    account = ""
    surety = Surety.KEYED  # a reply is a file that is named after its key: sent again it is the same file
    limits = TextLimits(text=20_000)

    def __init__(self, home: Path, clock: Clock) -> None:
        self.contact = Contact()  # nothing proves yet that we receive
        self._folder = home / "folder"
        self._clock = clock

    async def inbound(self, after: str | None) -> AsyncIterator[Inbound]:  # noqa: ARG002  acknowledged files are moved away
        """Yield the messages. When the next one is requested the last is committed: only then its file is moved away."""
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
        """Write the message to a file."""
        if not to.chat_id or "/" in to.chat_id:
            raise Refused("a chat is a folder's name")
        folder = self._folder / "out" / to.chat_id
        await done(self._write, folder, f"{key}.txt", text)
        return key

    async def edit(self, to: SessionSource, message_id: str, text: str) -> None:
        """Replace the text in the file; the same text again changes nothing."""
        await self.send(to, text, message_id)

    def _waiting(self) -> list[Path]:
        """The files, oldest first. A missing folder is an error, and not the same as an empty one."""
        found = [path for chat in (self._folder / "in").iterdir() for path in chat.glob("[!.]*.txt")]
        return sorted(found, key=lambda path: (path.stat().st_mtime_ns, path.name))

    def _write(self, folder: Path, name: str, text: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        draft = folder / f".{name}"
        draft.write_text(text, encoding="utf-8")
        draft.replace(folder / name)


async def done(what: Callable[..., T], *given: object) -> T:
    """Run it in a thread; an OS error becomes the PlatformError that names the right reaction."""
    try:
        return await asyncio.to_thread(what, *given)
    except OSError as error:
        raise TryLater(f"the folder cannot be used: {error.strerror}", 5.0) from None
