"""Serves the local platforms of tests on a port of this machine, and breaks connections on order."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Self

import uvicorn
from starlette.applications import Starlette
from starlette.responses import StreamingResponse


class ConnectionReset(Exception):
    """Raised to drop a connection in the middle."""


def broken_off() -> StreamingResponse:
    """A response that ends in the middle."""
    return StreamingResponse(_cut(), headers={"content-length": "1000"}, media_type="application/json")


async def _cut() -> AsyncIterator[bytes]:
    yield b'{"ok":tr'
    raise ConnectionReset


class EndingServer(uvicorn.Server):
    """uvicorn's server without signal handling, which ends at once: connections break, requests are cancelled."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._ending = asyncio.Event()

    @classmethod
    def of(cls, app: Starlette) -> Self:
        """A server for this application. An idle client keeps its connection."""
        config = uvicorn.Config(
            _quiet(app), loop="none", lifespan="off", log_config=None, access_log=False, log_level="critical", timeout_keep_alive=600
        )  # fmt: skip
        return cls(config)

    def end(self) -> None:
        """Let `serve` return at once. uvicorn itself checks ten times a second, and then waits for connected clients."""
        self.should_exit = True
        self._ending.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone."""
        yield

    async def main_loop(self) -> None:
        """Serve until `end` is called."""
        await self.on_tick(0)
        await self._ending.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close everything at once, as when a network is gone."""
        for listening in (*self.servers, *(sockets or ())):
            listening.close()
        tasks = set(self.server_state.tasks)
        for connection in set(self.server_state.connections):
            connection.transport.abort()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Listening:
    """A port that may be closed and opened again, and stays the same."""

    def __init__(self, port: int = 0) -> None:
        self.port = port
        self._server: EndingServer | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """The URL of the server."""
        return f"http://127.0.0.1:{self.port}"

    async def open(self, app: Starlette) -> None:
        """Serve this application, on the same port as before."""
        listener = socket.create_server(("127.0.0.1", self.port))
        self.port = listener.getsockname()[1]
        self._server = EndingServer.of(app)
        self._task = asyncio.create_task(self._server.serve(sockets=[listener]))

    async def close(self) -> None:
        """Stop listening and break all connections, as when a network is gone."""
        if self._server is not None:
            self._server.end()
        await self.ended()
        self._task = None

    async def ended(self) -> None:
        """Wait until it is closed."""
        if self._task is not None:
            await self._task


def _quiet(app: Starlette) -> Any:
    """Silence the error of a connection that was dropped on order."""

    async def run(scope: Any, receive: Any, send: Any) -> None:
        with suppress(ConnectionReset):
            await app(scope, receive, send)

    return run
