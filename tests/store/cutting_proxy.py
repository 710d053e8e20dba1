"""A TCP proxy in front of PostgreSQL that cuts connections when a test tells it to."""

import asyncio
from typing import Literal, Self

Cut = Literal["before", "after"]


class CuttingProxy:
    """Cuts the connection that next sends a given text, before the server sees it, or after it has answered."""

    def __init__(self, server_port: int) -> None:
        self.port = 0
        self.word: bytes | None = None
        self.cut: Cut = "before"
        self.frozen = False
        self.was_cut = asyncio.Event()
        self._server_port = server_port
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def url(self, direct: str) -> str:
        """The same database, through this proxy."""
        return direct.replace(f":{self._server_port}/", f":{self.port}/")

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._connect_through(reader, writer)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _connect_through(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream, to_server = await asyncio.open_connection("127.0.0.1", self._server_port)
        answering = asyncio.create_task(self._answer(upstream, writer))
        try:
            while data := await reader.read(65536):
                if self.word is not None and self.word in data:
                    self.word = None
                    answering.cancel()
                    await asyncio.wait([answering])
                    await self._cut(data, upstream, to_server)
                    return
                if not self.frozen:
                    to_server.write(data)
        finally:
            answering.cancel()
            to_server.transport.abort()

    async def _answer(self, upstream: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await upstream.read(65536):
            writer.write(data)
        writer.close()

    async def _cut(self, data: bytes, upstream: asyncio.StreamReader, to_server: asyncio.StreamWriter) -> None:
        if self.cut == "after":
            to_server.write(data)
            await upstream.read(65536)
        self.was_cut.set()
