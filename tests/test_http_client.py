"""The HTTP client: a connection that is reset when it is made raises ConnectError."""

import asyncio
from contextlib import closing
from typing import Any

import anyio
import httpx2
import pytest

from everturn.http_client import HttpClient


class ResetAtOnce(httpx2.AsyncBaseTransport):
    """Connects, and asks for the addresses of the connection when the loop has closed it, as httpcore2 does after a reset."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:  # noqa: ARG002  its words
        stream = await anyio.connect_tcp("127.0.0.1", self._port)
        await stream.aclose()
        stream.extra(anyio.abc.SocketAttribute.remote_address)
        return httpx2.Response(200)


class Faulty(httpx2.AsyncBaseTransport):
    """Has a fault of its own."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:  # noqa: ARG002  its words
        nothing: Any = None
        return httpx2.Response(200, text=nothing.getpeername())


async def test_a_connection_that_is_reset_at_once_could_not_be_made() -> None:
    """uvloop's closed transport has no socket, and anyio asks it for its peer."""
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    with closing(server):
        port = server.sockets[0].getsockname()[1]
        client = HttpClient(transport=ResetAtOnce(port))
        with pytest.raises(httpx2.ConnectError, match="was reset when it was made"):
            await client.get("http://here/")
        with pytest.raises(httpx2.ConnectError):
            async with client.stream("GET", "http://here/"):
                pass


async def test_an_error_of_ours_stays_what_it_is() -> None:
    async with HttpClient(transport=Faulty()) as client:
        with pytest.raises(AttributeError, match="getpeername"):
            await client.get("http://here/")
