"""The HTTP server: the application with its error responses, its socket, and the open files that it needs."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from everturn.clock import Clock, SystemClock
from everturn.errors import ConfigError, StoreError
from everturn.model import SessionSource
from everturn.people.rules.rights import GatewayAddress
from everturn.store.interface import Store
from everturn.telemetry.meters import Meters
from everturn.web.access import Access, NotAdmitted, no_database
from everturn.web.app import Hooks, WebApp
from everturn.web.control import Control, Metrics, control_routes
from everturn.web.conversations import About, Conversations, Transcripts
from everturn.web.events import EventSource, EventStreams
from everturn.web.keys import Keys, Visits
from everturn.web.messages import Accept, Chats, FileEndpoints, Messages, PageFiles
from everturn.web.openapi import OpenApi
from everturn.web.ops import (
    ActionEndpoints,
    ChangeSource,
    ChangeStream,
    OperatorActions,
    OpsReadEndpoints,
    PeopleEndpoints,
    PeopleOperator,
)
from everturn.web.people import ChannelList, Pairing, PeopleDesk
from everturn.web.v1.endpoints import V1, V1Parts
from everturn.web.wire.connection import Connection, GatewayServer
from everturn.web.wire.limits import MOST_CONNECTIONS, Bounds
from everturn.web.wire.requests import NO_STORE, RETRY, BadRequest, headers, json_response

HEARTBEAT_S = 15.0
PATIENCE_S = 30.0
KEEP_ALIVE_S = 75
END_WITHIN_S = 1
SPARE = 512  # open files for everything else: the store, models, tools
LEAST = 64  # however low the limit is
IDLE_S, EVERY_S, TIMES = 30, 10, 3  # TCP keepalive probes to a silent peer
UNHEARD_MS = 60_000  # how long sent data may stay unacknowledged


@dataclass(frozen=True, slots=True, kw_only=True)
class PageParts:
    """What the page needs beside the api: its platform, its files, and what `GET /web/me` answers."""

    chats: Chats
    files: FileEndpoints
    about: About = About()  # noqa: RUF009  frozen


@dataclass(frozen=True, slots=True, kw_only=True)
class Operations:
    """What the operator's endpoints need: actions, changes, and people."""

    operator: OperatorActions
    moves: ChangeSource
    people: PeopleOperator | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontSettings:
    """The address of the gateway, and the rate limit."""

    place: GatewayAddress = GatewayAddress()  # noqa: RUF009  frozen
    per_minute: float = 600
    clock: Clock = SystemClock()  # noqa: RUF009  it has no state


