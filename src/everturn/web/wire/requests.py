"""Requests and responses, as ASGI messages and as bytes: what a request's query, headers and body say, and JSON responses.

A BadRequest names what is invalid. No database can store a NUL, so it is refused here for every endpoint: in the URL by
`keepable`, in a body by `small_body`; headers cannot contain one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import parse_qsl

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope, Send
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from everturn.model import Json

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self';"
    " frame-ancestors 'none'; base-uri 'none'; form-action 'self'; require-trusted-types-for 'script';"
    " trusted-types everturn"
)
ALWAYS: tuple[tuple[str, str], ...] = (
    ("content-security-policy", POLICY),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("permissions-policy", "camera=(), geolocation=(), microphone=(), payment=()"),
)
HTTPS_ONLY = ("strict-transport-security", "max-age=31536000")
LARGEST = 2**63 - 1
Header = tuple[bytes, bytes]
encode = msgspec.json.Encoder().encode
RETRY_AFTER_S = 5.0
_JSON: Header = (b"content-type", b"application/json")
_LENGTH = b"content-type: application/json\r\ncontent-length: %d\r\n%b\r\n%b"
MOST_BODY = 16_384
_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")  # as JSON escapes it; after another backslash it is plain text
RETRY = {"retry-after": str(int(RETRY_AFTER_S))}
NO_STORE = {"cache-control": "no-store"}


def headers(*, secure: bool) -> list[tuple[str, str]]:
    """Return the headers of every response; with https, also Strict-Transport-Security."""
    return [*ALWAYS, HTTPS_ONLY] if secure else list(ALWAYS)


def query_of(scope: Scope) -> dict[str, str]:
    """Return the query's parameters; of one given twice the last counts."""
    return dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True))


def keepable(scope: Scope) -> None:
    """Raise BadRequest for a URL with a NUL, which no database can store, so that no endpoint has to check. What cannot be
    decoded is replaced where a URL is read, headers cannot contain NUL, and bodies are read by `small_body`.
    """
    if "\x00" in scope["path"] or b"%00" in scope["query_string"]:
        raise BadRequest("the URL contains a NUL character; remove it")


def header_of(scope: Scope, name: bytes) -> bytes | None:
    """Return a header's value."""
    return next((value for each, value in scope["headers"] if each == name), None)


def whole(query: Mapping[str, str], name: str, default: int, most: int = LARGEST) -> int:
    """Return a query parameter as a whole number from 0 to `most`."""
    return whole_number(name, query[name], most) if name in query else default


def whole_number(name: str, text: str, most: int = LARGEST) -> int:
    """Parse a whole number from 0 to `most`."""
    if not (text.isascii() and text.isdecimal() and len(text) <= 19 and int(text) <= most):
        raise BadRequest(f"{name} must be a whole number from 0 to {most}, not {text[:40]!r}")
    return int(text)


def place_of(scope: Scope) -> int | None:
    """Return the event id after which a stream continues: Last-Event-ID, which a reconnect sends, else `after` of the URL."""
    last = header_of(scope, b"last-event-id")
    if last:
        return whole_number("Last-Event-ID", last.decode("latin-1"))
    query = query_of(scope)
    return whole(query, "after", 0) if "after" in query else None


def wants_added(scope: Scope) -> bool:
    """Whether an event stream sends only what was added to a text: `?added=1`."""
    return query_of(scope).get("added") == "1"


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


async def small_body(request: Request) -> bytes:
    """Read a small JSON body. Raises BadRequest for a NUL character, which no database can store."""
    body = await raw_body(request, MOST_BODY)
    if _NUL.search(body):
        raise BadRequest("the body contains a NUL character, which cannot be stored; remove it")
    return body


async def raw_body(request: Request, most: int) -> bytes:
    """Read the body; stops with 413 once it is larger than `most`."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > most:
            raise HTTPException(413, f"the body is larger than {most} bytes")
    return body


def json_response(value: Json, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return a JSON response that must not be cached."""
    return Response(encode(value), status, NO_STORE | (headers or {}), "application/json")
