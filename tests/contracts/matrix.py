"""Matrix for the suite of all platforms: our adapter against a real Synapse, through a proxy that fails on order."""

import html
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

from everturn.clock import Clock, SystemClock
from everturn.model import SessionSource
from everturn.people.rules.access import AccessVerdict
from everturn.platform.interface import CanDelete, CanEdit, CanReact, CanSendFiles, CanTellContact, CanType
from everturn.platform.matrix import MatrixPlatform, MatrixSettings
from everturn.platform.matrix.rooms import Welcome
from everturn.testing.matrix import MatrixProxy
from tests.contracts.platform import READING, SENDING, WAITED_S
from tests.postgres import free_port
from tests.synapse import Person, SynapseServer

MANY = 1000
_CODE = re.compile(r"<pre><code[^>]*>(.*?)</code></pre>", re.DOTALL)


async def everybody(_: SessionSource) -> AccessVerdict:
    return AccessVerdict.ALLOWED


class Rooms:
    """The people of one homeserver, and the rooms in which they talk with us."""

    def __init__(self, server: SynapseServer) -> None:
        self.server = server
        self.bot = server.stranger("everturn")
        self._people: dict[str, Person] = {}
        self._rooms: dict[str, str] = {}

    def person(self, chat: str) -> Person:
        if chat not in self._people:
            self._people[chat] = self.server.stranger(chat)
        return self._people[chat]

    def room(self, chat: str = "one") -> str:
        """The direct room of a person with us."""
        if chat not in self._rooms:
            self._rooms[chat] = self.person(chat).direct(self.bot.user_id)
            self.bot.joins(self._rooms[chat])
        return self._rooms[chat]

    def group(self, name: str, *members: str) -> str:
        """A room with us and these people; the first made it."""
        first, *others = (self.person(each) for each in members)
        room = first.makes_room(name, [self.bot.user_id, *(each.user_id for each in others)])
        for each in (self.bot, *others):
            each.joins(room)
        return room

    def says(self, text: str, chat: str = "one") -> None:
        self.person(chat).says(self.room(chat), text)

    def attaches(self, content: bytes, name: str, chat: str = "one") -> None:
        self.person(chat).sends_file(self.room(chat), content, name, "text/plain")

    def says_everywhere(self, text: str) -> int:
        for chat in ("ann", "bob"):
            self.says(text, chat)
        team = self.group("Team", "ann", "bob")
        for chat in ("ann", "bob"):
            self.person(chat).says(team, text)
        for root in [self.bot.says(team, word) for word in ("Plans", "Ideas")]:
            self.person("ann").says(team, text, thread=root)
        return 6

    def place(self, chat: str = "one") -> SessionSource:
        user = self.person(chat).user_id
        return SessionSource(platform="matrix", account=self.bot.user_id, chat_id=self.room(chat), user_id=user)


class MatrixDriver(Rooms):
    """A chat of the suite is a direct room with a person of that name. Accounts are new for every test: one server is enough."""

    offers = frozenset({CanEdit, CanDelete, CanType, CanReact, CanSendFiles, CanTellContact})
    failures = SENDING | READING

    def __init__(self, _: Path | None, server: SynapseServer) -> None:
        super().__init__(server)
        self.proxy = MatrixProxy(
            server.url, port=free_port()
        )  # it may be away for a while, and nobody else takes it then
        self.after: str | None = self.bot.asks("GET", "/sync", params={"timeout": 0})["next_batch"]
        self._made: list[MatrixPlatform] = []

    def connected(self, *, welcome: Welcome = everybody, clock: Clock | None = None, **settings: Any) -> MatrixPlatform:
        given: dict[str, Any] = {"homeserver": self.proxy.url, "user": self.bot.user_id, "token": self.bot.token}
        own = MatrixSettings(**given | {"listening": True, "poll_s": 5.0} | settings)
        self._made.append(MatrixPlatform(own, clock or SystemClock(), welcome))
        return self._made[-1]

    def texts(self, chat: str = "one") -> list[str]:
        return self.person(chat).screen(self.room(chat)).texts(self.bot.user_id)

    def code(self, chat: str = "one") -> list[str]:
        shown = self.person(chat).screen(self.room(chat)).by(self.bot.user_id)
        return [html.unescape("\n".join(_CODE.findall(each.content.get("formatted_body", "")))) for each in shown]

    def types(self, chat: str = "one") -> bool:
        return self.bot.user_id in self.person(chat).screen(self.room(chat)).typing

    def marks(self, message_id: str, chat: str = "one") -> list[str]:
        on_it = self.person(chat).screen(self.room(chat)).message(message_id).reactions
        return [mark for mark, people in on_it.items() if self.bot.user_id in people]

    def acknowledged(self) -> int:
        """What was read on from behind: a homeserver is told nothing else."""
        return sum(event["sender"] != self.bot.user_id for event in self.proxy.taken())

    def deliver_again(self) -> None:
        """The suite reads from `after` each time: all of it is delivered again."""

    def fail(self, kind: str) -> None:
        faults: dict[str, dict[str, Any]] = {
            "later": {"kind": "flood", "retry_after_ms": int(WAITED_S * 1000)},
            "revoked": {"kind": "error", "code": 401, "errcode": "M_UNKNOWN_TOKEN", "error": "Invalid access token"},
            "refused": {"kind": "error", "code": 403, "errcode": "M_FORBIDDEN", "error": "you are not in the room"},
            "unknown": {"kind": "server"},
            "unknown_but_done": {"kind": "reset", "accepted": True},
        }
        self.proxy.fail(path="send", **faults[kind])

    def garble(self) -> None:
        self.proxy.fail("limited", limit=1, times=2)
        for kind in ("again", "repeat"):
            self.proxy.fail(kind)

    @asynccontextmanager
    async def failing(self, kind: str) -> AsyncIterator[Callable[[], object]]:
        if kind == "away":
            await self.away()
        elif kind in READING:
            self.proxy.fail("hang" if kind == "hangs" else "server", "sync", times=MANY)
        else:
            self.fail(kind)
        yield lambda: self.proxy.hanging
        self.proxy.faults.clear()
        self.proxy.release()
        if kind == "away":
            await self.back()

    async def until(self, true: Callable[[], object]) -> None:
        await self.person("one").until(true)

    async def away(self) -> None:
        """Make the homeserver unreachable."""
        await self.proxy.close()

    async def back(self) -> None:
        """Make it reachable again."""
        await self.proxy.open()

    async def __aenter__(self) -> Self:
        await self.proxy.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        for each in self._made:
            await each.close_connections()
        await self.proxy.close()
