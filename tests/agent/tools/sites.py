"""A web site on loopback that answers what a test wrote, byte by byte."""

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

Answer = bytes | Callable[[asyncio.StreamWriter], None]


def answer(body: bytes | str, kind: str = "text/plain", status: str = "200 OK", **headers: str) -> bytes:
    """A whole answer of a server."""
    data = body.encode() if isinstance(body, str) else body
    lines = {"content-type": kind, "content-length": str(len(data)), "connection": "close"} | {
        name.replace("_", "-"): value for name, value in headers.items()
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"HTTP/1.1 {status}\r\n{head}\r\n".encode() + data


def redirect(to: str) -> bytes:
    """Look there instead."""
    return answer("", status="302 Found", location=to)


@dataclass
class Site:
    """Its pages by path, and the requests it saw. A page that is None never answers."""

    pages: dict[str, bytes | None]
    context: ssl.SSLContext | None = None
    port: int = 0
    seen: list[str] = field(default_factory=list)
    asked: asyncio.Event = field(default_factory=asyncio.Event)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self.context)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()

    def url(self, path: str = "/", host: str = "127.0.0.1") -> str:
        """The address of a page."""
        return f"{'https' if self.context else 'http'}://{host}:{self.port}{path}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = (await reader.readuntil(b"\r\n\r\n")).decode()
            self.seen.append(request)
            self.asked.set()
            page = self.pages.get(request.split()[1], answer("no such page", status="404 Not Found"))
            if page is None:
                await reader.read()  # until they give up
            else:
                writer.write(page)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # they gave up
        finally:
            writer.close()
