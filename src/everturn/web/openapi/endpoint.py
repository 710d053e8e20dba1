"""`GET /openapi.json`: the OpenAPI document of this gateway, made from its routes and their descriptions."""

from __future__ import annotations

from collections.abc import Iterable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from everturn.people.rules.access import OPEN_PAGES, is_page
from everturn.web.openapi.describing import Schema, Served, document, plain
from everturn.web.openapi.table import SEVERAL, V1, chats, described
from everturn.web.wire.bodies import NO_STORE
from everturn.web.wire.requests import encode

PATH = "/openapi.json"


class OpenApi:
    """Serves the document; made once, at the first request, because the routes do not change."""

    def __init__(self, routes: Iterable[BaseRoute], message_chars: int, *, programs: bool = False) -> None:
        self._routes = [each for each in routes if isinstance(each, Route)]
        self._chars = message_chars
        self._programs = programs  # whether the OpenAI API is served
        self._made: bytes | None = None

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [Route(PATH, self.show, methods=["GET"])]

    async def show(self, _: Request) -> Response:
        """`GET /openapi.json`."""
        self._made = self._made or encode(self.document())
        return Response(self._made, 200, NO_STORE, "application/json")

    def served(self) -> list[Served]:
        """Return all endpoints: those of the chats and of the OpenAI API, which have no routes, and all routes but the page's files."""
        found = [*chats(self._chars), *(V1 if self._programs else ()), ("GET", PATH)]
        for each in self._routes:
            paths = SEVERAL.get(each.path, (plain(each.path),))
            for method in sorted(each.methods or ()):
                found += [(method, path) for path in paths if not _is_file(method, path)]
        return found

    def document(self) -> Schema:
        """Return the document."""
        return document(self.served(), described(self._chars))


def _is_file(method: str, path: str) -> bool:
    """Whether this is a file of the page, which programs do not need; or a HEAD, which comes with GET."""
    return method == "HEAD" or (
        method == "GET" and (path in OPEN_PAGES or is_page(path) or path.startswith("/assets/"))
    )
