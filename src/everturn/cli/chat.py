"""`everturn chat`: a conversation in the terminal.

The main thread reads the terminal, another talks to the gateway, so that neither waits.
"""

from __future__ import annotations

import _thread
import asyncio
import json
import signal
import sys
import threading
import time
import uuid
from collections import deque
from collections.abc import AsyncIterator, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self, TypeVar
from urllib.parse import quote

import click
import httpx2

from everturn.cli import texts
from everturn.cli.screen import ChatScreen, ReadPosition, screen_for_this_terminal
from everturn.cli.shared import Unreachable, ask, base_url, error_text, home_option, say
from everturn.errors import EverturnError
from everturn.home.folder import Holder, Home, holder

T = TypeVar("T")
LOOK_S = 0.2
LONGEST_PAUSE_S = 2.0
SILENCE_S = 90.0  # longer than the pause between the stream's heartbeats
TIMEOUT = httpx2.Timeout(10.0)
IN_PLACE = frozenset({"progress", "still_working"})  # notices of a running turn that replace each other
TURN_OVER = frozenset({"answered", "failed", "stopped", "suspended", "rolled_back"})
LEAVE_S = 3.0
AGAIN_S = 0.3
WAIT_S = 60.0
INTERRUPTED = 130
# Not SIGINT: a shell's background job ignores that one.
WAKE = getattr(signal, "SIGUSR1", None)


@click.command
@click.argument("name", metavar="[NAME]", default="me")
@home_option
@click.option(
    "--wait",
    "wait_s",
    metavar="SECONDS",
    type=click.FloatRange(0),
    help="How many seconds to wait for a gateway that does not run [default: 60 for piped input, else no limit].",
)
def chat(name: str, home: Home, wait_s: float | None) -> int:
    """Talk to the agent in the chat NAME; Ctrl-D or /quit leaves.

    Replies since your last visit are shown first. While the gateway is disconnected, the command keeps what you type and
    sends it after it reconnects. With piped input it sends every line, waits for the reply to the last one, and exits with
    0; it prints replies to standard output, everything else to standard error.
    """
    if not home.path.is_dir():
        raise EverturnError(texts.no_home(home.path))
    piped = not sys.stdin.isatty()
    screen = screen_for_this_terminal()
    with ChatThread(home, name, screen, WAIT_S if wait_s is None and piped else wait_s) as link:
        try:
            last = _talk(link, screen)
            return _await_last(link, last) if piped else _leave(link, screen, last)
        except KeyboardInterrupt:
            if link.error is None:
                return INTERRUPTED
            raise link.error from None


def _talk(link: ChatThread, screen: ChatScreen) -> TypedMessage | None:
    """Send every line until there are no more; returns the last."""
    last = None
    while True:
        try:
            line = screen.ask()
        except EOFError:
            return last
        if line.strip() == "/quit":
            return last
        if line.strip():
            last = link.say(line)


def _await_last(link: ChatThread, last: TypedMessage | None) -> int:
    """Wait for the reply to the last line of piped input; 0 when it was answered."""
    if last is None or link.wait(link.conversation.answered(last)):
        return 0
    say(texts.no_reply(last.id))
    return 1


def _leave(link: ChatThread, screen: ChatScreen, last: TypedMessage | None) -> int:
    """Wait a moment until the gateway accepted the typed lines; their replies are shown next time."""
    try:
        link.wait(link.conversation.all_sent(), LEAVE_S)
    except TimeoutError:
        screen.notice(texts.lines_not_saved(link.conversation.unsent))
        return 1
    if last is not None:
        screen.notice(texts.last_timeline(last.id))
    return 0


