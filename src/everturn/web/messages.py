"""Messages that are posted, files that are uploaded and fetched, and the files of the page itself."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from everturn import points
from everturn.errors import Conflict, EverturnError, Full, NoRoom, StoreUnavailable, TooLarge, TooLong
from everturn.home.files import Media, SavedFile
from everturn.home.rules import Upload, clean_file_name, served_as
from everturn.inbox.rows.inbox import Accepted, AcceptOutcome
from everturn.model import Inbound, SessionSource
from everturn.web.access import visitor_of
from everturn.web.wire.requests import (
    BadRequest,
    CompleteResponse,
    answer,
    encode,
    header_of,
    json_response,
    not_now,
    refusal,
    retry_after,
)

Accept = Callable[[Inbound], Awaitable[Accepted]]
# A character of a JSON string is at most two escapes of six bytes.
BYTES_PER_CHAR = 12
ROOM_FOR_THE_REST = 65_536
_ID = re.compile(r"[A-Za-z0-9_-]{22}")
FOLDER = Path(__file__).parent / "page"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".webmanifest": "application/manifest+json",
}
NAMED = {
    "/": "index.html",
    "/ops": "ops/ops.html",
    "/login": "login.html",
    "/offline.js": "offline.js",
    "/favicon.ico": "icon.svg",
}


class Chats(Protocol):
    """Parses requests for the platform; a ValueError's text tells the sender what is wrong."""

    def chat(self, raw: bytes) -> str:
        """Return the name of a chat, from the percent-encoded part of the path."""
        ...

    def source(self, chat: str) -> SessionSource:
        """Return the source of messages of this chat."""
        ...

    def read(self, chat: str, body: bytes, person: str | None = None) -> Inbound:
        """Parse a posted message, of the platform's own person or of this one."""
        ...

    def stored_ids(self, message_id: str) -> list[str]:
        """Return the ids under which a sender's id may be stored."""
        ...


class Receipt(msgspec.Struct, frozen=True):
    """The response to a stored message."""

    key: str
    duplicate: bool


class Messages:
    """`POST /api/chats/{chat}/messages`."""

    def __init__(self, accept: Accept, chats: Chats, message_chars: int) -> None:
        self._accept = accept
        self._chats = chats
        self.most = message_chars * BYTES_PER_CHAR + ROOM_FOR_THE_REST

    async def __call__(self, raw: bytes, scope: Scope, receive: Receive, send: Send) -> None:
        """Parse, store and acknowledge the message."""
        body = await bounded_body(scope, receive, self.most)
        if body is None:
            return
        too_large = f"the body is larger than {self.most} bytes, the limit for a message"
        reply = await self.take(raw, body, person_of(scope)) if len(body) <= self.most else refusal(413, too_large)
        await answer(send, reply)
        if reply.status < 300:
            points.reached("inbox.acknowledged")

    async def take(self, raw: bytes, body: bytes, person: str | None = None) -> CompleteResponse:
        """Store a posted message and return the response."""
        try:
            inbound = self._chats.read(self._chats.chat(raw), body, person)
        except ValueError as error:
            return refusal(400, str(error))
        try:
            accepted = await self._accept(inbound)
        except (Conflict, Full, TooLong, StoreUnavailable) as error:
            return _refusal(error)
        new = accepted.outcome is AcceptOutcome.ACCEPTED
        return CompleteResponse(202 if new else 200, encode(Receipt(accepted.key, not new)))


async def bounded_body(scope: Scope, receive: Receive, most: int) -> bytes | None:
    """Read the body; stops once it is larger than `most`. None if the client disconnected."""
    announced = int(header_of(scope, b"content-length") or 0)
    if announced > most:
        return bytes(most + 1)
    body, more = b"", True
    while more and len(body) <= most:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message.get("body", b"")
        more = message.get("more_body", False)
    return body


