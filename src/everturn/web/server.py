"""Putting the web application together, listening, and ending quickly."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass

import uvicorn

from everturn.errors import ConfigError
from everturn.model import SessionSource
from everturn.store.interface import Store
from everturn.web.app import WebApp
from everturn.web.connection import Connection, Server
from everturn.web.control import Control, control_app
from everturn.web.events import EventStreams, Hub
from everturn.web.messages import Accept, Chats, Messages
from everturn.web.transcripts import Transcripts

HEARTBEAT_S = 15.0
PATIENCE_S = 30.0
KEEP_ALIVE_S = 75
MOST_CONNECTIONS = 4_096
END_WITHIN_S = 1


def make_app(
    *,
    accept: Accept,
    chats: Chats,
    hub: Hub,
    store: Store,
    key_of: Callable[[SessionSource], str],
    message_chars: int,
    token: str,
    control: Control,
    heartbeat_s: float = HEARTBEAT_S,
) -> WebApp:
    """The gateway's web application: the endpoints of the api platform, health and control."""
    return WebApp(
        chats=chats,
        key_of=key_of,
        token=token,
        messages=Messages(accept, chats, message_chars),
        events=EventStreams(hub, store, heartbeat_s),
        transcripts=Transcripts(store),
        others=control_app(control, store, chats),
    )


@dataclass(frozen=True, slots=True)
class Serving:
    """A listening server. `ended` is done only after `close`, or when it failed."""

    host: str
    port: int
    app: WebApp
    server: Server
    ended: asyncio.Task[None]

    @property
    def url(self) -> str:
        """Its address."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    async def close(self) -> None:
        """Listen no more, end event streams, give requests under way a second."""
        self.app.close()
        self.server.should_exit = True
        await asyncio.wait({self.ended})
        for connection in self.server.open_connections():
            connection.transport.abort()
        self.ended.result()


async def serve(app: WebApp, host: str, port: int, *, patience_s: float = PATIENCE_S) -> Serving:
    """Listen; port 0 takes a free one. Returns when requests are answered."""
    listener = _listen(host, port)
    config = uvicorn.Config(
        app, http=Connection, ws="none", loop="none", lifespan="off", interface="asgi3", log_config=None,
        log_level="error", access_log=False, proxy_headers=False, server_header=False,
        limit_concurrency=MOST_CONNECTIONS, timeout_keep_alive=KEEP_ALIVE_S, timeout_graceful_shutdown=END_WITHIN_S,
    )  # fmt: skip
    server = Server(config, patience_s)
    running = asyncio.create_task(server.serve(sockets=[listener]))
    ready = asyncio.create_task(server.ready.wait())
    await asyncio.wait({running, ready}, return_when=asyncio.FIRST_COMPLETED)
    if running.done():
        ready.cancel()
        running.result()
    return Serving(host, listener.getsockname()[1], app, server, running)


def _listen(host: str, port: int) -> socket.socket:
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
        raise ConfigError(
            f"cannot listen on {host} port {port}: {error.strerror}; end what uses it, or choose another with --port"
        ) from error
    listener.setblocking(False)
    return listener
