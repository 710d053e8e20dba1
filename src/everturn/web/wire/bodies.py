"""Request and response bodies of the endpoints beside the chats: small JSON, and errors in the common format."""

from __future__ import annotations

import re

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from everturn.errors import StoreError
from everturn.model import Json
from everturn.web.access import NotAdmitted, visitor_of
from everturn.web.rules import web_texts
from everturn.web.wire.requests import RETRY_AFTER_S, BadRequest, encode

MOST_BODY = 16_384
_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")  # as JSON escapes it; after another backslash it is plain text
RETRY = {"retry-after": str(int(RETRY_AFTER_S))}
NO_STORE = {"cache-control": "no-store"}


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


def no_database(scope: Scope, error: Exception) -> str:
    """Return the text of a database error. Its cause names paths and servers: only authenticated senders get it."""
    return web_texts.NO_DATABASE if visitor_of(scope) is None else f"the database is unavailable: {error}"


async def not_admitted(_: Request, error: Exception) -> Response:
    """Return the response of a NotAdmitted."""
    if not isinstance(error, NotAdmitted):
        raise error
    headers = {name.decode(): value.decode() for name, value in error.reply.headers}
    return Response(error.reply.body, error.reply.status, NO_STORE | headers, "application/json")


HANDLERS = {HTTPException: refused, BadRequest: bad, StoreError: unready, NotAdmitted: not_admitted}
