"""The HTTP client for all outgoing requests, and the CA bundle that adapters trust."""

from __future__ import annotations

import ssl
from functools import cache
from typing import Any

import httpx2


class HttpClient(httpx2.AsyncClient):
    """An httpx2 client that raises ConnectError also for a connection that is reset at the moment it is made.

    uvloop closes such a connection before anybody has asked for its addresses. anyio then asks None for them, as a closed
    uvloop transport has no socket, and its AttributeError goes through httpx2 as it is. Nothing has been sent by then.
    """

    async def send(self, request: httpx2.Request, **how: Any) -> httpx2.Response:
        """Send a request. Every request of the client passes here."""
        try:
            return await super().send(request, **how)
        except AttributeError as error:
            if not is_reset_at_once(error):
                raise
            raise httpx2.ConnectError("the connection was reset when it was made", request=request) from error


def is_reset_at_once(error: AttributeError) -> bool:
    """Whether the error comes from anyio reading the addresses of a connection that uvloop had closed, and nothing else."""
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    raised_in = place.tb_frame if place is not None else None
    return (
        error.obj is None
        and error.name == "getpeername"
        and raised_in is not None
        and raised_in.f_globals.get("__name__") == "anyio.abc._sockets"
    )


@cache
def trusted() -> ssl.SSLContext:
    """The TLS context with the CA bundle. Loading it blocks for a tenth of a second, and is done once in a process."""
    return httpx2.create_ssl_context()
