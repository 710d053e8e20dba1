"""Bodies of requests and answers at the endpoints beside the chats: small JSON, and errors in the same form as everywhere."""

from __future__ import annotations

import re

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from everturn.decide import web_words
from everturn.errors import StoreError
from everturn.model import Json
from everturn.web.access import NotAdmitted, visitor_of
from everturn.web.answers import RETRY_AFTER_S, BadRequest, encode

MOST_BODY = 16_384
_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")  # as JSON writes it; behind another backslash it is plain text
RETRY = {"retry-after": str(int(RETRY_AFTER_S))}
UNKEPT = {"cache-control": "no-store"}


async def small_body(request: Request) -> bytes:
    """A small body of JSON; no text in it is one that a database cannot keep."""
    body = await raw_body(request, MOST_BODY)
    if _NUL.search(body):
        raise BadRequest("the body holds a NUL character, which cannot be kept; leave it out")
    return body


async def raw_body(request: Request, most: int) -> bytes:
    """The body, not read further once it is too large."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > most:
            raise HTTPException(413, f"the body is larger than {most} bytes")
    return body


def json_response(value: Json, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """An answer that nobody keeps."""
    return Response(encode(value), status, UNKEPT | (headers or {}), "application/json")


async def refused(request: Request, error: Exception) -> Response:
    """An HTTPException in our form."""
    if not isinstance(error, HTTPException):
        raise error
    words = {
        404: f"there is nothing at {request.url.path[:200]}",
        405: f"{request.method} is not possible at {request.url.path[:200]}",
    }
    said = (
        error.detail
        if error.status_code not in words or error.detail not in {"Not Found", "Method Not Allowed"}
        else words[error.status_code]
    )
    return json_response({"error": said}, error.status_code, dict(error.headers or {}))


async def bad(_: Request, error: Exception) -> Response:
    """A request whose sender can mend it."""
    return json_response({"error": str(error)}, 400)


async def unready(request: Request, error: Exception) -> Response:
    """The store does not answer. What it says names paths and servers: that is for who was let in."""
    return json_response({"error": no_database(request.scope, error)}, 503, RETRY)


def no_database(scope: Scope, error: Exception) -> str:
    """That the database cannot be used now, and why for who was let in."""
    return web_words.NO_DATABASE if visitor_of(scope) is None else f"the database cannot be read now: {error}"


async def not_admitted(_: Request, error: Exception) -> Response:
    """The answer that the refusal itself has."""
    if not isinstance(error, NotAdmitted):
        raise error
    headers = {name.decode(): value.decode() for name, value in error.reply.headers}
    return Response(error.reply.body, error.reply.status, UNKEPT | headers, "application/json")


HANDLERS = {HTTPException: refused, BadRequest: bad, StoreError: unready, NotAdmitted: not_admitted}
