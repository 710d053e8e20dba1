"""The file tools on one folder: list, read, write, edit, search. Nothing outside it is reached; everything is bounded."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from typing import Annotated

from everturn.agent.folder import Entry, Folder
from everturn.agent.toolbox import Arguments, Text, Tool, ToolError, ToolPlace, says, tool
from everturn.home.rules import upload_at
from everturn.model import Effect

READ = "Read a text file. One that the user dropped into the conversation is read by its address, /files/..."
_PATH = says("Relative to the folder, such as notes/today.txt.")


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesSettings:
    """The folder, whether it may be changed, and how much is read, listed and searched at most."""

    folder: Path
    uploads: Path | None = None  # the folder of what people dropped into conversations: it can be read by its address
    write: bool = True
    file_bytes: int = 1_000_000
    entries: int = 500
    matches: int = 100
    searched_files: int = 5_000
    searched_bytes: int = 50_000_000


class ListFiles(Arguments, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which folder to list."""

    path: Annotated[str, says("A folder below the one you may use; empty for that one itself.")] = ""


class ReadFile(Arguments, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which lines of which file to read."""

    path: Annotated[Text, _PATH]
    first_line: Annotated[int, says("The first line to read, from 1.")] = 1
    lines: Annotated[int, says("How many lines at most.")] = 2000


class WriteFile(Arguments, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which file to write, and its content."""

    path: Annotated[Text, _PATH]
    content: Annotated[str, says("The whole new content.")]


class EditFile(Arguments, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which text of a file to replace."""

    path: Annotated[Text, _PATH]
    old: Annotated[Text, says("The text to replace, exactly as it is in the file, and there only once.")]
    new: Annotated[str, says("What stands there afterwards.")]


class SearchFiles(Arguments, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which text to search for, and where."""

    text: Annotated[Text, says("The text to look for in the lines of files; upper and lower case are the same.")]
    path: Annotated[str, says("Only below this folder.")] = ""
    names: Annotated[str, says("Only in files whose name is like this, such as *.md.")] = "*"


class FileTools:
    """The five tools on one folder. They work in a thread, so that a slow disk blocks nobody else."""

    def __init__(self, settings: FilesSettings) -> None:
        self._settings = settings
        self._folder = Folder(settings.folder)
        self._uploads = Folder(settings.uploads) if settings.uploads else None

    def tools(self) -> list[Tool]:
        """The tools; without those that write where the folder may not be changed."""
        looking = [
            tool(ListFiles, self._list, name="list_files", description="List a folder.", effect=Effect.PURE),
            tool(ReadFile, self._read, name="read_file", description=READ, effect=Effect.PURE),
            tool(
                SearchFiles,
                self._search,
                name="search_files",
                description="Find the lines of text files that contain a text.",
                effect=Effect.PURE,
            ),
        ]
        return [*looking, *self._changing()] if self._settings.write else looking

    def _changing(self) -> list[Tool]:
        return [
            tool(
                WriteFile,
                self._write,
                name="write_file",
                description="Write a text file, whole. Missing folders are made; an existing file is replaced.",
                effect=Effect.IDEMPOTENT,
            ),
            tool(
                EditFile,
                self._edit,
                name="edit_file",
                description="Replace one piece of a text file.",
                effect=Effect.ONCE,  # done twice, an insertion would be there twice
            ),
        ]

    async def _list(self, what: ListFiles, _place: ToolPlace) -> str:
        found = await asyncio.to_thread(self._folder.entries, what.path)
        most = self._settings.entries
        left = [f"... and {len(found) - most} more"] if len(found) > most else []
        return "\n".join([*map(_line, found[:most]), *left]) or "The folder is empty."

    async def _read(self, what: ReadFile, _place: ToolPlace) -> str:
        text = await asyncio.to_thread(self._text, what.path)
        lines, first = text.splitlines(keepends=True), max(1, what.first_line)
        shown = lines[first - 1 : first - 1 + max(1, what.lines)]
        last = first - 1 + len(shown)
        if first == 1 and last == len(lines):
            return text or "The file is empty."
        return f"[lines {first} to {last} of {len(lines)}]\n{''.join(shown)}"

    async def _write(self, what: WriteFile, place: ToolPlace) -> str:
        data = self._data(what.content)
        new = await asyncio.to_thread(self._folder.write, what.path, data, place.key)
        return f"{'Wrote' if new else 'Replaced'} {what.path} ({len(data)} bytes)."

    async def _edit(self, what: EditFile, place: ToolPlace) -> str:
        await asyncio.to_thread(self._replace, what, place.key)
        return f"Edited {what.path}."

    def _replace(self, what: EditFile, key: str) -> None:
        text = self._text(what.path, exact=True)
        count = text.count(what.old)
        if count != 1:
            raise ToolError(f"the text to replace is in {what.path} {count} times; it must be there exactly once.")
        self._folder.write(what.path, self._data(text.replace(what.old, what.new)), key)

    async def _search(self, what: SearchFiles, _place: ToolPlace) -> str:
        found = await asyncio.to_thread(self._matches, what)
        return "\n".join(found) or "Nothing was found."

    def _matches(self, what: SearchFiles) -> list[str]:
        found: list[str] = []
        read, wanted = 0, what.text.casefold()
        for path, entry in islice(self._folder.walk(what.path), self._settings.searched_files):
            if not fnmatchcase(entry.name, what.names) or entry.size > self._settings.file_bytes:
                continue
            read += entry.size
            found += self._lines_with(path, wanted)
            if len(found) >= self._settings.matches or read > self._settings.searched_bytes:
                return [*found[: self._settings.matches], "... the search ended here; look in fewer files for more."]
        return found

    def _lines_with(self, path: str, wanted: str) -> list[str]:
        try:
            lines = self._text(path).splitlines()
        except ToolError:
            return []  # not a text, or gone meanwhile
        return [f"{path}:{n}: {line.strip()[:200]}" for n, line in enumerate(lines, 1) if wanted in line.casefold()]

    def _text(self, path: str, *, exact: bool = False) -> str:
        upload = upload_at(path) if self._uploads is not None and not exact else None
        if upload is not None and self._uploads is not None:
            data = self._uploads.read(upload.stored, self._settings.file_bytes)
        else:
            data = self._folder.read(path, self._settings.file_bytes)
        if b"\x00" in data[:8192]:
            raise ToolError(f"{path} is not a text file.")
        try:
            return data.decode()
        except UnicodeDecodeError:
            if exact:
                raise ToolError(f"{path} is not a UTF-8 text, so it can only be replaced whole.") from None
            return data.decode(errors="replace")

    def _data(self, text: str) -> bytes:
        data = text.encode(errors="replace")
        if len(data) > self._settings.file_bytes:
            raise ToolError(f"a file may have {self._settings.file_bytes} bytes at most.")
        return data


def _line(entry: Entry) -> str:
    name = entry.name.encode(errors="replace").decode()
    name = name if name.isprintable() else ascii(name)
    return (
        f"{name}/"
        if entry.kind == "folder"
        else f"{name} ({entry.size} bytes)"
        if entry.kind == "file"
        else f"{name} ({entry.kind})"
    )


def files_tools(settings: FilesSettings) -> list[Tool]:
    """The tools of one folder."""
    return FileTools(settings).tools()
