"""Posting a message: acknowledged after its commit and not before. This is the hot path, so it speaks raw ASGI."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from starlette.types import Receive, Scope, Send

from everturn import points
from everturn.errors import Conflict, Full, StoreUnavailable, TooLong
from everturn.model import Inbound, SessionSource
from everturn.store.operations.inbox import Accepted, Outcome
from everturn.web.answers import RETRY_AFTER_S, BadRequest, Header, answer, encode, refuse, retry_after

Accept = Callable[[Inbound], Awaitable[Accepted]]
# A character of a JSON string is at most two escapes of six bytes.
BYTES_PER_CHAR = 12
ROOM_FOR_THE_REST = 65_536


class Chats(Protocol):
    """How the platform reads requests; a ValueError's text tells the sender what is wrong."""

    def chat(self, raw: bytes) -> str:
        """The name of a chat, from its percent-encoded place in the path."""
        ...

    def source(self, chat: str) -> SessionSource:
        """Where messages of this chat come from."""
        ...

    def read(self, chat: str, body: bytes) -> Inbound:
        """The message in a posted body."""
        ...

    def stored_ids(self, message_id: str) -> list[str]:
        """How an id that a person names may be stored."""
        ...


class TooLarge(Exception):
    """A body is larger than the longest message can be."""


class Messages:
    """`POST /api/chats/{chat}/messages`."""

    def __init__(self, accept: Accept, chats: Chats, message_chars: int) -> None:
        self._accept = accept
        self._chats = chats
        self._most = message_chars * BYTES_PER_CHAR + ROOM_FOR_THE_REST

    async def __call__(self, chat: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Read the message, have it stored, say so."""
        try:
            body = await self._body(scope, receive)
            if body is None:
                return
            accepted = await self._accept(self._read(chat, body))
        except (BadRequest, TooLarge, Conflict, Full, TooLong, StoreUnavailable) as error:
            await refuse(send, *_refusal(error))
            return
        new = accepted.outcome is Outcome.ACCEPTED
        await answer(send, 202 if new else 200, encode({"key": accepted.key, "duplicate": not new}))
        points.reached("inbox.acknowledged")

    def _read(self, chat: str, body: bytes) -> Inbound:
        try:
            return self._chats.read(chat, body)
        except ValueError as error:
            raise BadRequest(str(error)) from None

    async def _body(self, scope: Scope, receive: Receive) -> bytes | None:
        """The whole body, never more than the longest message needs; None when the client went away."""
        for name, value in scope["headers"]:
            if name == b"content-length" and int(value) > self._most:
                raise TooLarge(self._too_large())
        message = await receive()
        body: bytes = message.get("body", b"")
        while message.get("more_body") and len(body) <= self._most:
            message = await receive()
            body += message.get("body", b"")
        if message["type"] == "http.disconnect":
            return None
        if len(body) > self._most:
            raise TooLarge(self._too_large())
        return body

    def _too_large(self) -> str:
        return f"the body is larger than {self._most} bytes, which the longest message does not need"


def _refusal(error: Exception) -> tuple[int, str, *tuple[Header, ...]]:
    match error:
        case Conflict():
            return 409, "this id was used in this chat before, with other words; send these words under a new id"
        case Full(retry_after_s=seconds):
            return 429, str(error), retry_after(seconds)
        case TooLong() | TooLarge():
            return 413, str(error)
        case StoreUnavailable():
            why = f"the message was not accepted: {error}; send it again with the same id"
            return 503, why, retry_after(RETRY_AFTER_S)
        case _:
            return 400, str(error)
