"""Health for whoever watches the process, and control for the command line."""

from __future__ import annotations

import asyncio
from typing import Literal, Protocol

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from everturn.errors import StoreError
from everturn.model import Json
from everturn.store.interface import Store
from everturn.store.operations.entries import list_entries
from everturn.store.operations.reading import figures
from everturn.web.answers import RETRY_AFTER_S, BadRequest, encode
from everturn.web.looking import lives
from everturn.web.messages import Chats
from everturn.web.queries import query_of, whole

MOST_SESSIONS = 1_000
MOST_BODY = 16_384
FIGURES_S = 2.0
OPEN_PATHS = frozenset({b"/health", b"/ready"})
_RETRY = {"retry-after": str(int(RETRY_AFTER_S))}


class Control(Protocol):
    """The running gateway, as the command line sees it."""

    def status(self) -> Json:
        """What runs here and how it is."""
        ...

    def request_stop(self, kind: str, reason: str) -> None:
        """Begin a planned end: `stop` or `restart`."""
        ...

    def ready(self) -> str | None:
        """None when it can accept and answer, else why not."""
        ...


class StopRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of `POST /control/stop`."""

    kind: Literal["stop", "restart"]
    reason: str = ""


_read_stop = msgspec.json.Decoder(StopRequest).decode


def control_app(control: Control, store: Store, chats: Chats) -> Starlette:
    """Everything beside the chats."""
    points = _Endpoints(control, store, chats)
    routes = [
        Route("/health", points.health),
        Route("/ready", points.ready),
        Route("/control/status", points.status),
        Route("/control/sessions", points.sessions),
        Route("/control/explain/{id:path}", points.explain),
        Route("/control/stop", points.stop, methods=["POST"]),
    ]
    app = Starlette(routes=routes, exception_handlers={HTTPException: _refused, BadRequest: _bad, StoreError: _unready})
    app.router.redirect_slashes = False
    return app


class _Endpoints:
    def __init__(self, control: Control, store: Store, chats: Chats) -> None:
        self._control = control
        self._store = store
        self._chats = chats

    async def health(self, _: Request) -> Response:
        return _json({"alive": True})

    async def ready(self, _: Request) -> Response:
        why = self._control.ready() or self._store.trouble()
        return _json({"ready": True}) if why is None else _json({"ready": False, "reason": why}, 503, _RETRY)

    async def status(self, _: Request) -> Response:
        return _json({**self._control.status(), "open": await self._figures()})

    async def sessions(self, request: Request) -> Response:
        query = query_of(request.scope)
        limit = max(1, whole(query, "limit", 100, MOST_SESSIONS))
        found = await self._store.read(list_entries, query.get("after", ""), limit)
        return _json({"sessions": found, "next": found[-1]["key"] if len(found) == limit else None})

    async def explain(self, request: Request) -> Response:
        names = self._chats.stored_ids(request.path_params["id"])
        return _json({"messages": await self._store.read(lives, names)})

    async def stop(self, request: Request) -> Response:
        try:
            wanted = _read_stop(await _small_body(request))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            example = '{"kind": "stop" or "restart", "reason": "..."}'
            raise HTTPException(400, f"the body must be JSON like {example}: {error}") from None
        self._control.request_stop(wanted.kind, wanted.reason)
        return _json({"stopping": True, "kind": wanted.kind}, 202)

    async def _figures(self) -> Json | None:
        """How much is open; None while the database does not say: status must answer then above all."""
        try:
            async with asyncio.timeout(FIGURES_S):
                return await self._store.read(figures)
        except (TimeoutError, StoreError):
            return None


async def _small_body(request: Request) -> bytes:
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MOST_BODY:
            raise HTTPException(413, f"the body is larger than {MOST_BODY} bytes")
    return body


def _json(value: Json, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(encode(value), status, headers, "application/json")


async def _refused(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    words = {
        404: f"there is nothing at {request.url.path[:200]}",
        405: f"{request.method} is not possible at {request.url.path[:200]}",
    }
    headers = dict(error.headers or {})
    return _json({"error": words.get(error.status_code, error.detail)}, error.status_code, headers)


async def _bad(_: Request, error: Exception) -> Response:
    return _json({"error": str(error)}, 400)


async def _unready(_: Request, error: Exception) -> Response:
    return _json({"error": f"the database cannot be read now: {error}"}, 503, _RETRY)
