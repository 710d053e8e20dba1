"""File access confined to one folder: every component of a path is opened by itself, from the folder down, following no link.

A link that is put in the way meanwhile is not followed either: an open folder stays the folder that was opened.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from everturn.agent.toolbox import ToolError

LONGEST_PATH = 1024
DEEPEST = 32
MOST_FOLDERS = 10_000  # that one search opens
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)
_INSIDE = _FOLDER | getattr(os, "O_NOFOLLOW", 0)
_FILE = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOCTTY", 0)
_REASONS = {
    errno.ENOENT: "there is no such file or folder",
    errno.ENOTDIR: "a part of the path is not a folder, or is a link, which is never followed",
    errno.ELOOP: "it is a link, which is never followed",
    errno.EACCES: "access is denied",
    errno.EPERM: "access is denied",
    errno.EISDIR: "it is a folder",
    errno.ENOSPC: "the disk is full",
    errno.ENAMETOOLONG: "the name is too long",
    errno.EROFS: "the disk is read-only",
}


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a folder."""

    name: str
    kind: str  # file, folder, link, other
    size: int = 0


def parts_of(path: str) -> tuple[str, ...]:
    """The components of a path below the folder. Raises ToolError for a path that leads elsewhere."""
    if "\x00" in path or len(path) > LONGEST_PATH:
        raise ToolError("the path is too long or holds a NUL character.")
    if path.startswith(("/", "\\", "~")) or Path(path).is_absolute():
        raise ToolError("give a path relative to the folder, such as notes/today.txt.")
    parts = tuple(part for part in path.split("/") if part not in {"", "."})
    if ".." in parts or len(parts) > DEEPEST:
        raise ToolError("the path leaves the folder or is too deep.")
    return parts


class Folder:
    """Reads and writes below one folder, in the calling thread."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def entries(self, path: str) -> list[Entry]:
        """The entries of a folder, by name."""
        with self._opened(parts_of(path)) as number:
            return sorted(_entries(number), key=lambda entry: entry.name)

    def walk(self, path: str) -> Iterator[tuple[str, Entry]]:
        """Every file below a folder, with its path; links are not followed, hidden folders are left out."""
        waiting, opened = ["/".join(parts_of(path))], 0
        while waiting and opened < MOST_FOLDERS:
            opened += 1
            here = waiting.pop()
            with suppress(ToolError):  # it was taken away meanwhile
                for entry in self.entries(here):
                    below = f"{here}/{entry.name}" if here else entry.name
                    if entry.kind == "folder" and not entry.name.startswith(".") and below.count("/") < DEEPEST:
                        waiting.append(below)
                    elif entry.kind == "file":
                        yield below, entry

    def read(self, path: str, most: int) -> bytes:
        """Read a whole file. Raises ToolError for one that is larger than `most`, or is not a plain file."""
        *above, name = self._named(path)
        with self._opened(tuple(above)) as number, _reasons(path):
            _expect_file(os.stat(name, dir_fd=number, follow_symlinks=False))
            file = os.open(name, os.O_RDONLY | os.O_NONBLOCK | _FILE, dir_fd=number)
            with os.fdopen(file, "rb") as stream:
                _expect_file(os.fstat(file))
                data = stream.read(most + 1)
        if len(data) > most:
            raise ToolError(f"{path} is larger than {most} bytes.")
        return data

    def write(self, path: str, data: bytes, key: str) -> bool:
        """Write a whole file atomically; True when it is new. A repetition with the same key does the same."""
        *above, name = self._named(path)
        with self._opened(tuple(above), make=True) as number, _reasons(path):
            mode = _mode_of(name, number)
            draft = f".everturn-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
            with suppress(FileNotFoundError):
                os.unlink(draft, dir_fd=number)  # what an interrupted attempt left of this very call
            try:
                _write_new(draft, data, 0o644 if mode is None else mode, number)
                os.replace(draft, name, src_dir_fd=number, dst_dir_fd=number)
            except OSError:
                with suppress(OSError):
                    os.unlink(draft, dir_fd=number)
                raise
            os.fsync(number)
            return mode is None

    def _named(self, path: str) -> tuple[str, ...]:
        parts = parts_of(path)
        if not parts:
            raise ToolError("give the path of a file.")
        return parts

    @contextmanager
    def _opened(self, parts: tuple[str, ...], *, make: bool = False) -> Iterator[int]:
        """Open the folder at this path, component by component."""
        if os.open not in os.supports_dir_fd:
            raise ToolError("files are not available on this system.")
        with _reasons("the folder of the files tool"):
            number = os.open(self._root, _FOLDER)
        try:
            for part in parts:
                with _reasons("/".join(parts)):
                    if make:
                        with suppress(FileExistsError):
                            os.mkdir(part, 0o755, dir_fd=number)
                    inner = os.open(part, _INSIDE, dir_fd=number)
                os.close(number)
                number = inner
            yield number
        finally:
            os.close(number)


@contextmanager
def _reasons(path: str) -> Iterator[None]:
    """Turn OS errors into texts that hold no path outside the folder."""
    try:
        yield
    except (OSError, ValueError) as error:
        number = getattr(error, "errno", None)
        raise ToolError(f"{path}: {_REASONS.get(number or 0, 'it cannot be used')}.") from error


def _entries(number: int) -> Iterator[Entry]:
    with os.scandir(number) as found:
        for each in found:
            with suppress(OSError):  # it was taken away meanwhile
                yield _entry(each)


def _entry(each: os.DirEntry[str]) -> Entry:
    if each.is_symlink():
        return Entry(each.name, "link")
    if each.is_dir(follow_symlinks=False):
        return Entry(each.name, "folder")
    if each.is_file(follow_symlinks=False):
        return Entry(each.name, "file", each.stat(follow_symlinks=False).st_size)
    return Entry(each.name, "other")


def _expect_file(state: os.stat_result) -> None:
    if stat.S_ISLNK(state.st_mode):
        raise ToolError("it is a link, which is never followed.")
    if stat.S_ISDIR(state.st_mode):
        raise ToolError("it is a folder.")
    if not stat.S_ISREG(state.st_mode):
        raise ToolError("it is not a plain file.")


def _mode_of(name: str, number: int) -> int | None:
    """The mode of an existing file; None when there is none. Raises ToolError for what is not a plain file."""
    try:
        state = os.stat(name, dir_fd=number, follow_symlinks=False)
    except FileNotFoundError:
        return None
    _expect_file(state)
    return stat.S_IMODE(state.st_mode) & 0o777


def _write_new(name: str, data: bytes, mode: int, number: int) -> None:
    file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FILE, mode, dir_fd=number)
    with os.fdopen(file, "wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(file)
