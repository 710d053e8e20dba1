"""The processes of the benchmarks of speed that people feel: a raw model server, and beside it the shipped gateway that asks it.

Each has its place: the gateway runs on the first core, the raw model server and the readers on the last one, so that what is measured
and what measures it do not take the processor from each other. A direct run has the same two at the same place.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from bench.disk import ROOT
from bench.load import post
from bench.process import free_port, gateway
from bench.report import say
from bench.streams import HOST, Readers, Streamed, StreamLoad, readers

CORES = sorted(os.sched_getaffinity(0))
OURS, GENERATOR = CORES[0], CORES[-1]
COMPLETIONS = "/v1/chat/completions"
WARM_UP_TURNS = 100
AT_ONCE = 4
PATIENCE_S = 60.0
LOOK_S = 0.02
SETTINGS = """\
[agent]
kind = "llm"
model = "openai:scripted"
base_url = "{url}"
context_tokens = 1000000  # no compaction: each request has the whole history

[tools.memory]
enabled = true
"""
TICKS = os.sysconf("SC_CLK_TCK")
CGROUPS = Path("/sys/fs/cgroup")
MEMORY_LIMITS = ((CGROUPS / "memory", "memory.limit_in_bytes"), (CGROUPS, "memory.max"))


@dataclass(frozen=True, slots=True)
class Process:
    """A process and what it started: their processor time and memory, as the kernel counts them."""

    pid: int

    def cpu_s(self) -> float:
        """Processor time so far, of the program and of the kernel for it."""
        return sum(sum(map(int, _stat(pid)[11:13])) for pid in self.pids()) / TICKS

    def memory(self, kind: str = "Rss") -> int:
        """Bytes of memory: `Rss`, or `Pss`, which counts a page that several processes share in parts."""
        return sum(self._of(pid, kind) for pid in self.pids())

    def _of(self, pid: int, kind: str) -> int:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{kind}:"))

    def pids(self) -> list[int]:
        """Its number, and those of what it started."""
        found = [self.pid]
        for task in Path(f"/proc/{self.pid}/task").iterdir():
            with suppress(OSError):  # a thread that has just ended
                children = (task / "children").read_text(encoding="ascii").split()
                found += [pid for child in children for pid in Process(int(child)).pids()]
        return found


@dataclass(frozen=True, slots=True)
class Side:
    """A server that answers chat completions: directly, or in front of the model."""

    name: str
    port: int
    token: str
    process: Process
    ready_s: float = 0.0  # from its start

    def request(self, text: str, before: Sequence[dict[str, str]] = (), user: str | None = None) -> bytes:
        """A streamed request: a text after what was said before; in the session of that name, or one that stands alone."""
        messages = [*before, {"role": "user", "content": text}]
        body = {"model": "main", "stream": True, "messages": messages} | ({"user": user} if user else {})
        return post(HOST, COMPLETIONS, self.token, json.dumps(body, separators=(",", ":")).encode())


@dataclass(slots=True)
class Stage:
    """What a benchmark needs: the model alone, and the readers."""

    direct: Side
    readers: Readers
    spent: dict[str, list[float]] = field(default_factory=dict)

    @property
    def model_url(self) -> str:
        """The base url of the model server."""
        return f"http://{HOST}:{self.direct.port}/v1"

    async def read(self, side: Side, text: str, load: StreamLoad) -> Streamed:
        """Read a block; every answer must have all of its tokens."""
        before = self.direct.process.cpu_s()
        seen = await self.readers.read(load)
        wrong = {each.tokens for each in seen.answers} - {int(text.split()[1])}
        if wrong:
            raise RuntimeError(f"answers to {text!r} by {side.name} had {sorted(wrong)} tokens")
        self.spent.setdefault(f"readers, {side.name}", []).append(1e6 * seen.cpu_s / seen.tokens)
        self.spent.setdefault(f"model, {side.name}", []).append(
            1e6 * (self.direct.process.cpu_s() - before) / seen.tokens
        )
        return seen

    async def once(self, side: Side, text: str, streams: int, starts: tuple[float, ...] = ()) -> Streamed:
        """Each stream asks once, all at once or at these times."""
        request = side.request(text)
        return await self.read(side, text, StreamLoad(side.port, ((request,),) * streams, starts))

    async def warm(self, side: Side) -> None:
        """A hundred turns, in each of which the model uses a tool first, if it is offered one."""
        text = "#look 8 0"
        requests = (side.request(text),) * (WARM_UP_TURNS // AT_ONCE)
        await self.readers.read(StreamLoad(side.port, (requests,) * AT_ONCE))

    def say_costs(self) -> None:
        """What the generator itself took, so that nobody takes it for what it measures."""
        each = (f"{name} {statistics.median(seen):.0f} us" for name, seen in self.spent.items())
        say(f"  the generator's own processor time for a token: {', '.join(each)}")


@contextmanager
def stage() -> Iterator[Stage]:
    """Start the raw model server and the readers."""
    port = free_port()
    command = [*pinned(GENERATOR), sys.executable, "-P", "-m", "bench.raw_model", str(port)]
    process = subprocess.Popen(command, env=os.environ | {"PYTHONPATH": str(ROOT)})
    try:
        wait_for_port(port, process)
        with readers([GENERATOR]) as reading:
            say(f"  load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
            yield Stage(Side("direct", port, "none", Process(process.pid)), reading)
    finally:
        end(process)


@contextmanager
def shipped(path: Path, model_url: str, prefix: Sequence[str] = ()) -> Iterator[Side]:
    """Start `everturn run` as it is shipped, with a language model agent that has tools, on a core of its own."""
    home = home_of(path)
    home.mkdir(exist_ok=True)
    (home / "everturn.toml").write_text(SETTINGS.format(url=model_url), encoding="utf-8")
    with gateway(home, prefix=[*prefix, *pinned(OURS)], agent_kind="llm") as child:
        ready_s = child.wait_ready()
        token = (home / "api_token").read_text(encoding="utf-8").strip()
        yield Side("everturn", child.port, token, Process(child.process.pid), ready_s)


def home_of(path: Path) -> Path:
    """The gateway's home."""
    return path / "home"


def pinned(core: int) -> list[str]:
    """The command that starts another one on this core."""
    return ["taskset", "--cpu-list", str(core)]


@contextmanager
def small_memory(megabytes: int) -> Iterator[list[str]]:
    """A command that starts another one with so much memory at most; empty where this user may make no cgroup."""
    group = next(filter(None, (_limited(folder, name, megabytes << 20) for folder, name in MEMORY_LIMITS)), None)
    if group is None:
        yield []
        return
    try:
        yield ["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh"]
    finally:
        group.rmdir()


def _limited(folder: Path, limit: str, size: int) -> Path | None:
    group = folder / f"everturn-bench-{os.getpid()}"
    try:
        group.mkdir()
    except OSError:
        return None
    try:
        (group / limit).write_text(str(size), encoding="ascii")
    except OSError:
        group.rmdir()
        return None
    return group


def wait_for_port(port: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until somebody listens."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until and process.poll() is None:
        with suppress(OSError), socket.create_connection((HOST, port), 1):
            return
        time.sleep(LOOK_S)
    raise RuntimeError(f"{process.args!r} does not listen")


def end(process: subprocess.Popen[bytes]) -> None:
    """Terminate it, and kill it if that does not help."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the name, which may have spaces."""
    return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
