"""MCP servers: real ones over both transports; dead, hanging and lying ones never stop a turn."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from everturn.agent.toolbox import Tool
from everturn.agent.tools.mcp import McpServer, McpSettings
from everturn.clock import Clock, SystemClock
from everturn.model import Effect
from everturn.testing import ManualClock
from tests.agent.tools.benches import Bench
from tests.agent.tools.test_shell import is_gone
from tests.house import ROOT
from tests.waiting import WAIT_S, poll

PROGRAM = str(ROOT / "tests" / "agent" / "tools" / "mcp_program.py")
ENVIRON = {"PATH": os.environ["PATH"], "OPENAI_API_KEY": "sk-secret"}
START_S = 4 * WAIT_S  # real servers that load a large library
PATIENT = {"start_s": START_S, "call_s": 60.0}


class Offered:
    """A bench with the tools that a server offered before the turn."""

    def __init__(self, server: McpServer, bench: Bench) -> None:
        self.server = server
        self.bench = bench

    async def use(self, name: str, /, **given: object) -> str:
        """One call."""
        return (await self.bench.use_all((name, given)))[0]


@asynccontextmanager
async def offered(folder: Path, clock: Clock | None = None, **changes: object) -> AsyncIterator[Offered]:
    """A server as one has it in a gateway."""
    program = {"command": (sys.executable, PROGRAM), "folder": folder} if "url" not in changes else {}
    settings = McpSettings(name="test", **(PATIENT | program | changes))  # type: ignore[arg-type]
    server = McpServer(settings, ENVIRON, clock or SystemClock())
    tools = await connected(server)
    try:
        async with Bench(folder, lambda _: tools) as bench:
            yield Offered(server, bench)
    finally:
        await server.close()


async def connected(server: McpServer) -> Sequence[Tool]:
    """What it offers, when it is connected."""
    await poll(lambda: server.tools() is not None, START_S)
    return server.tools() or ()


async def failed(server: McpServer, how: str = "mcp_server_failed") -> None:
    """Start it, and wait until that failed."""
    with capture_logs() as logs:
        assert server.tools() is None
        await poll(lambda: any(each["event"] == how for each in logs), seen=lambda: logs)


@contextmanager
def held_port() -> Iterator[int]:
    """A port that is ours for the whole test, though nobody listens there."""
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


@asynccontextmanager
async def http_server(folder: Path, port: int) -> AsyncIterator["subprocess.Popen[bytes]"]:
    """The same server at an address."""
    command = [sys.executable, PROGRAM, str(port)]
    with subprocess.Popen(command, cwd=folder) as process:  # noqa: ASYNC220  it does not block
        try:
            await poll(lambda: answers(port), START_S)
            yield process
        finally:
            process.kill()


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


async def test_the_tools_of_a_program_are_used_with_its_name_in_front(tmp_path: Path) -> None:
    async with offered(tmp_path) as mcp:
        names = [tool.name for tool in mcp.server.tools() or ()]
        assert names == [
            "test_add",
            "test_env",
            "test_whose",
            "test_fail",
            "test_hang",
            "test_die",
            "test_pid",
            "test_much",
        ]
        assert await mcp.use("test_add", a=2, b=3) == "5"
        assert (await mcp.use("test_fail", text="no luck")).startswith("Error: ")
        assert (await mcp.use("test_add", a="x")).startswith("Error: ")
        assert await mcp.use("test_env", name="OPENAI_API_KEY") == "(not set)"
        pids = await asyncio.gather(*(mcp.bench.use("test_pid", chat=f"c{n}") for n in range(5)))
        assert len(set(pids)) == 1
        assert len(await mcp.use("test_much", count=500_000)) < 25_000
    await poll(lambda: is_gone(int(pids[0])))


@pytest.mark.prove
async def test_the_tools_of_an_address_are_the_same(tmp_path: Path) -> None:
    with held_port() as port:
        await check_address(tmp_path, port, f"http://127.0.0.1:{port}/mcp")


async def check_address(folder: Path, port: int, url: str) -> None:
    async with http_server(folder, port) as process, offered(folder, url=url) as mcp:
        assert await mcp.use("test_add", a=2, b=3) == "5"
        assert {tool.effect for tool in mcp.server.tools() or ()} == {Effect.ONCE}
        await check_classes(url)
        process.kill()
        process.wait()
        assert (await mcp.use("test_add", a=2, b=3)).startswith("Error: ")
        async with http_server(folder, port):
            assert await mcp.use("test_add", a=2, b=4) == "6"


async def check_classes(url: str) -> None:
    """Declared ones hold; hints are believed only where the owner says so; approval requests are one line."""
    settings = McpSettings(name="test", url=url, trust_hints=True, effects={"pid": Effect.PURE}, approval=("pid",))
    server = McpServer(replace(settings, start_s=START_S), ENVIRON, SystemClock())
    tools = {tool.name: tool for tool in await connected(server)}
    classes = [tools[name].effect for name in ("test_add", "test_env", "test_pid", "test_die")]
    assert classes == [Effect.PURE, Effect.IDEMPOTENT, Effect.PURE, Effect.ONCE]
    assert tools["test_pid"].ask({"x": "a\u202eb"}) == r'Use test_pid with {"x":"a\u202eb"}?'
    assert tools["test_add"].ask({}) is None
    await server.close()


@pytest.mark.prove
async def test_a_server_that_dies_in_a_call_is_started_again(tmp_path: Path) -> None:
    async with offered(tmp_path, environment={"GREETING": "hi"}) as mcp:
        before = await mcp.use("test_pid")
        assert (
            await mcp.use("test_die") == "Error: the connection to test was lost; the outcome of the call is unknown."
        )
        assert await mcp.use("test_pid") != before
        assert await mcp.use("test_env", name="GREETING") == "hi"
    assert ledger(tmp_path) == "die\n"


def ledger(folder: Path) -> str:
    file = folder / "ledger"
    return file.read_text() if file.exists() else ""


@pytest.mark.prove
async def test_a_call_that_hangs_is_given_up_and_a_frozen_server_is_replaced(tmp_path: Path) -> None:
    clock = ManualClock()
    async with offered(tmp_path, clock) as mcp:
        number = mcp.bench.say(("test_hang", {}), chat="one")
        await poll(lambda: bool(ledger(tmp_path)), seen=lambda: ledger(tmp_path))
        before = int(await mcp.bench.use("test_pid", chat="two"))
        clock.advance(61)
        (result,) = await mcp.bench.results(number)
        assert result.content == "Error: test did not answer within 60 seconds; the outcome of the call is unknown."
        assert int(await mcp.bench.use("test_pid", chat="two")) == before
        number = mcp.bench.say(("test_hang", {}), chat="one")
        await poll(lambda: ledger(tmp_path).count("hang") == 2, seen=lambda: ledger(tmp_path))
        os.kill(before, signal.SIGSTOP)
        await poll(lambda: time_passes(clock) and is_gone(before))
        assert int(await mcp.bench.use("test_pid", chat="two")) != before


def time_passes(clock: ManualClock) -> bool:
    clock.advance(5)
    return True


def program(script: str) -> tuple[str, ...]:
    return ("/bin/sh", "-c", script)


@pytest.mark.parametrize(
    "script",
    ["exit 1", "echo nonsense; exit 0", "no-such-program", "head -c 9000000 /dev/zero; cat", "yes '{\"jsonrpc\": 1}'"],
)
async def test_a_server_that_cannot_start_offers_nothing(tmp_path: Path, script: str) -> None:
    """And is not tried again at once."""
    clock = ManualClock()
    server = McpServer(McpSettings(name="bad", command=program(script), folder=tmp_path), ENVIRON, clock)
    await failed(server)
    assert server.tools() is None
    clock.advance(2)
    await failed(server)
    await server.close()


async def test_a_folder_or_an_address_that_is_not_there_offers_nothing(tmp_path: Path) -> None:
    missing = McpSettings(name="bad", command=program("cat"), folder=tmp_path / "none")
    with held_port() as port:
        nobody = McpSettings(name="bad", url=f"http://127.0.0.1:{port}/mcp")
        for settings in (missing, nobody):
            server = McpServer(settings, ENVIRON, ManualClock())
            await failed(server)
            await server.close()


async def test_a_server_that_never_answers_is_not_waited_for_long(tmp_path: Path) -> None:
    clock = ManualClock()
    settings = McpSettings(name="mute", command=program("echo $$ > child; exec sleep 600"), folder=tmp_path, start_s=30)
    server = McpServer(settings, ENVIRON, clock)
    assert server.tools() is None
    await poll(lambda: (tmp_path / "child").exists() and (tmp_path / "child").read_text().endswith("\n"))
    with capture_logs() as logs:
        clock.advance(31)
        await poll(lambda: [each["event"] for each in logs] == ["mcp_server_start_timeout"], seen=lambda: logs)
    assert server.tools() is None
    await poll(lambda: is_gone(int((tmp_path / "child").read_text())))
    await server.close()


async def test_a_call_that_asks_shows_all_of_its_arguments_or_does_not_run(tmp_path: Path) -> None:
    async with offered(tmp_path, approval=("env",)) as mcp:
        tool = next(each for each in mcp.server.tools() or () if each.name == "test_env")
        assert tool.ask({"name": "a\n\u3164" + r"\n"}) == r'Use test_env with {"name":"a\n\u3164\\n"}?'
        assert tool.ask({"name": "x" * 1_900}) is None
        assert "too long for an approval request" in await mcp.use("test_env", name="x" * 1_900)


NOISY = """
import os, sys
sys.stderr.write("starts\\nwith " + os.environ["TOKEN"] + "\\n\\x1b[2Jcleared\\n" + "x" * 50_000 + "\\n")
sys.stderr.write("again\\n" * 10_000 + "its last words")
"""


async def test_what_a_program_writes_to_its_standard_error_is_logged_bounded_and_without_secrets(
    tmp_path: Path,
) -> None:
    settings = McpSettings(
        name="noisy", command=(sys.executable, "-c", NOISY), folder=tmp_path, environment={"TOKEN": "t0p-s3cret"}
    )
    server = McpServer(settings, ENVIRON, ManualClock())
    with capture_logs() as logs:
        server.tools()
        await poll(lambda: any(each["event"] == "mcp_server_failed" for each in logs), seen=lambda: logs[-3:])
    await server.close()
    lines = [each["line"] for each in logs if each["event"] == "mcp_server_stderr"]
    assert lines[:3] == ["starts", "with [hidden]", r"\x1b[2Jcleared"]
    assert (len(lines[3]), len(lines)) == (1_000, 200)
    left_out = [each["lines"] for each in logs if each["event"] == "mcp_server_stderr_left_out"]
    assert left_out == [4 + 10_000 + 1 - 200]
    assert {each["server"] for each in logs} == {"noisy"}
    assert "t0p-s3cret" not in str(logs)
