"""HTTP responses with JSON bodies, also for errors: as ASGI messages, or as the bytes of HTTP/1.1."""

from __future__ import annotations

import math
from typing import NamedTuple

import msgspec
from starlette.types import Send
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

Header = tuple[bytes, bytes]
encode = msgspec.json.Encoder().encode
RETRY_AFTER_S = 5.0
_JSON: Header = (b"content-type", b"application/json")
_LENGTH = b"content-type: application/json\r\ncontent-length: %d\r\n%b\r\n%b"


class BadRequest(ValueError):
    """The request is invalid; the text tells its sender what to change."""


class CompleteResponse(NamedTuple):
    """A complete HTTP response."""

    status: int
    body: bytes
    headers: tuple[Header, ...] = ()

    def wire(self, *more: Header) -> bytes:
        """Return the bytes of the HTTP/1.1 response."""
        lines = b"".join([b"%b: %b\r\n" % header for header in (*more, *self.headers)])
        return STATUS_LINE[self.status] + _LENGTH % (len(self.body), lines, self.body)


def refusal(status: int, why: str, *headers: Header) -> CompleteResponse:
    """Return an error response with its cause."""
    return CompleteResponse(status, encode({"error": why}), headers)


def not_now(why: str) -> CompleteResponse:
    """Return a 503 with Retry-After."""
    return refusal(503, why, retry_after(RETRY_AFTER_S))


def retry_after(seconds: float) -> Header:
    """Return the header Retry-After, in whole seconds, at least 1."""
    return b"retry-after", str(max(1, math.ceil(seconds))).encode()


async def answer(send: Send, reply: CompleteResponse) -> None:
    """Send a complete response."""
    headers = [_JSON, (b"content-length", str(len(reply.body)).encode()), *reply.headers]
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": reply.body})
