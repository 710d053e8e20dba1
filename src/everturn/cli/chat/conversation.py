"""One chat with the gateway over HTTP: sends in order, reads events, and reconnects whenever the gateway is gone."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections import deque
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx2

from everturn.cli.chat.screen import ChatScreen
from everturn.cli.chat.seen import ReadPosition
from everturn.cli.looking.client import Unreachable, ask, base_url, error_text
from everturn.errors import EverturnError
from everturn.home.folder import Holder, Home, holder

LOOK_S = 0.2
LONGEST_PAUSE_S = 2.0
SILENCE_S = 90.0  # longer than the pause between the stream's heartbeats
TIMEOUT = httpx2.Timeout(10.0)
IN_PLACE = frozenset({"progress", "still_working"})  # notices of a running turn that replace each other
TURN_OVER = frozenset({"answered", "failed", "stopped", "suspended", "rolled_back"})


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
                raise GatewayUnreachable(f"no gateway runs on {self._home.path}; start it with: everturn run")
            self._show_disconnected(f"no gateway runs on {self._home.path} now; waiting for it")
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
            self._screen.notice("connected")

    async def _listen(self) -> None:
        pause_s = LOOK_S
        while True:
            gateway = await self._gateway()
            before = time.monotonic()
            with suppress(httpx2.TransportError):
                await self._read_events(gateway)
            pause_s = LOOK_S if time.monotonic() - before > LONGEST_PAUSE_S else min(2 * pause_s, LONGEST_PAUSE_S)
            self._show_disconnected("the connection was lost; reconnecting")
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
            raise EverturnError(f"the gateway refused the connection: {_reason(response)}")

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
                self._screen.notice("older events of this chat are no longer kept")
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
            self._screen.progress("interrupted")
        elif attempt > 1:
            self._screen.progress(f"resumed (attempt {attempt})")

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
                self._screen.notice(f"not accepted: {_reason(response)}")
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
