"""Health endpoints for monitoring, and control endpoints for the command line."""

from __future__ import annotations

import asyncio
from typing import Literal, Protocol

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from everturn.errors import StoreError
from everturn.model import Json
from everturn.operator.rows.reading import count_open
from everturn.people.rules.access import KeyScope
from everturn.sessions.rows.entries import list_entries
from everturn.store.interface import Store
from everturn.web.access import visitor_of
from everturn.web.chat.conversations import timelines
from everturn.web.chat.messages import Chats
from everturn.web.rules import web_texts
from everturn.web.wire.bodies import RETRY, json_response, small_body
from everturn.web.wire.requests import query_of, whole

MOST_SESSIONS = 1_000
COUNTS_S = 2.0


class Control(Protocol):
    """The running gateway, as the command line sees it."""

    def status(self) -> Json:
        """Return version, process, address and state."""
        ...

    def request_stop(self, kind: str, reason: str) -> None:
        """Begin a planned `stop` or `restart`."""
        ...

    def ready(self) -> str | None:
        """Return None if the gateway accepts and answers messages, else why not; `Store.trouble` tells about the database."""
        ...


class StopRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of `POST /control/stop`."""

    kind: Literal["stop", "restart"]
    reason: str = ""


_read_stop = msgspec.json.Decoder(StopRequest).decode


def control_routes(control: Control, store: Store, chats: Chats) -> list[Route]:
    """Return the routes of health and control."""
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
        """`GET /ready`, open to everybody; details of a database error only with the scope `read`."""
        why, trouble = self._control.ready(), self._store.trouble()
        if why is None and trouble is not None:
            visitor = visitor_of(request.scope)
            why = trouble if visitor is not None and KeyScope.READ in visitor.scopes else web_texts.NO_DATABASE
        if why is None:
            return json_response({"ready": True})
        return json_response({"ready": False, "reason": why}, 503, RETRY)

    async def status(self, _: Request) -> Response:
        return json_response({**self._control.status(), "open": await self._open_counts()})

    async def sessions(self, request: Request) -> Response:
        query = query_of(request.scope)
        limit = max(1, whole(query, "limit", 100, MOST_SESSIONS))
        found = await self._store.read(list_entries, query.get("after", ""), limit)
        return json_response({"sessions": found, "next": found[-1]["key"] if len(found) == limit else None})

    async def explain(self, request: Request) -> Response:
        names = self._chats.stored_ids(request.path_params["id"])
        return json_response({"messages": await self._store.read(timelines, names)})

    async def stop(self, request: Request) -> Response:
        try:
            wanted = _read_stop(await small_body(request))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            example = '{"kind": "stop" or "restart", "reason": "..."}'
            raise HTTPException(400, f"the body must be JSON like {example}: {error}") from None
        self._control.request_stop(wanted.kind, wanted.reason)
        return json_response({"stopping": True, "kind": wanted.kind}, 202)

    async def _open_counts(self) -> Json | None:
        """Count open work by state; None if the database does not answer: status must work without it."""
        try:
            async with asyncio.timeout(COUNTS_S):
                return await self._store.read(count_open)
        except (TimeoutError, StoreError):
            return None
