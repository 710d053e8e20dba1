"""Real gateways: `everturn run` as a process that is started, killed, stopped and started again, and asked over HTTP."""

import asyncio
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import httpx2

from everturn.home.folder import Home, holder
from everturn.http_client import HttpClient
from tests.history import Seen
from tests.waiting import WAIT_S, Changes, within

PROGRAM = (sys.executable, "-P", "-m", "everturn")
# Where the system has it: a gateway dies with us (or with its tracer), even if nobody can clean up any more.
ENDS_WITH_US = ("setpriv", "--pdeathsig", "KILL", "--") if shutil.which("setpriv") else ()
READY = "] ready "
LINE = 1 << 20
BREAKERS_OFF = {"EVERTURN_RECOVERY_STUCK_AFTER": "0", "EVERTURN_RECOVERY_UNCLEAN_BOOTS": "0"}


def environment(settings: Mapping[str, str]) -> dict[str, str]:
    """Ours, with these settings of a gateway and no others. Its bytecode is kept: hundreds of starts pay for it once."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("EVERTURN_")}
    ours.pop("PYTHONDONTWRITEBYTECODE", None)
    return ours | {"EVERTURN_AGENT_KIND": "demo"} | dict(settings)


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended and what it wrote."""

    code: int
    out: str
    err: str


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """The answer to a request."""

    status: int
    body: dict[str, Any]


CUT_OFF = (httpx2.TransportError, FileNotFoundError)  # nobody listens, or not to the end


