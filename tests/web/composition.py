"""A gateway with its web server on a free port, and clients that watch events, for the tests of this folder."""

import asyncio
import contextlib
import json
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import httpx
import pytest

from everturn.agent.interface import Agent, Answer, TurnContext
from everturn.clock import Clock
from everturn.home.files import Media
from everturn.lifecycle.settings import Settings
from everturn.model import Json
from everturn.platform.interface import Platform
from everturn.platform.posted import ApiPlatform, V1Platform, WebPlatform
from everturn.store.interface import Store
from everturn.store.open import open_store
from everturn.testing import World
from everturn.web.conversations import About
from everturn.web.messages import Accept, FileEndpoints
from everturn.web.v1.endpoints import V1Parts
from everturn.web.wire.limits import Bounds
from everturn.web.wire.server import PATIENCE_S, FrontSettings, Operations, PageParts, Serving, make_app, serve
from tests.waiting import WAIT_S, within

TOKEN = "a-token-of-the-tests"
SHARED = pytest.mark.asyncio(loop_scope="session")  # for tests that use the gateway of this folder
AUTHORIZED = {"Authorization": f"Bearer {TOKEN}"}
PLAIN: dict[str, Any] = {
    "timeout": WAIT_S,
    "verify": False,
}  # http: a client that loads no certificates is made at once


class Soon(asyncio.Event):
    """An event that must be set within the time that tests wait."""

    async def wait(self) -> Literal[True]:
        async with within(WAIT_S, lambda: "it did not happen"):
            return await super().wait()


class Echo:
    """Echoes the message."""

    async def run(self, turn: TurnContext) -> Answer:
        return Answer(f"echo: {turn.text}")


class Held:
    """Streams the message, then waits until it is released."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.began = Soon()

    async def run(self, turn: TurnContext) -> Answer:
        turn.calling()
        turn.stream(f"thinking about {turn.text}")
        self.began.set()
        await self.go.wait()
        return Answer(f"echo: {turn.text}")


@dataclass
class Desk:
    """Records the stop requests of the command line."""

    why_not_ready: str | None = None
    asked: list[tuple[str, str]] = field(default_factory=list)

    def status(self) -> Json:
        return {"state": "running"}

    def request_stop(self, kind: str, reason: str) -> None:
        self.asked.append((kind, reason))

    def ready(self) -> str | None:
        return self.why_not_ready


@dataclass
class Web:
    """The running parts, and a client that has the token."""

    world: World
    serving: Serving
    desk: Desk
    client: httpx.AsyncClient
    closing: list[Callable[[], Awaitable[None]]] = field(default_factory=list)  # of what is opened on the way

    async def post(self, chat: str, message_id: str, text: str) -> httpx.Response:
        return await self.client.post(f"/api/chats/{chat}/messages", json={"id": message_id, "text": text})

    def stranger(self, **headers: str) -> httpx.AsyncClient:
        """A client without the token, with its own cookies."""
        return httpx.AsyncClient(base_url=self.serving.url, headers=headers, **PLAIN)

    @contextlib.asynccontextmanager
    async def browser(self) -> AsyncIterator[httpx.AsyncClient]:
        """A client that has logged in, as a browser would."""
        login = await self.serving.app.visits.make()
        async with self.stranger(Origin=self.serving.url) as client:
            entered = await client.post("/login", json={"code": login.code})
            assert entered.status_code == 204, entered.text
            yield client

    @contextlib.asynccontextmanager
    async def events(self, chat: str, last: int | None = None, after: int | None = None) -> AsyncIterator["Watcher"]:
        headers = {} if last is None else {"Last-Event-ID": str(last)}
        query = {} if after is None else {"after": after}
        async with self.client.stream("GET", f"/api/chats/{chat}/events", headers=headers, params=query) as response:
            assert response.status_code == 200
            yield Watcher(response)


@dataclass(frozen=True)
class Heard:
    """One server-sent event."""

    id: int | None
    name: str
    data: Any


class Watcher:
    """Reads a stream event by event."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self.comments = 0
        self._read: list[str] = []
        self._lines = self._remembered(response.aiter_lines())

    async def next(self) -> Heard:
        """The next event; a test that waits too long fails."""
        async with within(WAIT_S, self._seen):
            while True:
                fields = await self._block()
                if "event" in fields:
                    number = int(fields["id"]) if "id" in fields else None
                    return Heard(number, fields["event"], json.loads(fields["data"]))

    async def until(self, name: str) -> list[Heard]:
        """Everything up to the next event of this name."""
        heard = [await self.next()]
        while heard[-1].name != name:
            heard.append(await self.next())
        return heard

    async def comment(self) -> None:
        """Wait for a heartbeat."""
        before = self.comments
        async with within(WAIT_S, self._seen):
            while self.comments == before:
                await self._block()

    async def over(self) -> bool:
        """Whether the stream ends properly, without another event."""
        async with within(WAIT_S, self._seen):
            return not [line async for line in self._lines if line.startswith("event")]

    def _seen(self) -> list[str]:
        return self._read[-20:]

    async def _remembered(self, lines: AsyncIterator[str]) -> AsyncIterator[str]:
        async for line in lines:
            self._read.append(line[:200])
            yield line

    async def _block(self) -> dict[str, str]:
        fields: dict[str, str] = {}
        async for line in self._lines:
            if not line:
                return fields
            name, _, value = line.partition(": ")
            self.comments += not name
            fields[name] = value
        raise EOFError("the stream ended")


