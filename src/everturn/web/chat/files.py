"""Upload and download of files in conversations: limited in size, and never served as anything that could run.

A message refers to a file by its path (`/files/ID/NAME`), in Markdown. A file is complete on disk before the response
returns its path (`everturn.home.files`).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from everturn.errors import NoRoom, TooLarge
from everturn.home.files import Media, SavedFile
from everturn.home.rules.files import Upload, clean_file_name, served_as
from everturn.web.wire.answers import BadRequest
from everturn.web.wire.bodies import json_response

_ID = re.compile(r"[A-Za-z0-9_-]{22}")


class FileEndpoints:
    """The endpoints of files."""

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