class GatewayProcesses:
    """The processes of one home, one after the other. The port they listen on changes with every process.

    `prefix` is put before the command (nsenter); `seen` is where we see the home, if that is elsewhere.
    """

    def __init__(
        self,
        home: Path,
        *arguments: str,
        settings: Mapping[str, str] | None = None,
        prefix: Sequence[str] = (),
        seen: Path | None = None,
    ) -> None:
        self.home = home
        self.seen = seen or home
        self.changes = Changes(lambda: self.output)
        self.lines: list[str] = []
        self.start_s = 0.0
        self._command = [*prefix, *ENDS_WITH_US, *PROGRAM, "run", "--home", str(home), "--port", "0", *arguments]
        self._settings = settings or {}
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._began = 0.0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """No process outlives its test."""
        if self.alive:
            self.kill()
            self._kill_orphan()
        if self._process is not None:
            await self.ended()

    async def start(self, *prefix: str) -> Self:
        """Start a new process, perhaps under another program (strace); returns when it is there, long before ready."""
        self.lines.clear()
        self._began = time.monotonic()
        self._process = await asyncio.create_subprocess_exec(
            *prefix, *self._command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, limit=LINE,
            stderr=asyncio.subprocess.PIPE, env=environment(self._settings), start_new_session=True,
        )  # fmt: skip
        self._reading = asyncio.create_task(self._read(self._process))
        return self

    async def up(self) -> Self:
        """Start a new process and wait until it is ready."""
        return await (await self.start()).ready()

    @property
    def alive(self) -> bool:
        """Whether the process that we started has not ended."""
        return self._process is not None and self._process.returncode is None

    @property
    def pid(self) -> int:
        """The process that we started."""
        assert self._process is not None
        return self._process.pid

    @property
    def readies(self) -> int:
        """How often it said that it is ready; under a supervisor that is once for each child."""
        return sum(READY in line for line in self.lines)

    @property
    def url(self) -> str | None:
        """Where it listens, as it said last; None before it did."""
        line = next((line for line in reversed(self.lines) if READY in line), None)
        return line.partition("address=")[2].split()[0] if line else None

    @property
    def output(self) -> str:
        """What this process wrote to its log."""
        return "".join(self.lines)

    async def ready(self, times: int = 1) -> Self:
        """Wait until it said so often that it is ready. An end instead is an error that shows the log."""
        reading = self._reading
        assert reading is not None
        await self.changes.until(lambda: self.readies >= times or reading.done())
        assert self.readies >= times, f"it ended instead of being ready:\n{self.output}"
        return self

    async def logs(self, text: str) -> None:
        """Wait until it logged this text."""
        await self.changes.until(lambda: text in self.output)

    async def runs_for(self, seconds: float) -> None:
        """Wait for its end, but only for so long."""
        assert self._reading is not None
        await asyncio.wait({self._reading}, timeout=seconds)

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send a signal to the process that we started.

        By `os.kill`: up to Python 3.12 asyncio's own way looks first whether the process has ended, and a second signal could
        take the exit code away from the waiting task (CPython issue 87744).
        """
        assert self._process is not None
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self._process.pid, number)

    def kill_inner(self, number: int = signal.SIGKILL) -> None:
        """Send a signal to the gateway itself, where the process that we started is its supervisor or tracer."""
        who = holder(Home(self.seen))
        assert who is not None
        os.kill(who.pid, number)

    async def ended(self) -> int:
        """Wait for the end of the process and of its output; the exit code."""
        assert self._process is not None
        assert self._reading is not None
        code = await asyncio.wait_for(self._process.wait(), WAIT_S)
        await asyncio.wait({self._reading}, timeout=WAIT_S)
        return code

    async def killed(self) -> None:
        """Kill it as the kernel does, and wait until it is gone."""
        self.kill()
        assert await self.ended() == -signal.SIGKILL, self.output

    async def stopped(self) -> int:
        """Ask for a planned end; the exit code."""
        self.kill(signal.SIGTERM)
        return await self.ended()

    def _kill_orphan(self) -> None:
        """A gateway outlives its tracer, and takes its time to drain when its supervisor is killed."""
        with suppress(AssertionError, OSError):
            self.kill_inner()

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None
        async for raw in process.stderr:
            self.lines.append(raw.decode(errors="replace"))
            if READY in self.lines[-1]:
                self.start_s = time.monotonic() - self._began
            self.changes.changed()
        # Waiters look once more when this task is done.
        asyncio.get_running_loop().call_soon(self.changes.changed)


class Gateway(GatewayProcesses):
    """The gateway of one home, over all its processes, and requests to it over HTTP."""

    def __init__(
        self,
        home: Path,
        *arguments: str,
        settings: Mapping[str, str] | None = None,
        prefix: Sequence[str] = (),
        seen: Path | None = None,
    ) -> None:
        super().__init__(home, *arguments, settings=settings, prefix=prefix, seen=seen)
        self._http = HttpClient(trust_env=False, verify=False, timeout=WAIT_S, limits=httpx2.Limits())

    async def __aexit__(self, *_: object) -> None:
        await super().__aexit__()
        await self._http.aclose()

    async def ask(self, method: str, path: str, body: object = None) -> HttpAnswer | None:
        """One request; None when nobody listens (but a stranger, who got the port) or the answer was cut off."""
        try:
            answer = await self._http.request(method, self._address(path), json=body, headers=self._headers())
        except CUT_OFF:
            return None
        return HttpAnswer(answer.status_code, answer.json()) if answer.status_code != 401 else None

    async def post(self, chat: str, message_id: str, text: str) -> HttpAnswer | None:
        """Say something in a chat."""
        return await self.ask("POST", f"/api/chats/{chat}/messages", {"id": message_id, "text": text})

    async def get(self, path: str) -> dict[str, Any]:
        """GET what must be there."""
        answer = await self.ask("GET", path)
        assert answer is not None
        assert answer.status == 200, answer
        return answer.body

    async def says(self, chat: str, message_id: str, text: str) -> None:
        """Say something that must be accepted."""
        answer = await self.post(chat, message_id, text)
        assert answer is not None
        assert answer.status == 202, answer

    async def transcript(self, chat: str) -> list[dict[str, Any]]:
        """All that was said in a chat's session."""
        lines: list[dict[str, Any]] = []
        after: int | None = 0
        while after is not None:
            page = await self.get(f"/api/chats/{chat}/transcript?after={after}")
            lines += page["messages"]
            after = page["next"]
        return lines

    async def explain(self, message_id: str) -> dict[str, Any]:
        """The timeline of the one message with this id."""
        (message,) = (await self.get(f"/control/explain/{message_id}"))["messages"]
        return dict(message)

    async def session(self, chat: str) -> dict[str, Any]:
        """What programs see of a chat's session."""
        listed = (await self.get("/control/sessions?limit=1000"))["sessions"]
        return dict(next(each for each in listed if each["key"].endswith(f":{chat}")))

    def ledger(self) -> list[str]:
        """What the demo agent really did."""
        file = self.seen / "demo-ledger.txt"
        return file.read_text().splitlines() if file.exists() else []

    @asynccontextmanager
    async def stream(self, chat: str, after: int) -> AsyncIterator[AsyncIterator[Seen]]:
        """The events of a chat as they come, until the connection ends; then TransportError, or just the end."""
        headers = self._headers() | {"Last-Event-ID": str(after)} if after else self._headers()
        address = self._address(f"/api/chats/{chat}/events?after=0")
        patience = httpx2.Timeout(WAIT_S, read=4 * WAIT_S)  # nothing may be said for a while
        async with self._http.stream("GET", address, headers=headers, timeout=patience) as answer:
            if answer.status_code != 200:
                raise httpx2.ConnectError(f"events are answered with {answer.status_code}")
            yield _events(answer.aiter_lines())

    async def reply(self, chat: str, message_id: str) -> str:
        """Wait for the answer to a message; the gateway must live on meanwhile."""
        return str((await self.event(chat, "reply", to=message_id)).data["text"])

    async def event(self, chat: str, kind: str, **data: object) -> Seen:
        """Wait for the first event of a kind with these data, from the chat's beginning."""
        return (await self.events(chat, kind, **data))[-1]

    async def events(self, chat: str, kind: str, **data: object) -> list[Seen]:
        """That event and everything before it that is kept."""
        found: list[Seen] = []
        async with within(WAIT_S, lambda: [*found, self.output]), self.stream(chat, 0) as events:
            async for event in events:
                if event.id:
                    found.append(event)
                if event.kind == kind and all(event.data.get(name) == value for name, value in data.items()):
                    return found
        raise AssertionError(f"the events of {chat} ended before {kind} {data}")

    def _address(self, path: str) -> str:
        if self.url is None:
            raise httpx2.ConnectError("it does not listen yet")
        return self.url + path

    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {(self.seen / 'api_token').read_text().strip()}"}


async def _events(lines: AsyncIterator[str]) -> AsyncIterator[Seen]:
    """An event counts when its blank line came: what a death cut off in the middle was not received."""
    fields: dict[str, str] = {}
    async for line in lines:
        if line:
            name, _, value = line.partition(": ")
            fields[name] = value
        elif fields:
            if "event" in fields:
                yield Seen(int(fields.get("id", 0)), fields["event"], json.loads(fields["data"]))
            fields = {}


async def command(*arguments: str, home: Path) -> Ended:
    """Run one `everturn` command to its end."""
    process = await asyncio.create_subprocess_exec(
        *PROGRAM, *arguments, "--home", str(home), env=environment({}), stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await asyncio.wait_for(process.communicate(), WAIT_S)
    assert process.returncode is not None
    return Ended(process.returncode, out.decode(), err.decode())


async def sessions(home: Path) -> dict[str, dict[str, Any]]:
    """`everturn sessions --json`, by chat."""
    ended = await command("sessions", "--json", home=home)
    assert ended.code == 0, ended
    return {each["key"].rpartition(":")[2]: each for each in json.loads(ended.out)}
