"""The pages themselves, the chat and the operations: a few files, read once at start. Nothing in them is anybody's, so
everybody may have them; what they show they ask for, and that is the owner's.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

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


@dataclass(frozen=True, slots=True)
class PageFile:
    """One file as it is served."""

    body: bytes
    type: str
    tag: str


def read_page(folder: Path = FOLDER) -> dict[str, PageFile]:
    """Every file of the pages by its name, with the folder it is in."""
    files = {}
    for path in sorted(folder.rglob("*")):
        if path.suffix in TYPES:
            body = path.read_bytes()
            files[path.relative_to(folder).as_posix()] = PageFile(
                body, TYPES[path.suffix], f'"{hashlib.sha256(body).hexdigest()[:20]}"'
            )
    return files


class PageFiles:
    """`GET /`, `/ops`, `/login` and `/assets/...`. A browser asks each time whether its copy is still the right one."""

    def __init__(self) -> None:
        self._files = read_page()

    def routes(self) -> list[Route]:
        """Where they are."""
        return [*(Route(path, self.get) for path in NAMED), Route("/assets/{name:path}", self.get)]

    async def get(self, request: Request) -> Response:
        """One file."""
        name = NAMED.get(request.url.path) or request.path_params.get("name", "")
        found = self._files.get(name)
        if found is None:
            raise HTTPException(404)
        headers = {"etag": found.tag, "cache-control": "no-cache"}
        if request.headers.get("if-none-match") == found.tag:
            return Response(status_code=304, headers=headers)
        return Response(found.body, 200, headers, found.type)
