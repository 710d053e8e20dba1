"""`GET /openapi.json`: what this gateway serves, made from its routes and their descriptions."""

from __future__ import annotations

from collections.abc import Iterable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from everturn.decide.access import OPEN_PAGES, is_page
from everturn.web.answers import encode
from everturn.web.bodies import UNKEPT
from everturn.web.openapi.describing import Schema, Served, document, plain
from everturn.web.openapi.table import chats, described
from everturn.web.openapi.table_ops import SEVERAL
from everturn.web.openapi.table_v1 import V1

PATH = "/openapi.json"


class OpenApi:
    """The document, made once when it is first asked for: what is served does not change."""

    def __init__(self, routes: Iterable[BaseRoute], message_chars: int, *, programs: bool = False) -> None:
        self._routes = [each for each in routes if isinstance(each, Route)]
        self._chars = message_chars
        self._programs = programs  # whether the OpenAI API is served
        self._made: bytes | None = None

    def routes(self) -> list[Route]:
        """Where it is."""
        return [Route(PATH, self.show, methods=["GET"])]

    async def show(self, _: Request) -> Response:
        """`GET /openapi.json`."""
        self._made = self._made or encode(self.document())
        return Response(self._made, 200, UNKEPT, "application/json")

    def served(self) -> list[Served]:
        """Every endpoint: those of the chats and of the OpenAI API, which are found by hand, and all routes but the files of the page."""
        found = [*chats(self._chars), *(V1 if self._programs else ()), ("GET", PATH)]
        for each in self._routes:
            paths = SEVERAL.get(each.path, (plain(each.path),))
            for method in sorted(each.methods or ()):
                found += [(method, path) for path in paths if not _is_file(method, path)]
        return found

    def document(self) -> Schema:
        """As it is served."""
        return document(self.served(), described(self._chars))


def _is_file(method: str, path: str) -> bool:
    """A file of a page, which nobody asks for by program; or what comes with GET by itself."""
    return method == "HEAD" or (
        method == "GET" and (path in OPEN_PAGES or is_page(path) or path.startswith("/assets/"))
    )
