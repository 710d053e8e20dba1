"""Requests to a homeserver: each failure becomes the error that names the right reaction. Also uploads and downloads.

The access token is sent in a header only, so that no URL and no error can show it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any, TypeVar
from urllib.parse import quote

import httpx2

from everturn.errors import OutcomeUnknown, PlatformError, Refused, TryLater
from everturn.http_client import HttpClient
from everturn.platform.matrix.nesting import decode
from everturn.platform.matrix.rules.errors import MatrixNotFound, error_of
from everturn.platform.matrix.wire import UNREADABLE, MatrixFailure, SmallResponse, is_media
from everturn.platform.tls import trusted

T = TypeVar("T")
API = "/_matrix/client/v3"
CONNECT_S = 10.0
ANSWER_S = 30.0
UPLOAD_S = 120.0
UNREACHABLE_S = 2.0
PIECE_BYTES = 1 << 16
NOT_THERE = frozenset({404, 405})
# Nothing left this machine.
NOT_SENT = (
    httpx2.ConnectError,
    httpx2.ConnectTimeout,
    httpx2.PoolTimeout,
    httpx2.UnsupportedProtocol,
    httpx2.ProxyError,
)
DOWNLOADS = ("/_matrix/client/v1/media/download", "/_matrix/media/v3/download")  # the second on servers of before 2024


class MatrixRequests:
    """The HTTP connection of one account to its homeserver."""

    def __init__(self, url: str, token: str, page: int = 100) -> None:
        self.page = page
        self._client = HttpClient(
            base_url=url.rstrip("/"),
            headers={"authorization": f"Bearer {token}"},
            timeout=httpx2.Timeout(ANSWER_S, connect=CONNECT_S),
            verify=trusted(),
            limits=httpx2.Limits(max_connections=32, max_keepalive_connections=16),
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    # -- files ---------------------------------------------------------------------------------------------------------

    async def upload(self, content: bytes, name: str, mime: str) -> str:
        """Upload a file; returns its mxc:// address. Nobody sees it yet, so that a repetition does no harm."""
        headers = {"content-type": mime or "application/octet-stream"}
        try:
            answer = await self.request(
                "POST", "/_matrix/media/v3/upload", params={"filename": name}, content=content, headers=headers,
                timeout=UPLOAD_S,
            )  # fmt: skip
        except OutcomeUnknown as error:
            raise TryLater(str(error), UNREACHABLE_S) from None
        return read_answer(answer, SmallResponse).content_uri

    async def download(self, address: str) -> AsyncIterator[bytes]:
        """Download an mxc:// address in chunks. It was written by a stranger: no other kind of address is requested."""
        path = address.removeprefix("mxc://")
        if not is_media(address):
            raise Refused("this is not the address of a file on Matrix")
        for place, begin in enumerate(DOWNLOADS):
            try:
                async with aclosing(self._pieces(f"{begin}/{quote(path)}")) as pieces:  # stopping early hangs up
                    async for piece in pieces:
                        yield piece
            except MatrixNotFound:
                if place + 1 == len(DOWNLOADS):
                    raise
            else:
                return

    async def _pieces(self, path: str) -> AsyncGenerator[bytes, None]:
        try:
            async with self._client.stream("GET", path, follow_redirects=True, timeout=UPLOAD_S) as response:
                if response.status_code in NOT_THERE:  # an older server may say so without a code
                    raise MatrixNotFound(f"the homeserver has no such file (HTTP {response.status_code})")
                if not response.is_success:
                    raise _failure(response, await response.aread())
                async for piece in response.aiter_bytes(PIECE_BYTES):
                    yield piece
        except httpx2.InvalidURL as error:
            raise MatrixNotFound(f"this is not a valid address: {error}") from None
        except httpx2.HTTPError as error:
            raise TryLater(f"the file could not be fetched: {type(error).__name__}", UNREACHABLE_S) from None
        except OutcomeUnknown as error:  # reading changes nothing
            raise TryLater(str(error), UNREACHABLE_S) from None

    # -- the one way to ask --------------------------------------------------------------------------------------------

    async def get(
        self, path: str, kind: type[T], params: dict[str, str] | None = None, within_s: float = ANSWER_S
    ) -> T:
        """GET a path and decode the response."""
        return read_answer(await self.request("GET", path, params=params, timeout=within_s), kind)

    async def request(self, method: str, path: str, *, timeout: float = ANSWER_S, **more: Any) -> bytes:
        """Make a request; returns the body of the response. Raises PlatformError."""
        limits = httpx2.Timeout(timeout, connect=CONNECT_S)
        address = path if path.startswith("/_") else f"{API}{path}"
        try:
            response = await self._client.request(method, address, timeout=limits, **more)
        except httpx2.InvalidURL as error:
            raise MatrixNotFound(f"this is not a valid address: {error}") from None
        except NOT_SENT as error:
            raise TryLater(f"the homeserver cannot be reached: {type(error).__name__}", UNREACHABLE_S) from None
        except httpx2.HTTPError as error:
            raise OutcomeUnknown(f"the homeserver did not answer: {type(error).__name__}") from None
        if not response.is_success:
            raise _failure(response, response.content)
        return response.content


def read_answer(answer: bytes, kind: type[T]) -> T:
    """Decode a response. Raises OutcomeUnknown."""
    try:
        return decode(answer, kind)
    except UNREADABLE as error:
        # A success that cannot be read: from a proxy between us and the server, or from another kind of server.
        raise OutcomeUnknown(f"the homeserver's response cannot be read: {error}") from None


def _failure(response: httpx2.Response, body: bytes) -> PlatformError:
    try:
        told = decode(body, MatrixFailure)
    except UNREADABLE:
        told = MatrixFailure()  # from a proxy between us and the server
    return error_of(
        response.status_code,
        told.errcode,
        told.error,
        retry_after_ms=told.retry_after_ms,
        retry_after=response.headers.get("retry-after", ""),
    )
