"""Health for whoever watches the process, and control for the command line."""

from __future__ import annotations

import asyncio
from typing import Literal, Protocol

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from everturn.decide import web_words
from everturn.decide.access import Scope
from everturn.errors import StoreError
from everturn.model import Json
from everturn.store.interface import Store
from everturn.store.operations.entries import list_entries
from everturn.store.operations.reading import figures
from everturn.web.access import visitor_of
from everturn.web.bodies import RETRY, json_response, small_body
from everturn.web.looking import lives
from everturn.web.messages import Chats
from everturn.web.queries import query_of, whole

MOST_SESSIONS = 1_000
FIGURES_S = 2.0


class Control(Protocol):
    """The running gateway, as the command line sees it."""

    def status(self) -> Json:
        """What runs here and how it is."""
        ...

    def request_stop(self, kind: str, reason: str) -> None:
        """Begin a planned end: `stop` or `restart`."""
        ...

    def ready(self) -> str | None:
        """None when it can accept and answer, else why not; whether its database can be used is the store's to say."""
        ...


class StopRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of `POST /control/stop`."""

    kind: Literal["stop", "restart"]
    reason: str = ""


_read_stop = msgspec.json.Decoder(StopRequest).decode


def control_routes(control: Control, store: Store, chats: Chats) -> list[Route]:
    """Health and control."""
    points = _Endpoints(control, store, chats)
    return [
        Route("/health", points.health),
        Route("/ready", points.ready),
        Route("/control/status", points.status),
        Route("/control/sessions", points.sessions),
        Route("/control/explain/{id:path}", points.explain),
        Route("/control/stop", points.stop, methods=["POST"]),
    ]


class _Endpoints:
    def __init__(self, control: Control, store: Store, chats: Chats) -> None:
        self._control = control
        self._store = store
        self._chats = chats

    async def health(self, _: Request) -> Response:
        return json_response({"alive": True})

    async def ready(self, request: Request) -> Response:
        """Everybody is told whether; what is wrong with the database, and where that is, only who may look."""
        why, trouble = self._control.ready(), self._store.trouble()
        if why is None and trouble is not None:
            visitor = visitor_of(request.scope)
            why = trouble if visitor is not None and Scope.READ in visitor.scopes else web_words.NO_DATABASE
        if why is None:
            return json_response({"ready": True})
        return json_response({"ready": False, "reason": why}, 503, RETRY)

    async def status(self, _: Request) -> Response:
        return json_response({**self._control.status(), "open": await self._figures()})

    async def sessions(self, request: Request) -> Response:
        query = query_of(request.scope)
        limit = max(1, whole(query, "limit", 100, MOST_SESSIONS))
        found = await self._store.read(list_entries, query.get("after", ""), limit)
        return json_response({"sessions": found, "next": found[-1]["key"] if len(found) == limit else None})

    async def explain(self, request: Request) -> Response:
        names = self._chats.stored_ids(request.path_params["id"])
        return json_response({"messages": await self._store.read(lives, names)})

    async def stop(self, request: Request) -> Response:
        try:
            wanted = _read_stop(await small_body(request))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            example = '{"kind": "stop" or "restart", "reason": "..."}'
            raise HTTPException(400, f"the body must be JSON like {example}: {error}") from None
        self._control.request_stop(wanted.kind, wanted.reason)
        return json_response({"stopping": True, "kind": wanted.kind}, 202)

    async def _figures(self) -> Json | None:
        """How much is open; None while the database does not say: status must answer then above all."""
        try:
            async with asyncio.timeout(FIGURES_S):
                return await self._store.read(figures)
        except (TimeoutError, StoreError):
            return None
