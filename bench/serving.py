"""A gateway's own web server in this process, beside bare handlers on the same server, for loads from another process."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from types import SimpleNamespace

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from bench.disk import kept
from bench.running import Running
from everturn.model import Json
from everturn.people.rules.rights import GatewayAddress
from everturn.platform.posted import ApiPlatform, WebPlatform
from everturn.web.messages import FileEndpoints
from everturn.web.wire.server import PageParts, Serving, make_app, serve

HOST = "127.0.0.1"
TOKEN = "t" * 43


class NoControl:
    """Nobody stops it but the benchmark."""

    def status(self) -> Json:
        """Nothing to say."""
        return {}

    def request_stop(self, kind: str, reason: str) -> None:
        """Not here."""

    def ready(self) -> str | None:
        """Always."""
        return None


@contextlib.asynccontextmanager
async def front_of(running: Running) -> AsyncIterator[Serving]:
    """The gateway's endpoints on a free port."""
    gateway = running.gateway
    app = make_app(
        accept=running.gateway.intake.accept, chats=ApiPlatform(), hub=gateway.hub, store=gateway.store,
        key_of=gateway.settings.key_of, message_chars=gateway.settings.message_chars, token=TOKEN, control=NoControl(),
        page=PageParts(chats=WebPlatform(), files=FileEndpoints(kept() / "files")),
    )  # fmt: skip
    serving = await serve(app, HOST, 0)
    try:
        yield serving
    finally:
        await serving.close()


async def cookie_of(serving: Serving) -> str:
    """What a browser that has logged in sends with everything."""
    login = await serving.app.visits.make()
    async with httpx.AsyncClient(base_url=serving.url) as client:
        entered = await client.post("/login", json={"code": login.code})
    return entered.headers["set-cookie"].partition(";")[0]


class Bare:
    """Another application in the place of ours; `access` says where it is reached, as ours does."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.access = SimpleNamespace(place=GatewayAddress())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on."""
        await self._app(scope, receive, send)

    def close(self) -> None:
        """Nothing to end."""


async def hello(_: Request) -> PlainTextResponse:
    """The smallest handler one would write."""
    return PlainTextResponse("hello")


async def raw_hello(_scope: Scope, _receive: Receive, send: Send) -> None:
    """The smallest answer there is."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"5")]})
    await send({"type": "http.response.body", "body": b"hello"})


@contextlib.asynccontextmanager
async def bare(app: ASGIApp) -> AsyncIterator[Serving]:
    """The same server with another application."""
    serving = await serve(Bare(app), HOST, 0)  # type: ignore[arg-type]  # it only needs to be called and closed
    try:
        yield serving
    finally:
        await serving.close()


def starlette_hello(path: str) -> Starlette:
    """One route."""
    return Starlette(routes=[Route(path, hello, methods=["POST"])])
