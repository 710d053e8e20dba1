"""A stream of server-sent events that ends in form, or with an error that its client raises."""

from __future__ import annotations

from starlette.types import Send

from everturn.web.events import HEAD, HEARTBEAT


class Stream:
    """One answer on its way."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.started = False

    async def open(self) -> None:
        """The answer's head: from here on an error is an event."""
        self.started = True
        await self._send({"type": "http.response.start", "status": 200, "headers": HEAD})

    async def emit(self, chunk: bytes) -> None:
        """Send some bytes."""
        await self._send({"type": "http.response.body", "body": chunk, "more_body": True})

    async def beat(self) -> None:
        """A comment: somebody is still here."""
        await self.emit(HEARTBEAT)

    async def break_off(self, error: bytes) -> None:
        """It cannot go on: clients raise what this says."""
        await self.emit(b"data: " + error + b"\n\n")
        await self.close()

    async def close(self) -> None:
        """The end."""
        await self._send({"type": "http.response.body", "body": b""})
