"""A stream of server-sent events. It ends properly, or with an error that its client raises."""

from __future__ import annotations

from starlette.types import Send

from everturn.web.chat.events import HEAD, HEARTBEAT


class Stream:
    """One streamed response."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.started = False

    async def open(self) -> None:
        """Send the response head: from then on an error is an event."""
        self.started = True
        await self._send({"type": "http.response.start", "status": 200, "headers": HEAD})

    async def emit(self, chunk: bytes) -> None:
        """Send some bytes."""
        await self._send({"type": "http.response.body", "body": chunk, "more_body": True})

    async def beat(self) -> None:
        """Send a comment as heartbeat."""
        await self.emit(HEARTBEAT)

    async def break_off(self, error: bytes) -> None:
        """Send an error, which clients raise, and end the stream."""
        await self.emit(b"data: " + error + b"\n\n")
        await self.close()

    async def close(self) -> None:
        """End the stream."""
        await self._send({"type": "http.response.body", "body": b""})
