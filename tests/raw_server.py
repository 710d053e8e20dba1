"""Servers that send the bytes a test says: an HTTP server without a library, and an HTTP proxy that passes connections on."""

import asyncio
import ipaddress
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.waiting import Changes

CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"
LENGTH = b"content-length:"


def chunk(body: bytes) -> bytes:
    """A chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(body), body)


def whole(body: bytes, status: str = "200 OK", *headers: str) -> bytes:
    """A whole response."""
    lines = "".join(f"{line}\r\n" for line in headers)
    return f"HTTP/1.1 {status}\r\n{lines}Content-Length: {len(body)}\r\n\r\n".encode() + body


@dataclass
class RawConnection:
    """A client's connection, as the server has it."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    asked: Callable[[], None]
    heads: list[bytes] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    ended: asyncio.Event = field(default_factory=asyncio.Event)  # the client has closed it

    async def head(self) -> bytes:
        """The head of the next request."""
        self.heads.append(await self.reader.readuntil(b"\r\n\r\n"))
        self.asked()
        return self.heads[-1]

    async def request(self) -> bytes:
        """The body of the next request."""
        lines = (await self.head()).lower().split(b"\r\n")
        size = next((int(line.removeprefix(LENGTH)) for line in lines if line.startswith(LENGTH)), 0)
        self.bodies.append(await self.reader.readexactly(size))
        return self.bodies[-1]

    async def send(self, *pieces: bytes) -> None:
        """Send pieces, each by itself."""
        for each in pieces:
            self.writer.write(each)
            await self.writer.drain()
            await asyncio.sleep(0)

    async def gone(self) -> None:
        """Wait until the client has closed it."""
        with suppress(OSError):
            while await self.reader.read(65_536):
                pass


Answers = Callable[[RawConnection], Awaitable[None]]


class RawServer:
    """Listens on this machine; `answers` serves each connection, and its end closes it."""

    def __init__(
        self, answers: Answers, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1", port: int = 0
    ) -> None:
        self._address = host, port
        self._answers = answers
        self._tls = tls
        self._serving: set[asyncio.Task[None]] = set()
        self._changes = Changes(lambda: f"{self.requests} requests on {len(self.connections)} connections")
        self.connections: list[RawConnection] = []

    @property
    def requests(self) -> int:
        """How many requests arrived."""
        return sum(len(each.heads) for each in self.connections)

    async def asked(self, times: int) -> None:
        """Wait until so many requests have arrived."""
        await self._changes.until(lambda: self.requests >= times)

    @property
    def url(self) -> str:
        """Its address."""
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, *self._address, ssl=self._tls, limit=1 << 20)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = RawConnection(reader, writer, self._changes.changed)
        self.connections.append(connection)
        task = asyncio.ensure_future(self._run(connection))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _run(self, connection: RawConnection) -> None:
        try:
            await self._answers(connection)
            if connection.writer.can_write_eof():
                connection.writer.write_eof()
            await connection.gone()
        except (OSError, EOFError):
            pass
        finally:
            connection.writer.transport.abort()
            connection.ended.set()


def always(*response: bytes) -> Answers:
    """Answer every request of a connection with the same pieces."""

    async def answers(connection: RawConnection) -> None:
        while True:
            await connection.request()
            await connection.send(*response)

    return answers


async def passing_on(connection: RawConnection) -> None:
    """A proxy: passes a CONNECT on, and answers any other request itself, with the request line as the body."""
    head = await connection.head()
    line = head.partition(b"\r\n")[0]
    if not line.startswith(b"CONNECT "):
        await connection.send(whole(line))
        return
    host, _, port = line.split()[1].decode().rpartition(":")
    reader, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    await connection.send(b"HTTP/1.1 200 Connection established\r\n\r\n")
    try:
        await asyncio.gather(pipe(connection.reader, writer), pipe(reader, connection.writer))
    finally:
        writer.transport.abort()


async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy bytes until they end."""
    while data := await reader.read(65_536):
        writer.write(data)
        await writer.drain()
    writer.close()


@dataclass(frozen=True)
class OwnAuthority:
    """A certificate authority of our own: the file with its certificate, and a context of a server that it vouches for."""

    file: Path
    server: ssl.SSLContext

    @classmethod
    def made_in(cls, folder: Path) -> Self:
        """Make an authority and the certificate of 127.0.0.1."""
        now = datetime.now(UTC)
        keys = [ec.generate_private_key(ec.SECP256R1()) for _ in range(2)]
        names = [x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, each)]) for each in ("own CA", "127.0.0.1")]
        address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        identifier = x509.SubjectKeyIdentifier.from_public_key(keys[0].public_key())
        certificates = []
        for place, extension in enumerate((x509.BasicConstraints(ca=True, path_length=0), address)):
            builder = x509.CertificateBuilder().issuer_name(names[0]).subject_name(names[place])
            builder = builder.public_key(keys[place].public_key()).serial_number(place + 1)
            builder = builder.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
            builder = builder.add_extension(extension, critical=place == 0)
            certificates.append(builder.add_extension(identifier, critical=False).sign(keys[0], hashes.SHA256()))
        pem = serialization.Encoding.PEM
        (folder / "ca.pem").write_bytes(certificates[0].public_bytes(pem))
        key = keys[1].private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        (folder / "server.pem").write_bytes(certificates[1].public_bytes(pem) + key)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "server.pem")
        return cls(folder / "ca.pem", context)

    def trusted(self) -> ssl.SSLContext:
        """A context that trusts nobody else."""
        return ssl.create_default_context(cafile=str(self.file))
