"""Telegram for the suite of all platforms: our adapter against the local Telegram, by polls and by webhook."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from starlette.applications import Starlette

from everturn.clock import Clock, SystemClock
from everturn.model import Inbound, SessionSource
from everturn.platform.interface import CanDelete, CanEdit, CanReact, CanSendFiles, CanTellContact, CanType
from everturn.platform.telegram import TelegramPlatform, TelegramSettings
from everturn.testing.serving import ConnectionReset, Listening
from everturn.testing.telegram import BOT_ID, TOKEN, Person, TelegramServer, group, person, topic
from everturn.web.app import Hooks
from tests.contracts.platform import READING, SENDING, WAITED_S
from tests.postgres import free_port

MANY = 1000
HOOK_PATH = f"/hooks/telegram/{BOT_ID}"


class Chats:
    """The people of a local Telegram, what they do, and what they see."""

    def __init__(self) -> None:
        self.server = TelegramServer(port=free_port())  # it may be away for a while, and nobody else takes it then
        self.telegram = self.server.telegram

    def person(self, chat: str) -> Person:
        return person(self.telegram, chat)

    def says(self, text: str, chat: str = "one") -> None:
        self.person(chat).says(text)

    def attaches(self, content: bytes, name: str, chat: str = "one") -> None:
        self.person(chat).sends_document(content, name, "text/plain")

    def says_everywhere(self, text: str) -> int:
        ann, bob = self.person("Ann"), self.person("Bob")
        team, forum = group(self.telegram, "Team"), group(self.telegram, "Forum", forum=True)
        for who in (ann, bob):
            who.says(text)
            who.says(text, chat=team)
        for name in ("Plans", "Ideas"):
            ann.says(text, chat=forum, thread=topic(self.telegram, forum, name))
        return 6

    def place(self, chat: str = "one") -> SessionSource:
        number = str(self.person(chat).id)
        return SessionSource(platform="telegram", account=str(BOT_ID), chat_id=number, user_id=number)

    def texts(self, chat: str = "one") -> list[str]:
        return self.telegram.texts(self.person(chat).id)

    def code(self, chat: str = "one") -> list[str]:
        return [_code_of(each) for each in self.telegram.screen(self.person(chat).id)]

    def types(self, chat: str = "one") -> bool:
        room = self.telegram.state.rooms.get(self.person(chat).id)
        return room is not None and room.typing > 0

    def marks(self, message_id: str, chat: str = "one") -> list[str]:
        room = self.telegram.state.room(self.person(chat).id)
        return list(room.messages[int(message_id)].get("reactions", []))


class TelegramDriver(Chats):
    """A chat of the suite is the direct chat of a person with that name."""

    after: str | None = None  # Telegram keeps the place
    offers = frozenset({CanEdit, CanDelete, CanType, CanReact, CanSendFiles, CanTellContact})
    failures = SENDING | READING

    def __init__(self, _: Path | None = None) -> None:
        super().__init__()
        self.telegram.state.reads_groups = True
        self._made: list[TelegramPlatform] = []

    def connected(self, *, clock: Clock | None = None, **settings: Any) -> TelegramPlatform:
        given: dict[str, Any] = {"token": TOKEN, "api_url": self.server.url, "listening": True}
        self._made.append(self._new(TelegramSettings(**given | settings), clock or SystemClock()))
        return self._made[-1]

    def _new(self, settings: TelegramSettings, clock: Clock) -> TelegramPlatform:
        return TelegramPlatform(settings, clock)

    def acknowledged(self) -> int:
        return len(self.telegram.state.confirmed)

    def deliver_again(self) -> None:
        self.telegram.queue.repeat(self.acknowledged())

    def fail(self, kind: str) -> None:
        faults: dict[str, dict[str, Any]] = {
            "later": {"kind": "flood", "retry_after": int(WAITED_S)},
            "revoked": {"kind": "error", "code": 401, "description": "Unauthorized"},
            "refused": {"kind": "error", "code": 403, "description": "Forbidden: bot was kicked"},
            "unknown": {"kind": "server"},
            "unknown_but_done": {"kind": "reset", "accepted": True},
        }
        self.telegram.fail(method="sendMessage", **faults[kind])

    @asynccontextmanager
    async def failing(self, kind: str) -> AsyncIterator[Callable[[], object]]:
        """A poll hangs by itself while nothing is said."""
        if kind == "away":
            await self.away()
        elif kind == "fails":
            self.telegram.fail("server", "getUpdates", times=MANY)
        elif kind in SENDING:
            self.fail(kind)
        polls = self.telegram.queue.polls
        yield lambda: self.telegram.queue.polls > polls
        self.telegram.faults.clear()
        if kind == "away":
            await self.back()

    async def until(self, true: Callable[[], object]) -> None:
        await self.telegram.until(true)

    def garble(self) -> None:
        self.telegram.queue.reorder = True
        self.deliver_again()

    async def away(self) -> None:
        """Make the platform unreachable."""
        await self.server.close()

    async def back(self) -> None:
        """Make it reachable again."""
        await self.server.open()

    async def __aenter__(self) -> Self:
        await self.server.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        for each in self._made:
            await each.close_connections()
        await self.server.close()


class AtTheDoor(TelegramPlatform):
    """A webhook with an endpoint of its own. What arrived there is read as if it had been polled: asking for the next answers
    the last with 200, and who stops to read answers nothing.
    """

    def __init__(self, settings: TelegramSettings, clock: Clock, listening: Listening) -> None:
        super().__init__(settings, clock)
        self._listening = listening
        self._came: asyncio.Queue[tuple[Inbound, asyncio.Future[None]]] = asyncio.Queue()

    async def inbound(self, after: str | None) -> AsyncGenerator[Inbound, None]:
        """What comes."""
        await self._listening.open(Starlette(routes=Hooks([self], self._take).routes()))
        watching = asyncio.create_task(self._watch(after))
        taken: asyncio.Future[None] | None = None
        try:
            while True:
                inbound, taken = await self._came.get()
                yield inbound
                taken.set_result(None)
        finally:
            watching.cancel()
            if taken is not None and not taken.done():
                taken.set_exception(ConnectionReset())
            await self._listening.close()

    async def _watch(self, after: str | None) -> None:
        async for each in super().inbound(after):
            await self._take(each)

    async def _take(self, inbound: Inbound) -> None:
        taken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        await self._came.put((inbound, taken))
        await taken


class HookDriver(TelegramDriver):
    """The same by webhook: each adapter is another URL that Telegram posts to. We never poll."""

    failures = SENDING | {"hangs": None}

    def _new(self, settings: TelegramSettings, clock: Clock) -> TelegramPlatform:
        listening = Listening(free_port())
        return AtTheDoor(replace(settings, hook_url=f"{listening.url}{HOOK_PATH}"), clock, listening)


def _code_of(message: dict[str, Any]) -> str:
    text = message["text"].encode("utf-16-le")
    blocks = [each for each in message.get("entities", []) if each["type"] == "pre"]
    return "\n".join(
        text[2 * each["offset"] : 2 * (each["offset"] + each["length"])].decode("utf-16-le") for each in blocks
    )