@contextlib.asynccontextmanager
async def running(
    where: Path | str,
    agent: Agent | None = None,
    settings: Settings = Settings(),  # noqa: B008  frozen
    *,
    accept: Accept | None = None,
    heartbeat_s: float = 15.0,
    patience_s: float = PATIENCE_S,
    bounds: Bounds = Bounds(),  # noqa: B008  frozen
    front: FrontSettings = FrontSettings(),  # noqa: B008  frozen
    file_bytes: int = 1000,
    others: Sequence[Platform] = (),
    clock: Clock | None = None,
    opened: Callable[[str], Awaitable[Store]] = open_store,
) -> AsyncIterator[Web]:
    """Run a gateway on a home or a store's URL; the same one again continues its data."""
    api, page, programs, desk = ApiPlatform(), WebPlatform(), V1Platform(), Desk()
    url = where if isinstance(where, str) else f"sqlite:///{where / 'everturn.db'}"
    files = (where if isinstance(where, Path) else Path(tempfile.mkdtemp())) / "files"
    every: list[Platform] = [api, page, programs, *others]
    async with World(url, agent or Echo(), every, clock, settings, opened=opened) as world:
        gateway = world.gateway
        app = make_app(
            accept=accept or world.gateway.intake.accept, chats=api, hub=gateway.hub, store=gateway.store,
            key_of=gateway.settings.key_of, message_chars=settings.message_chars, token=TOKEN, control=desk,
            heartbeat_s=heartbeat_s, front=front, meters=gateway.observing.meters,
            people=world.gateway.people, operations=Operations(
                operator=world.gateway.operator, moves=gateway.hub.changes, people=world.gateway.people
            ),
            page=PageParts(chats=page, files=FileEndpoints(Media(files, file_bytes, 3 * file_bytes)), about=About(version="test")),
            programs=V1Parts(clients=programs, models=("main", "other"), most_body=settings.message_chars * 12 + 65_536),
        )  # fmt: skip
        serving = await serve(app, "127.0.0.1", 0, patience_s=patience_s, bounds=bounds)
        try:
            async with httpx.AsyncClient(base_url=serving.url, headers=AUTHORIZED, **PLAIN) as client:
                web = Web(world, serving, desk, client)
                yield web
        finally:
            for close in web.closing:
                await close()
            await serving.close()