def make_app(
    *,
    accept: Accept,
    chats: Chats,
    hub: EventSource,
    store: Store,
    key_of: Callable[[SessionSource], str],
    message_chars: int,
    token: str,
    control: Control,
    heartbeat_s: float = HEARTBEAT_S,
    page: PageParts | None = None,
    hooks: Hooks | None = None,
    programs: V1Parts | None = None,
    people: PeopleDesk | None = None,
    front: FrontSettings = FrontSettings(),  # noqa: B008  frozen
    meters: Meters | None = None,
    operations: Operations | None = None,
) -> WebApp:
    """Build the web application: the endpoints of the api platform, health and control, and the page."""
    clock = front.clock
    access = Access(token=token, store=store, clock=clock, place=front.place, per_minute=front.per_minute)
    events = EventStreams(hub, store, heartbeat_s, room_for(MOST_CONNECTIONS) // 2)  # the other half is for requests
    v1 = (
        V1(programs, accept=accept, store=store, hub=hub, access=access, heartbeat_s=heartbeat_s)
        if programs is not None
        else None
    )
    access.on_end = partial(_on_end, events, v1)
    visits = Visits(access, store, clock)
    routes = [*control_routes(control, store, chats), *Keys(access, store, clock).routes(), *visits.routes()]
    routes += [*Metrics(meters or Meters(), store, events, clock).routes(), *ChannelList(store, clock).routes()]
    routes += hooks.routes() if hooks is not None else []
    routes += Pairing(people, clock).routes() if people is not None else []
    if page is not None:
        messages = Messages(accept, page.chats, message_chars)
        talks = Conversations(
            store=store, clock=clock, chats=page.chats, key_of=key_of, messages=messages, events=events, access=access,
            about=page.about,
        )  # fmt: skip
        routes += [*talks.routes(), *page.files.routes(), *PageFiles().routes()]
    if operations is not None:
        changes = ChangeStream(operations.moves, events, access, heartbeat_s)
        platforms = operations.operator.platforms
        looking = OpsReadEndpoints(store=store, clock=clock, control=control, chats=chats, platforms=platforms)
        routes += [*changes.routes(), *looking.routes(), *_action_routes(operations, clock)]
    routes += OpenApi(routes, message_chars, programs=programs is not None).routes()
    others = Starlette(routes=routes, exception_handlers=HANDLERS)
    others.router.redirect_slashes = False
    return WebApp(
        chats=chats,
        key_of=key_of,
        access=access,
        visits=visits,
        messages=Messages(accept, chats, message_chars),
        events=events,
        transcripts=Transcripts(store),
        others=others,
        v1=v1,
    )


def _action_routes(operations: Operations, clock: Clock) -> list[Route]:
    """Return the routes that change something. People come first: their path matches the others' pattern, too."""
    people = PeopleEndpoints(operations.people, clock).routes() if operations.people is not None else []
    return [*people, *ActionEndpoints(operations.operator).routes()]


def _on_end(events: EventStreams, v1: V1 | None) -> None:
    """Recheck access after a key or a visit ended: event streams must reconnect, waiting /v1 requests are checked again."""
    events.close()
    if v1 is not None:
        v1.following.recheck_access()


@dataclass(frozen=True, slots=True)
class Serving:
    """A listening server. `ended` is done only after `close`, or when it failed."""

    host: str
    port: int
    app: WebApp
    server: GatewayServer
    ended: asyncio.Task[None]

    @property
    def url(self) -> str:
        """The server's URL."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    async def close(self) -> None:
        """Stop listening, end event streams, give running requests a second."""
        self.app.close()
        self.server.should_exit = True
        await asyncio.wait({self.ended})
        for connection in self.server.open_connections():
            connection.transport.abort()
        self.ended.result()


async def serve(
    app: WebApp,
    host: str,
    port: int,
    *,
    patience_s: float = PATIENCE_S,
    bounds: Bounds = Bounds(),  # noqa: B008  frozen
    listener: socket.socket | None = None,
) -> Serving:
    """Listen; port 0 takes a free port. Returns when requests are answered. A `listener` is bound to that address already."""
    listener = listener or bind(host, port)
    config = uvicorn.Config(
        app, http=Connection, ws="none", loop="none", lifespan="off", interface="asgi3", log_config=None,
        log_level="error", headers=headers(secure=app.access.place.secure), access_log=False, proxy_headers=False, server_header=False,
        timeout_keep_alive=KEEP_ALIVE_S, timeout_graceful_shutdown=END_WITHIN_S,
    )  # fmt: skip
    server = GatewayServer(config, patience_s, replace(bounds, connections=room_for(bounds.connections)))
    running = asyncio.create_task(server.serve(sockets=[listener]))
    ready = asyncio.create_task(server.ready.wait())
    await asyncio.wait({running, ready}, return_when=asyncio.FIRST_COMPLETED)
    if running.done():
        ready.cancel()
        try:
            running.result()
        except OSError as error:  # another program took the port meanwhile
            raise _cannot_listen(host, port, error) from error
    return Serving(host, listener.getsockname()[1], app, server, running)


if sys.platform == "win32":

    def room_for(connections: int) -> int:
        """Return `connections`: Windows has no such limit."""
        return connections
else:
    import resource

    def room_for(connections: int) -> int:
        """Raise the limit of open files for this many connections. Returns how many connections fit."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        allowed, wanted = (_many(soft), connections + SPARE)
        if allowed < wanted:
            with contextlib.suppress(ValueError, OSError):  # it stays as it is
                resource.setrlimit(resource.RLIMIT_NOFILE, (int(min(wanted, _many(hard))), hard))
            allowed = _many(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        return int(min(connections, max(LEAST, allowed - SPARE)))

    def _many(limit: int) -> float:
        return float("inf") if limit == resource.RLIM_INFINITY else limit


def bind(host: str, port: int) -> socket.socket:
    """Bind the address, before anything is started that would have to be stopped if the port is taken."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        try:
            if sys.platform != "win32":  # there the option would let two programs share the port
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
        except OSError:
            listener.close()
            raise
    except OSError as error:
        raise _cannot_listen(host, port, error) from error
    enable_keepalive(listener)
    listener.setblocking(False)
    return listener


def _cannot_listen(host: str, port: int, error: OSError) -> ConfigError:
    """Return the error for an address that cannot be bound, and what to do."""
    if error.errno == errno.EADDRINUSE:
        why = "another program uses that port; stop it, or choose another port with --port (or server.port)"
    elif error.errno in {errno.EACCES, errno.EPERM}:
        why = "this user may not use that port; choose one above 1023 with --port (or server.port)"
    else:
        why = f"{error.strerror}; choose an address of this machine with --host (or server.host)"
    return ConfigError(f"cannot listen on {host} port {port}: {why}")


def enable_keepalive(listener: socket.socket) -> None:
    """Let the system close connections whose peer is gone without a FIN; accepted sockets inherit it."""
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    wanted = {"TCP_KEEPIDLE": IDLE_S, "TCP_KEEPINTVL": EVERY_S, "TCP_KEEPCNT": TIMES, "TCP_USER_TIMEOUT": UNHEARD_MS}
    for name, value in wanted.items():
        option = getattr(socket, name, None)  # not every system has each
        if option is not None:
            with contextlib.suppress(OSError):
                listener.setsockopt(socket.IPPROTO_TCP, option, value)


async def refused(request: Request, error: Exception) -> Response:
    """Return an HTTPException as a JSON error."""
    if not isinstance(error, HTTPException):
        raise error
    text = {
        404: f"no such endpoint: {request.url.path[:200]}",
        405: f"the method {request.method} is not allowed for {request.url.path[:200]}",
    }
    said = (
        error.detail
        if error.status_code not in text or error.detail not in {"Not Found", "Method Not Allowed"}
        else text[error.status_code]
    )
    return json_response({"error": said}, error.status_code, dict(error.headers or {}))


async def bad(_: Request, error: Exception) -> Response:
    """Return a BadRequest as a 400."""
    return json_response({"error": str(error)}, 400)


async def unready(request: Request, error: Exception) -> Response:
    """Return a StoreError as a 503."""
    return json_response({"error": no_database(request.scope, error)}, 503, RETRY)


async def not_admitted(_: Request, error: Exception) -> Response:
    """Return the response of a NotAdmitted."""
    if not isinstance(error, NotAdmitted):
        raise error
    headers = {name.decode(): value.decode() for name, value in error.reply.headers}
    return Response(error.reply.body, error.reply.status, NO_STORE | headers, "application/json")


HANDLERS = {HTTPException: refused, BadRequest: bad, StoreError: unready, NotAdmitted: not_admitted}
