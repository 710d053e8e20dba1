"""Accepts posted messages: acknowledged after the commit and not before."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec
from starlette.types import Receive, Scope, Send

from everturn import points
from everturn.errors import Conflict, EverturnError, Full, StoreUnavailable, TooLong
from everturn.inbox.rows.inbox import Accepted, AcceptOutcome
from everturn.model import Inbound, SessionSource
from everturn.web.access import visitor_of
from everturn.web.wire.answers import CompleteResponse, answer, encode, not_now, refusal, retry_after
from everturn.web.wire.queries import header_of

Accept = Callable[[Inbound], Awaitable[Accepted]]
# A character of a JSON string is at most two escapes of six bytes.
BYTES_PER_CHAR = 12
ROOM_FOR_THE_REST = 65_536


class Chats(Protocol):
    """Parses requests for the platform; a ValueError's text tells the sender what is wrong."""

    def chat(self, raw: bytes) -> str:
        """Return the name of a chat, from the percent-encoded part of the path."""
        ...

    def source(self, chat: str) -> SessionSource:
        """Return the source of messages of this chat."""
        ...

    def read(self, chat: str, body: bytes, person: str | None = None) -> Inbound:
        """Parse a posted message, of the platform's own person or of this one."""
        ...

    def stored_ids(self, message_id: str) -> list[str]:
        """Return the ids under which a sender's id may be stored."""
        ...


class Receipt(msgspec.Struct, frozen=True):
    """The response to a stored message."""

    key: str
    duplicate: bool


class Messages:
    """`POST /api/chats/{chat}/messages`."""

    def __init__(self, accept: Accept, chats: Chats, message_chars: int) -> None:
        self._accept = accept
        self._chats = chats
        self.most = message_chars * BYTES_PER_CHAR + ROOM_FOR_THE_REST

    async def __call__(self, raw: bytes, scope: Scope, receive: Receive, send: Send) -> None:
        """Parse, store and acknowledge the message."""
        body = await bounded_body(scope, receive, self.most)
        if body is None:
            return
        too_large = f"the body is larger than {self.most} bytes, the limit for a message"
        reply = await self.take(raw, body, person_of(scope)) if len(body) <= self.most else refusal(413, too_large)
        await answer(send, reply)
        if reply.status < 300:
            points.reached("inbox.acknowledged")

    async def take(self, raw: bytes, body: bytes, person: str | None = None) -> CompleteResponse:
        """Store a posted message and return the response."""
        try:
            inbound = self._chats.read(self._chats.chat(raw), body, person)
        except ValueError as error:
            return refusal(400, str(error))
        try:
            accepted = await self._accept(inbound)
        except (Conflict, Full, TooLong, StoreUnavailable) as error:
            return _refusal(error)
        new = accepted.outcome is AcceptOutcome.ACCEPTED
        return CompleteResponse(202 if new else 200, encode(Receipt(accepted.key, not new)))


async def bounded_body(scope: Scope, receive: Receive, most: int) -> bytes | None:
    """Read the body; stops once it is larger than `most`. None if the client disconnected."""
    announced = int(header_of(scope, b"content-length") or 0)
    if announced > most:
        return bytes(most + 1)
    body, more = b"", True
    while more and len(body) <= most:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message.get("body", b"")
        more = message.get("more_body", False)
    return body


def person_of(scope: Scope) -> str | None:
    """Return the sender, if it is not the platform's own person: a program has the name of its key."""
    visitor = visitor_of(scope)
    return f"key:{visitor.key}" if visitor is not None and visitor.key is not None else None


def _refusal(error: EverturnError) -> CompleteResponse:
    match error:
        case Conflict():
            return refusal(409, "this id was used in this chat before, with another text; use a new id")
        case Full():
            return refusal(429, str(error), retry_after(error.retry_after_s))
        case TooLong():
            return refusal(413, str(error))
        case _:
            return not_now(f"the message is not stored yet: {error}; send it again with the same id")