class ChatThread:
    """Runs the conversation in its own thread; when that fails, it sets `error` and wakes the main thread."""

    def __init__(self, home: Home, name: str, screen: ChatScreen, patience_s: float | None) -> None:
        self._arguments = (home, name, screen, patience_s)
        self._begun = threading.Event()
        self._leaving = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="conversation", daemon=True)
        self.error: BaseException | None = None

    def __enter__(self) -> Self:
        if WAKE is not None:
            signal.signal(WAKE, self._woken)
        self._thread.start()
        self._begun.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._leaving.set()
        if self.error is None:
            self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join(LEAVE_S)

    def say(self, text: str) -> TypedMessage:
        """Queue a line to be sent."""

        async def said() -> TypedMessage:
            return self.conversation.say(text)

        return self.wait(said())

    def wait(self, work: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Run work in the conversation's loop; returns its result, or cancels it when it takes too long."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(timeout_s)
        finally:
            future.cancel()

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.conversation = ChatClient(*self._arguments)
        self._task = asyncio.ensure_future(self.conversation.run())
        self._begun.set()
        await asyncio.wait({self._task})
        if not self._task.cancelled() and (error := self._task.exception()) is not None:
            self.error = _first(error)
            self._wake_main_thread()

    def _wake_main_thread(self) -> None:
        """Signal the main thread until it leaves: it may be reading a line, and a signal that comes too early is lost."""
        while not self._leaving.is_set():
            if WAKE is None:
                _thread.interrupt_main()
            else:
                signal.pthread_kill(threading.main_thread().ident or 0, WAKE)
            self._leaving.wait(AGAIN_S)

    def _woken(self, *_: object) -> None:
        if not self._leaving.is_set():
            raise KeyboardInterrupt


def _first(error: BaseException) -> BaseException:
    """The first error of a group, or of a group in it."""
    return _first(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


@dataclass(frozen=True, slots=True)
class TypedMessage:
    """A typed line, with the id it keeps however often it is sent."""

    id: str
    text: str


@dataclass(frozen=True, slots=True)
class StreamEvent:
    """An event of the stream; `number` is None for events that the gateway does not store."""

    kind: str
    data: dict[str, Any]
    number: int | None


class GatewayUnreachable(EverturnError):
    """No gateway was running for as long as we may wait."""


class ChatClient:
    """A client of one chat, for one event loop. `patience_s` is how long to wait for a gateway; None: for ever."""

    def __init__(self, home: Home, chat: str, screen: ChatScreen, patience_s: float | None) -> None:
        self._home = home
        self._path = f"/api/chats/{quote(chat, safe='')}"
        self._screen = screen
        self._seen = ReadPosition(home, chat)
        self._patience_s = patience_s
        self._client = httpx2.AsyncClient(timeout=TIMEOUT, trust_env=False)
        self._mine: set[str] = set()
        self._replies: set[str] = set()
        self._unsent: deque[TypedMessage] = deque()
        self._typed = asyncio.Event()
        self._news = asyncio.Event()
        self._disconnected = False
        self._refused: set[str] = set()

    def say(self, text: str) -> TypedMessage:
        """Queue a line; it is sent as soon as that is possible."""
        said = TypedMessage(uuid.uuid4().hex, text)
        self._mine.add(said.id)
        self._unsent.append(said)
        self._typed.set()
        return said

    async def run(self) -> None:
        """Send and listen until cancelled."""
        async with self._client, asyncio.TaskGroup() as tasks:
            tasks.create_task(self._listen())
            tasks.create_task(self._send())

    async def all_sent(self) -> None:
        """Wait until the gateway accepted or refused every typed line."""
        while self._unsent:
            self._news.clear()
            await self._next_news()

    async def answered(self, said: TypedMessage) -> bool:
        """Wait until the message has ended and its reply was shown; False when it ended without one."""
        await self.all_sent()
        while said.id not in self._refused:
            self._news.clear()  # before looking: what happens from now on is news
            found = await self._find(said)
            if found is not None and found["ended_at"] is not None:
                replies = {reply["id"] for reply in found["replies"] if reply["kind"] == "reply"}
                if not replies:
                    await self._next_news()  # the notice that says why
                    return False
                if replies <= self._replies:
                    return True
            await self._next_news()
        return False

    @property
    def unsent(self) -> int:
        """How many lines were not accepted yet."""
        return len(self._unsent)

    async def _find(self, said: TypedMessage) -> dict[str, Any] | None:
        gateway = await self._gateway()
        try:
            found = await asyncio.to_thread(ask, self._home, gateway, "GET", f"/control/explain/{said.id}")
        except Unreachable:
            return None
        return next(iter(found["messages"]), None)

    async def _next_news(self) -> None:
        """Wait for the next event, or for a short while."""
        try:
            async with asyncio.timeout(LONGEST_PAUSE_S):
                await self._news.wait()
        except TimeoutError:
            return

    async def _gateway(self) -> Holder:
        """The running gateway, as soon as there is one."""
        since = time.monotonic()
        while (gateway := holder(self._home)) is None or not gateway.url:
            if self._patience_s is not None and time.monotonic() - since > self._patience_s:
                raise GatewayUnreachable(texts.not_running(self._home.path, texts.START_IT))
            self._show_disconnected(texts.waiting_for_gateway(self._home.path))
            await asyncio.sleep(LOOK_S)
        return gateway

    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._home.api_token()}"}

    def _show_disconnected(self, text: str) -> None:
        if not self._disconnected:
            self._disconnected = True
            self._screen.progress("")
            self._screen.notice(text)

    def _show_connected(self) -> None:
        if self._disconnected:
            self._disconnected = False
            self._screen.notice(texts.CONNECTED)

    async def _listen(self) -> None:
        pause_s = LOOK_S
        while True:
            gateway = await self._gateway()
            before = time.monotonic()
            with suppress(httpx2.TransportError):
                await self._read_events(gateway)
            pause_s = LOOK_S if time.monotonic() - before > LONGEST_PAUSE_S else min(2 * pause_s, LONGEST_PAUSE_S)
            self._show_disconnected(texts.CONNECTION_LOST)
            await asyncio.sleep(pause_s)

    async def _read_events(self, gateway: Holder) -> None:
        """Read the events of one connection until it ends."""
        url = base_url(gateway) + self._path + "/events"
        headers = {**self._headers(), "Last-Event-ID": str(self._seen.last)}
        place = {} if self._seen.last else {"after": 0}
        timeout = httpx2.Timeout(TIMEOUT.connect, read=SILENCE_S)
        async with self._client.stream("GET", url, params=place, headers=headers, timeout=timeout) as response:
            if response.status_code != httpx2.codes.OK:
                await self._check(response)
                return
            self._show_connected()
            async for event in events_of(response.aiter_lines()):
                self._show_event(event)

    async def _check(self, response: httpx2.Response) -> None:
        """Raise EverturnError for a refusal that a retry would not change."""
        if response.is_client_error and response.status_code != httpx2.codes.TOO_MANY_REQUESTS:
            await response.aread()
            raise EverturnError(texts.connection_refused(_reason(response)))

    def _show_event(self, event: StreamEvent) -> None:
        data = event.data
        match event.kind:
            case "reply":
                self._screen.progress("")
                self._screen.reply(str(data.get("text", "")))
                self._replies.add(str(data.get("id")))
            case "notice" | "approval" if data.get("text"):
                show = self._screen.progress if data.get("reason") in IN_PLACE else self._screen.notice
                show(str(data["text"]))
            case "message" if str(data.get("id")).partition("@")[0] not in self._mine:
                self._screen.message(str(data.get("text", "")))
            case "delta":
                self._screen.progress(str(data.get("text", "")))
            case "gap":
                self._screen.notice(texts.OLDER_EVENTS)
            case "turn":
                self._turn(data)
        if event.number is not None:
            self._seen.move(event.number)
        self._news.set()

    def _turn(self, data: dict[str, Any]) -> None:
        state, attempt = data.get("state"), data.get("attempt", 1)
        if state in TURN_OVER:
            self._screen.progress("")
        elif state == "interrupted":
            self._screen.progress(texts.INTERRUPTED)
        elif attempt > 1:
            self._screen.progress(texts.resumed(attempt))

    async def _send(self) -> None:
        while True:
            await self._typed.wait()
            self._typed.clear()
            while self._unsent:
                await self._deliver(self._unsent[0])
                self._unsent.popleft()
                self._news.set()

    async def _deliver(self, said: TypedMessage) -> None:
        """Post a line until the gateway accepts it, or refuses it for good."""
        told = False
        while True:
            response = await self._post(said)
            if response is not None and response.is_success:
                return
            if response is not None and response.status_code == httpx2.codes.TOO_MANY_REQUESTS:
                if not told:
                    self._screen.notice(_reason(response))
                told = True
                await asyncio.sleep(_retry_after_s(response))
            elif response is not None and response.is_client_error:
                self._screen.notice(texts.not_accepted(_reason(response)))
                self._refused.add(said.id)
                return
            else:
                await asyncio.sleep(LOOK_S)

    async def _post(self, said: TypedMessage) -> httpx2.Response | None:
        """Post a line once; returns the response, or None when it is unknown whether the gateway accepted it."""
        url = base_url(await self._gateway()) + self._path + "/messages"
        try:
            return await self._client.post(url, json={"id": said.id, "text": said.text}, headers=self._headers())
        except httpx2.TransportError:
            return None


async def events_of(lines: AsyncIterator[str]) -> AsyncIterator[StreamEvent]:
    """Parse server-sent events from their lines."""
    fields: dict[str, str] = {}
    async for line in lines:
        if not line:
            if "data" in fields:
                yield _event_of(fields)
            fields = {}
        elif not line.startswith(":"):
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            fields[name] = f"{fields[name]}\n{value}" if name == "data" and name in fields else value


def _event_of(fields: dict[str, str]) -> StreamEvent:
    number = fields.get("id", "")
    try:
        data = json.loads(fields["data"])
    except ValueError:
        data = {}
    return StreamEvent(fields.get("event", "message"), data, int(number) if number.isdecimal() else None)


def _reason(response: httpx2.Response) -> str:
    try:
        return error_text(response.json())
    except ValueError:
        return response.text[:200]


def _retry_after_s(response: httpx2.Response) -> float:
    given = response.headers.get("Retry-After", "")
    return float(given) if given.isdecimal() else LONGEST_PAUSE_S