def person_of(scope: Scope) -> str | None:
    """Return the sender, if it is not the platform's own person: a program has the name of its key."""
    visitor = visitor_of(scope)
    return f"key:{visitor.key}" if visitor is not None and visitor.key is not None else None


def _refusal(error: EverturnError) -> CompleteResponse:
    match error:
        case Conflict():
            return refusal(409, "this id was used in this chat before, with another text; use a new id")
        case Full():
            return refusal(429, str(error), retry_after(error.retry_after_s))
        case TooLong():
            return refusal(413, str(error))
        case _:
            return not_now(f"the message is not stored yet: {error}; send it again with the same id")


class FileEndpoints:
    """Upload and download of files: limited in size, and never served as anything that could run.

    A message refers to a file by its path (`/files/ID/NAME`), in Markdown. A file is complete on disk before the response
    returns its path (`everturn.home.files`).
    """

    def __init__(self, media: Media) -> None:
        self._media = media

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [
            Route("/files", self.post, methods=["POST"]),
            Route("/files/{id}/{name}", self.get, methods=["GET"]),
        ]

    async def post(self, request: Request) -> Response:
        """`POST /files?name=...`: the body is the file."""
        name = clean_file_name(request.query_params.get("name", ""))
        try:
            kept = await self._media.keep(name, _not_empty(request.stream()))
        except TooLarge as error:
            raise HTTPException(413, str(error)) from error
        except NoRoom as error:
            raise HTTPException(507, str(error)) from error
        upload = kept.upload
        body = {"id": upload.id, "name": upload.name, "size": kept.size, "type": served_as(kept.type)}
        return json_response(body | {"url": upload.address}, 201)

    async def get(self, request: Request) -> Response:
        """`GET /files/ID/NAME`: an image inline, everything else as attachment."""
        found = await asyncio.to_thread(self._find, request.path_params["id"], request.path_params["name"])
        if found is None:
            raise HTTPException(404, "no such file; it may have been removed from the gateway's home")
        kind = served_as(found.type)
        how = "inline" if kind.startswith("image/") else "attachment"
        headers = {"cache-control": "private, max-age=31536000, immutable"}
        path = self._media.path_of(found.upload)
        return FileResponse(path, 200, headers, kind, filename=found.upload.name, content_disposition_type=how)

    def _find(self, number: str, name: str) -> SavedFile | None:
        if not _ID.fullmatch(number):
            return None
        return self._media.find(Upload(number, clean_file_name(name)))


async def _not_empty(parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    some = False
    async for part in parts:
        some = some or bool(part)
        yield part
    if not some:
        raise BadRequest("the file is empty")


@dataclass(frozen=True, slots=True)
class PageFile:
    """One file as it is served."""

    body: bytes
    type: str
    tag: str


def read_page(folder: Path = FOLDER) -> dict[str, PageFile]:
    """Read all files of the pages, by relative path."""
    files = {}
    for path in sorted(folder.rglob("*")):
        if path.suffix in TYPES:
            body = path.read_bytes()
            files[path.relative_to(folder).as_posix()] = PageFile(
                body, TYPES[path.suffix], f'"{hashlib.sha256(body).hexdigest()[:20]}"'
            )
    return files


class PageFiles:
    """`GET /`, `/ops`, `/login` and `/assets/...`. Browsers revalidate their copy each time.

    They contain no data of anybody, so they need no login; the data that they show does.
    """

    def __init__(self) -> None:
        self._files = read_page()

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [*(Route(path, self.get) for path in NAMED), Route("/assets/{name:path}", self.get)]

    async def get(self, request: Request) -> Response:
        """Serve one file."""
        name = NAMED.get(request.url.path) or request.path_params.get("name", "")
        found = self._files.get(name)
        if found is None:
            raise HTTPException(404)
        headers = {"etag": found.tag, "cache-control": "no-cache"}
        if request.headers.get("if-none-match") == found.tag:
            return Response(status_code=304, headers=headers)
        return Response(found.body, 200, headers, found.type)
