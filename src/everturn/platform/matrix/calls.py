"""Calls to a homeserver: the requests, and how each is made, limited and repeated."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable
from contextlib import aclosing
from typing import Any, TypeVar
from urllib.parse import quote

import httpx2
import msgspec
import structlog

from everturn.errors import OutcomeUnknown, PlatformError, Refused, TryLater
from everturn.http_client import HttpClient, trusted
from everturn.platform.matrix.rules import Forbidden, MatrixNotFound, error_of
from everturn.platform.matrix.wire import (
    UNREADABLE,
    HistoryPage,
    MatrixEvent,
    MatrixFailure,
    SmallResponse,
    Sync,
    decode,
    is_media,
)

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
log = structlog.get_logger()


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


class Homeserver(MatrixRequests):
    """The calls of one account to its homeserver: https://spec.matrix.org/latest/client-server-api/. Each raises PlatformError."""

    # -- the account ---------------------------------------------------------------------------------------------------

    async def whoami(self) -> SmallResponse:
        """The account and the device of the access token."""
        return await self.get("/account/whoami", SmallResponse)

    async def sync(self, since: str | None, wanted: str, wait_s: float, within_s: float) -> Sync:
        """Long-poll for what is new since then."""
        params = {"filter": wanted, "timeout": str(int(wait_s * 1000)), "set_presence": "online"}
        if since is not None:
            params["since"] = since
        return await self.get("/sync", Sync, params, within_s)

    async def joined_rooms(self) -> list[str]:
        """The rooms that we are in."""
        return (await self.get("/joined_rooms", SmallResponse)).joined_rooms

    # -- rooms ---------------------------------------------------------------------------------------------------------

    async def join(self, room: str) -> None:
        """Accept an invitation; a repetition succeeds."""
        await self.request("POST", f"{_room(room)}/join", json={})

    async def leave(self, room: str, reason: str = "") -> None:
        """Leave a room, or decline an invitation."""
        await self.request("POST", f"{_room(room)}/leave", json={"reason": reason} if reason else {})

    async def state(self, room: str) -> list[msgspec.Raw]:
        """The state events of a room."""
        return await self.get(f"{_room(room)}/state", list[msgspec.Raw])

    async def successor(self, room: str) -> str:
        """The room that replaced this one; empty if none did. Raises PlatformError."""
        try:
            return (await self.get(f"{_room(room)}/state/m.room.tombstone/", SmallResponse)).replacement_room
        except (Forbidden, MatrixNotFound):
            return ""

    async def is_encrypted(self, room: str) -> bool:
        """Whether a room is encrypted; False for a room that we may not look into, where sending reports it."""
        try:
            await self.request("GET", f"{_room(room)}/state/m.room.encryption/")
        except (Forbidden, MatrixNotFound):
            return False
        except OutcomeUnknown as error:  # of a read: nothing was written
            raise TryLater(str(error), 0.0) from None
        return True

    async def messages(self, room: str, start: str, wanted: str, *, end: str = "") -> HistoryPage:
        """A page of a room's history, newest first, from one place back to another."""
        params = {"dir": "b", "filter": wanted, "limit": str(self.page)}
        params |= {name: value for name, value in (("from", start), ("to", end)) if value}
        return await self.get(f"{_room(room)}/messages", HistoryPage, params)

    async def event(self, room: str, event_id: str) -> MatrixEvent:
        """One event."""
        return await self.get(f"{_room(room)}/event/{_quoted(event_id)}", MatrixEvent)

    async def reactions(self, room: str, event_id: str) -> HistoryPage:
        """The newest reactions to a message."""
        path = f"/_matrix/client/v1/rooms/{_quoted(room)}/relations/{_quoted(event_id)}/m.annotation/m.reaction"
        return await self.get(path, HistoryPage, {"limit": "100"})

    # -- writing -------------------------------------------------------------------------------------------------------

    async def put(self, room: str, kind: str, content: dict[str, Any], txn: str) -> str:
        """Send an event under a transaction id, which the server recognises for this device; returns the event's id."""
        path = f"{_room(room)}/send/{_quoted(kind)}/{_quoted(txn)}"
        answer = await self.request("PUT", path, json=content)
        number = read_answer(answer, SmallResponse).event_id
        if not number:
            raise OutcomeUnknown("the homeserver accepted a message without returning its id")
        return number

    async def redact(self, room: str, event_id: str, txn: str) -> None:
        """Redact an event."""
        await self.request("PUT", f"{_room(room)}/redact/{_quoted(event_id)}/{_quoted(txn)}", json={})

    async def receipt(self, room: str, event_id: str) -> None:
        """Send a read receipt."""
        await self.request("POST", f"{_room(room)}/receipt/m.read/{_quoted(event_id)}", json={})

    async def typing(self, room: str, user: str, for_s: float) -> None:
        """Show the typing indicator."""
        path = f"{_room(room)}/typing/{_quoted(user)}"
        await self.request("PUT", path, json={"typing": True, "timeout": int(for_s * 1000)})

    async def noted(self, user: str, room: str, name: str) -> bool:
        """Whether we saved a note about a room on the server."""
        try:
            await self.request("GET", _note(user, room, name))
        except MatrixNotFound:
            return False
        return True

    async def note(self, user: str, room: str, name: str) -> None:
        """Save a note about a room on the server, where every later process finds it."""
        await self.request("PUT", _note(user, room, name), json={"noted": True})


async def best_effort(call: Awaitable[object]) -> None:
    """Make a call that is not worth a retry; a failure is only logged."""
    try:
        await call
    except PlatformError as error:
        log.info("optional Matrix call failed", error=str(error))


def _room(room: str) -> str:
    return f"/rooms/{_quoted(room)}"


def _note(user: str, room: str, name: str) -> str:
    return f"/user/{_quoted(user)}{_room(room)}/account_data/{_quoted(name)}"


def _quoted(text: str) -> str:
    return quote(text, safe="")
