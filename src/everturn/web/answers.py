"""Answers as raw ASGI messages: JSON bodies, and errors that say what is wrong and what to do."""

from __future__ import annotations

import math

import msgspec
from starlette.types import Send

Header = tuple[bytes, bytes]
encode = msgspec.json.Encoder().encode
_JSON: Header = (b"content-type", b"application/json")
RETRY_AFTER_S = 5.0


class BadRequest(ValueError):
    """The request is wrong; the text tells its sender what to change."""


async def answer(send: Send, status: int, body: bytes, *extra: Header) -> None:
    """Send a complete JSON answer."""
    headers = [_JSON, (b"content-length", str(len(body)).encode()), *extra]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def refuse(send: Send, status: int, why: str, *extra: Header) -> None:
    """Say no, and why."""
    await answer(send, status, encode({"error": why}), *extra)


def retry_after(seconds: float) -> Header:
    """When to try again, in whole seconds, never at once."""
    return b"retry-after", str(max(1, math.ceil(seconds))).encode()
