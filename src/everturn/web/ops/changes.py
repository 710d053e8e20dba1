"""The operator's event stream: hints that something changed, at most one a second. Clients then read the lists again."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Protocol

from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from everturn.web.access import Access, access_check, visitor_of
from everturn.web.chat.conversations import AsgiEndpoint
from everturn.web.chat.events import HEAD, RECONNECT, EventStreams, Watched
from everturn.web.wire.answers import encode

EVERY_S = 1.0
ALL = ["inbox", "instances", "outbox", "platforms", "sessions", "turns"]


class ChangeSource(Protocol):
    """Signals changes in this process (outbox/hub.py)."""

    def watch(self) -> Any:
        """Start watching: returns an object with `async next()`."""
        ...

    def leave(self, looking: Any) -> None:
        """Stop watching."""
        ...


class ChangeStream:
    """`GET /ops/api/events`."""

    def __init__(self, moves: ChangeSource, streams: EventStreams, access: Access, heartbeat_s: float) -> None:
        self._moves = moves
        self._streams = streams
        self._access = access
        self._heartbeat_s = heartbeat_s

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [Route("/ops/api/events", AsgiEndpoint(self.watch), methods=["GET"])]

    async def watch(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Stream until the client disconnects or loses access."""
        visitor = visitor_of(scope)
        person = "an operator" if visitor is None or visitor.key is None else f"the operator with the key {visitor.key}"
        watched = Watched("", person=person, admitted=access_check(self._access, scope))
        await self._streams.stream(_ChangeFeed(self._moves, watched, send, self._heartbeat_s), watched, receive, send)


class _ChangeFeed:
    """Fills one stream. Each heartbeat says that all may have changed: changes of other instances are not signalled here."""

    def __init__(self, moves: ChangeSource, watched: Watched, send: Send, heartbeat_s: float) -> None:
        self._moves = moves
        self._admitted = watched.admitted
        self._send = send
        self._heartbeat_s = heartbeat_s
        self.started = False

    async def run(self) -> None:
        """Stream changes. Watches before it sends the head, so that no change is missed."""
        looking, clock = self._moves.watch(), asyncio.get_running_loop().time
        try:
            await self._send({"type": "http.response.start", "status": 200, "headers": HEAD})
            self.started = True
            await self._emit(RECONNECT)
            while self._admitted is None or await self._admitted():
                await self._send_changed(ALL)
                until = clock() + self._heartbeat_s
                while (left := until - clock()) > 0:
                    await self._next(looking, left)
        finally:
            self._moves.leave(looking)

    async def _next(self, looking: Any, left: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(left):
                moved = await looking.next()
            await self._send_changed(moved)
            await asyncio.sleep(EVERY_S)

    async def _send_changed(self, moved: list[str]) -> None:
        await self._emit(b"event: changed\ndata: " + encode({"what": moved}) + b"\n\n")

    async def _emit(self, chunk: bytes) -> None:
        await self._send({"type": "http.response.body", "body": chunk, "more_body": True})
