"""The home's folder of files: dropped into the page, received with messages, or sent by a tool.

A file is whole on disk before it has its name. A crash leaves only drafts, which the next process removes.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import secrets
import threading
import time
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from everturn.errors import NoRoom, TooLarge
from everturn.home.rules import HEAD_BYTES, Upload, content_id, is_from_content, sniffed, too_large

MEGABYTE = 1024 * 1024
DRAFT = ".draft"


@dataclass(frozen=True, slots=True)
class SavedFile:
    """A file that is whole on disk."""

    upload: Upload
    size: int
    type: str


@dataclass(frozen=True, slots=True)
class _Draft:
    size: int
    head: bytes
    digest: bytes


class Media:
    """Stores files in the folder. `most` bounds one file, `most_together` all; several may be written at once."""

    def __init__(self, folder: Path, most: int = 20 * MEGABYTE, most_together: int = 1000 * MEGABYTE) -> None:
        self.folder = folder
        self.most = most
        self._together = most_together
        self._used = 0  # by whole files, as they were last counted
        self._counted = self._swept = False
        self._writing: dict[str, int] = {}  # how much of each draft is written: its room is taken
        self._lock = threading.Lock()

    async def keep(self, name: str, parts: AsyncIterator[bytes], *, by_content: bool = False) -> SavedFile:
        """Write a file whole, then give it its name: drawn at random, or made from its bytes. Raises TooLarge, NoRoom."""
        number = secrets.token_urlsafe(16)
        draft = self.folder / f"{number}{DRAFT}"
        await asyncio.to_thread(self._prepare)
        try:
            written = await self._write(draft, parts)
            upload = Upload(content_id(written.digest) if by_content else number, name)
            await _finish_in_thread(self._give_name, draft, upload, written.size)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
        finally:
            self._writing.pop(draft.name, None)
        return SavedFile(upload, written.size, sniffed(written.head))

    def remove(self, upload: Upload) -> None:
        """Delete a file."""
        self.path_of(upload).unlink(missing_ok=True)
        self._counted = False

    def path_of(self, upload: Upload) -> Path:
        """The path of a file, whether it exists or not."""
        return self.folder / upload.stored

    def find(self, upload: Upload) -> SavedFile | None:
        """The file, or None if it does not exist."""
        try:
            with self.path_of(upload).open("rb") as file:
                return SavedFile(upload, os.fstat(file.fileno()).st_size, sniffed(file.read(HEAD_BYTES)))
        except OSError:
            return None

    def beginning(self, upload: Upload, most: int) -> bytes:
        """The first bytes of a file; empty when it does not exist."""
        try:
            with self.path_of(upload).open("rb") as file:
                return file.read(most)
        except OSError:
            return b""

    def touch(self, upload: Upload) -> bool:
        """Restart the expiry time of a file; False when it does not exist."""
        try:
            with self._lock:  # `expire` does not remove it meanwhile
                os.utime(self.path_of(upload))
        except OSError:
            return False
        return True

    def expire(self, older_than_s: float, needed: Collection[str]) -> int:
        """Remove files that came with messages or were sent, are that old and are not needed (by id); returns how many."""
        gone, limit = 0, time.time() - older_than_s
        for path in self.folder.iterdir() if self.folder.is_dir() else ():
            number = path.name.partition(".")[0]
            with suppress(OSError):
                if is_from_content(number) and number not in needed and path.stat().st_mtime < limit:
                    gone += _has_content_id(path, number) and self._remove_unless_touched(path, limit)
        self._counted = self._counted and not gone
        return gone

    def _remove_unless_touched(self, path: Path, limit: float) -> bool:
        """Remove a file, unless it was needed or received again while it was read."""
        with self._lock:
            if path.stat().st_mtime >= limit:
                return False
            path.unlink()
            return True

    async def _write(self, draft: Path, parts: AsyncIterator[bytes]) -> _Draft:
        size, head, digest = 0, b"", hashlib.sha256()
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            async for part in parts:
                size += len(part)
                self._take_room(draft.name, size)
                head = head if len(head) >= HEAD_BYTES else (head + part)[:HEAD_BYTES]
                digest.update(part)
                await _finish_in_thread(file.write, part)
            await _finish_in_thread(file.flush)
            await _finish_in_thread(os.fsync, file.fileno())
        return _Draft(size, head, digest.digest())

    def _take_room(self, draft: str, size: int) -> None:
        if size > self.most:
            raise TooLarge(too_large(self.most))
        self._writing[draft] = size
        if self._used + sum(self._writing.values()) > self._together:
            raise NoRoom("the home has no more room for files; remove some from its folder files")

    def _give_name(self, draft: Path, upload: Upload, size: int) -> None:
        with self._lock:  # no other thread counts meanwhile
            more = 0 if self.find(upload) else size  # the same bytes take their room once
            draft.replace(self.path_of(upload))
            self._used += more

    def _prepare(self) -> None:
        """Create the folder, count its files, and remove the drafts of an earlier process."""
        with self._lock:  # no draft begins while those of an earlier process are removed
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not self._swept:
                for draft in self.folder.glob(f"*{DRAFT}"):
                    draft.unlink(missing_ok=True)
                self._swept = True
            if not self._counted:
                self._counted = True
                self._used = sum(_size(path) for path in self.folder.iterdir() if path.suffix != DRAFT)


async def _finish_in_thread(work: Callable[..., object], *given: object) -> None:
    """Run work in a thread and wait for it even when cancelled: a file is not closed while it is written."""
    working = asyncio.ensure_future(asyncio.to_thread(work, *given))
    try:
        await asyncio.shield(working)
    except asyncio.CancelledError:
        await asyncio.gather(working, return_exceptions=True)
        raise


def _has_content_id(path: Path, number: str) -> bool:
    """Whether a file's bytes match its id: the folder may also be the agent's, whose own files are left alone."""
    with path.open("rb") as file:
        return content_id(hashlib.file_digest(file, "sha256").digest()) == number


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0  # it was removed meanwhile
