"""Telegram for the suite of all platforms: our adapter against the local Telegram."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from everturn.clock import SystemClock
from everturn.model import SessionSource
from everturn.platform.telegram import TelegramPlatform, TelegramSettings
from everturn.testing_telegram import BOT_ID, TOKEN, Person, TelegramServer, group, person, topic
from tests.contracts.platform import WAITED_S


class TelegramDriver:
    """A chat of the suite is the direct chat of a person with that name."""

    def __init__(self, _: Path | None = None) -> None:
        self.server = TelegramServer()
        self.telegram = self.server.telegram
        self.telegram.state.reads_groups = True
        self._made: list[TelegramPlatform] = []

    def connected(self, **settings: Any) -> TelegramPlatform:
        given: dict[str, Any] = {"token": TOKEN, "api_url": self.server.url, "listening": True}
        own = TelegramSettings(**given | settings)
        self._made.append(TelegramPlatform(own, SystemClock()))
        return self._made[-1]

    def person(self, chat: str) -> Person:
        return person(self.telegram, chat)

    def says(self, text: str, chat: str = "one") -> None:
        self.person(chat).says(text)

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

    def acknowledged(self) -> int:
        return len(self.telegram.state.confirmed)

    def deliver_again(self) -> None:
        self.telegram.queue.repeat(self.acknowledged())

    def fail(self, kind: str) -> None:
        faults: dict[str, dict[str, Any]] = {
            "later": {"kind": "flood", "retry_after": int(WAITED_S)},
            "refused": {"kind": "error", "code": 403, "description": "Forbidden: bot was kicked"},
            "unknown": {"kind": "server"},
            "unknown_but_done": {"kind": "reset", "accepted": True},
        }
        self.telegram.fail(method="sendMessage", **faults[kind])

    async def until(self, true: Callable[[], object]) -> None:
        await self.telegram.until(true)

    async def away(self) -> None:
        """The platform can not be reached."""
        await self.server.close()

    async def back(self) -> None:
        """It can be again."""
        await self.server.open()

    async def __aenter__(self) -> Self:
        await self.server.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        for each in self._made:
            await each.close_connections()
        await self.server.close()
