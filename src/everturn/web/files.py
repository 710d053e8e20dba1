"""Files that people drop into a conversation: kept in the home, bounded, and never served as anything that could run.

A message names a file by its address here (`/files/ID/NAME`), in Markdown. A file is whole on disk before its address
is told; what an upload left behind when the process died has no address, and is swept at the next start.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import unicodedata
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from everturn.web.answers import BadRequest
from everturn.web.bodies import json_response

MEGABYTE = 1024 * 1024
NAME_CHARS = 120
DRAFT = ".draft"
_ID = re.compile(r"[A-Za-z0-9_-]{22}")
_IMAGES: tuple[tuple[bytes, str], ...] = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)
UNKNOWN = "application/octet-stream"


def sniffed(head: bytes) -> str:
    """What a file is by its first bytes: an image that a page may show, or just bytes. What its sender says does not count."""
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for begin, kind in _IMAGES if head.startswith(begin)), UNKNOWN)


def clean_file_name(name: str) -> str:
    """A name that is only a name: no folder, no control character, no surprise for a shell or a browser."""
    text = unicodedata.normalize("NFC", name.replace("\\", "/").rpartition("/")[2])
    kept = "".join(each if each.isalnum() or each in " .-_()+," else "_" for each in text).strip(" .")
    stem, dot, ending = kept.rpartition(".")
    if dot and len(ending) <= 10:
        return f"{stem[: NAME_CHARS - len(ending) - 1]}.{ending}" if stem else f"file.{ending}"
    return kept[:NAME_CHARS] or "file"


@dataclass(frozen=True, slots=True)
class Kept:
    """A file that is whole on disk."""

    id: str
    name: str
    size: int
    type: str

    @property
    def url(self) -> str:
        """Its address on this gateway."""
        return f"/files/{self.id}/{quote(self.name)}"


class Files:
    """The folder of files. `most` bounds one of them, `most_together` all."""

    def __init__(self, folder: Path, most: int = 20 * MEGABYTE, most_together: int = 1000 * MEGABYTE) -> None:
        self._folder = folder
        self._together = most_together
        self._used: int | None = None
        self.most = most

    def routes(self) -> list[Route]:
        """Where they are."""
        return [
            Route("/files", self.post, methods=["POST"]),
            Route("/files/{id}/{name}", self.get, methods=["GET"]),
        ]

    async def post(self, request: Request) -> Response:
        """`POST /files?name=...`: the body is the file."""
        name = clean_file_name(request.query_params.get("name", ""))
        kept = await self.keep(name, request.stream())
        return json_response(
            {"id": kept.id, "name": kept.name, "size": kept.size, "type": kept.type, "url": kept.url}, 201
        )

    async def get(self, request: Request) -> Response:
        """`GET /files/ID/NAME`: an image is shown, everything else is saved."""
        found = await asyncio.to_thread(self._find, request.path_params["id"])
        if found is None or found.name != clean_file_name(request.path_params["name"]):
            raise HTTPException(404, "there is no such file; it may have been removed from the gateway's home")
        how = "inline" if found.type.startswith("image/") else "attachment"
        headers = {"cache-control": "private, max-age=31536000, immutable"}
        path = self._folder / f"{found.id}.{found.name}"
        return FileResponse(path, 200, headers, found.type, filename=found.name, content_disposition_type=how)

    async def keep(self, name: str, parts: AsyncIterator[bytes]) -> Kept:
        """Write a file whole, then give it its name."""
        number = secrets.token_urlsafe(16)
        draft = self._folder / f"{number}{DRAFT}"
        used = await asyncio.to_thread(self._prepared)
        try:
            size, head = await self._write(draft, parts, used)
            await asyncio.to_thread(draft.rename, self._folder / f"{number}.{name}")
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
        self._used = (self._used or 0) + size
        return Kept(number, name, size, sniffed(head))

    async def _write(self, draft: Path, parts: AsyncIterator[bytes], used: int) -> tuple[int, bytes]:
        size, head = 0, b""
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            async for part in parts:
                size += len(part)
                self._check(size, used)
                head = head or part[:16] if len(head) >= 12 else (head + part)[:16]
                await asyncio.to_thread(os.write, descriptor, part)
            await asyncio.to_thread(os.fsync, descriptor)
        finally:
            os.close(descriptor)
        if not size:
            raise BadRequest("the file is empty")
        return size, head

    def _check(self, size: int, used: int) -> None:
        if size > self.most:
            raise HTTPException(413, f"the file is larger than {self.most // MEGABYTE} MB, the most that one may have")
        if used + size > self._together:
            raise HTTPException(
                507, "there is no more room for files here; remove some from the folder files of the home"
            )

    def _prepared(self) -> int:
        """The folder is there, and how much it holds; drafts of an earlier life are swept."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self._used is None:
            for draft in self._folder.glob(f"*{DRAFT}"):
                draft.unlink(missing_ok=True)
            self._used = sum(path.stat().st_size for path in self._folder.iterdir() if path.is_file())
        return self._used

    def _find(self, number: str) -> Kept | None:
        if not _ID.fullmatch(number) or not self._folder.is_dir():
            return None
        path = next((each for each in self._folder.glob(f"{number}.*") if each.suffix != DRAFT), None)
        if path is None:
            return None
        with path.open("rb") as file:
            head = file.read(16)
        return Kept(number, path.name.partition(".")[2], path.stat().st_size, sniffed(head))
