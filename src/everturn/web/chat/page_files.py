"""Serves the files of the chat page and the operations page, read once at start. They contain no data of anybody, so
they need no login; the data that they show does.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

FOLDER = Path(__file__).parents[1] / "page"
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
    """`GET /`, `/ops`, `/login` and `/assets/...`. Browsers revalidate their copy each time."""

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
