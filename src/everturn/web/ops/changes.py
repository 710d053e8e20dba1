"""The operator's stream: hints that something moved, at most one a second. What it was is read from the store."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Protocol

from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from everturn.web.access import Access, still_in, visitor_of
from everturn.web.answers import encode
from everturn.web.conversations import Bare
from everturn.web.events import HEAD, RECONNECT, EventStreams, Watched

EVERY_S = 1.0
ALL = ["inbox", "instances", "outbox", "platforms", "sessions", "turns"]


class Moves(Protocol):
    """Says what has moved in this process (gateway/hub.py)."""

    def watch(self) -> Any:
        """Begin to look: something with `async next()`."""
        ...

    def leave(self, looking: Any) -> None:
        """Look no more."""
        ...


class Changes:
    """`GET /ops/api/events`."""

    def __init__(self, moves: Moves, streams: EventStreams, access: Access, heartbeat_s: float) -> None:
        self._moves = moves
        self._streams = streams
        self._access = access
        self._heartbeat_s = heartbeat_s

    def routes(self) -> list[Route]:
        """Where it is."""
        return [Route("/ops/api/events", Bare(self.watch), methods=["GET"])]

    async def watch(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Stream until the client goes or may no longer look."""
        visitor = visitor_of(scope)
        person = "an operator" if visitor is None or visitor.key is None else f"the operator with the key {visitor.key}"
        watched = Watched("", person=person, admitted=still_in(self._access, scope))
        await self._streams.stream(_Feed(self._moves, watched, send, self._heartbeat_s), watched, receive, send)


class _Feed:
    """One stream. With every sign of life it says that all may have moved: another instance's work is not seen from here."""

    def __init__(self, moves: Moves, watched: Watched, send: Send, heartbeat_s: float) -> None:
        self._moves = moves
        self._admitted = watched.admitted
        self._send = send
        self._heartbeat_s = heartbeat_s
        self.started = False

    async def run(self) -> None:
        """Watch before the head is sent: what moves from then on is not missed."""
        looking, clock = self._moves.watch(), asyncio.get_running_loop().time
        try:
            await self._send({"type": "http.response.start", "status": 200, "headers": HEAD})
            self.started = True
            await self._emit(RECONNECT)
            while self._admitted is None or await self._admitted():
                await self._tell(ALL)
                until = clock() + self._heartbeat_s
                while (left := until - clock()) > 0:
                    await self._next(looking, left)
        finally:
            self._moves.leave(looking)

    async def _next(self, looking: Any, left: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(left):
                moved = await looking.next()
            await self._tell(moved)
            await asyncio.sleep(EVERY_S)

    async def _tell(self, moved: list[str]) -> None:
        await self._emit(b"event: changed\ndata: " + encode({"what": moved}) + b"\n\n")

    async def _emit(self, chunk: bytes) -> None:
        await self._send({"type": "http.response.body", "body": chunk, "more_body": True})
