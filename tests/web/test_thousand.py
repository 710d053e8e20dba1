"""A thousand event streams of a real gateway process that started with a low limit of open files."""

import asyncio
from pathlib import Path

from everturn.web.wire.server import room_for
from tests.cli.outside import post
from tests.cli.program import GatewayProgram
from tests.waiting import WAIT_S, within

WATCHERS, CHATS = 1_000, 10
MOST_BYTES = 60_000
FEW_FILES = ["sh", "-c", 'ulimit -Sn 300; exec "$@"', "sh"]
Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def memory_of(pid: int) -> int:
    """Resident bytes."""
    status = Path(f"/proc/{pid}/status").read_text()
    return 1024 * int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1])


async def watch(port: int, token: str, number: int) -> Stream:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    path = f"/api/chats/c{number % CHATS}/events"
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
    await reader.readuntil(b"retry: 1000\n\n")
    return reader, writer


async def test_a_thousand_idle_watchers_cost_little_and_all_get_the_events(tmp_path: Path) -> None:
    assert room_for(WATCHERS + 100) >= WATCHERS  # on our side, too
    with GatewayProgram(tmp_path, before=FEW_FILES) as gateway:
        who = gateway.ready()
        token, port = (tmp_path / "api_token").read_text().strip(), int(who.url.rpartition(":")[2])
        for chat in range(CHATS):
            await asyncio.to_thread(post, tmp_path, f"c{chat}", "m0", "hello")
        before = memory_of(who.pid)
        streams: list[Stream] = []
        async with within(WAIT_S, lambda: f"{len(streams)} streams"):
            while len(streams) < WATCHERS:
                streams.append(await watch(port, token, len(streams)))
        assert (memory_of(who.pid) - before) / WATCHERS < MOST_BYTES
        for chat in range(CHATS):
            await asyncio.to_thread(post, tmp_path, f"c{chat}", "m1", "hello")
        async with within(WAIT_S, lambda: gateway.output):
            for reader, _ in streams:
                await reader.readuntil(b'"state":"answered"')
        for _, writer in streams:
            writer.close()
