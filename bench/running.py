"""A gateway in this process under load: messages go in by its intake, a turn is over when its delivery is recorded."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any, Self

from bench.rounds import Sample, block
from everturn.agent.interface import Agent
from everturn.clock import SystemClock
from everturn.lifecycle.gateway import Gateway, PlannedStop
from everturn.lifecycle.settings import Settings
from everturn.model import Inbound, SessionSource
from everturn.operator.rows.reading import count_open
from everturn.outbox.rows.outbox import record_sent
from everturn.platform.interface import Platform
from everturn.platform.posted import ApiPlatform, WebPlatform
from everturn.store.open import open_store
from everturn.store.postgres import PostgresStore
from everturn.store.sqlite import SQLiteStore
from everturn.testing import FakePlatform, ScriptedAgent, open_to_all
from everturn.turns.rows.turns import finish

TEXT = "please look at this for me"
SETTINGS = Settings(running_turns=256)
STANDSTILL_S = 30.0
KeyOf = Callable[[tuple[Any, ...]], str]


class Watched:
    """A store that says when the last operation of a turn is committed; all else passes through."""

    def __init__(self, store: SQLiteStore | PostgresStore, last: Callable[..., Any], key_of: KeyOf) -> None:
        self._store = store
        self._run = store.run
        self._last = last
        self._key_of = key_of
        self._waiting: dict[str, asyncio.Future[None]] = {}
        self.read = store.read
        self.lock_instance = store.lock_instance
        self.alive = store.alive
        self.trouble = store.trouble
        self.close = store.close
        self.now = store.now

    @property
    def commits(self) -> int:
        """Groups that were committed."""
        return self._store.commits

    def run(self, operation: Callable[..., Any], *args: Any, **kwargs: Any) -> asyncio.Future[Any]:
        """Run and commit."""
        future = self._run(operation, *args, **kwargs)
        if operation is self._last:
            future.add_done_callback(partial(self._ended, self._key_of(args)))
        return future

    def ended(self, key: str) -> asyncio.Future[None]:
        """The end of the turn that this key has begun."""
        waiting = self._waiting[key] = asyncio.get_running_loop().create_future()
        return waiting

    def _ended(self, key: str, done: asyncio.Future[Any]) -> None:
        waiting = self._waiting.pop(key, None)
        if waiting is not None:
            waiting.set_exception(error) if (error := done.exception()) else waiting.set_result(None)


class Running:
    """A started gateway with an agent that uses one tool and then answers."""

    def __init__(self, gateway: Gateway, store: Watched, platform: str) -> None:
        self.gateway = gateway
        self.store = store
        self.text = TEXT
        self._platform = platform
        self._ids = map(f"{secrets.token_hex(4)}-{{}}".format, count())
        self._accept = gateway.intake.accept

    @classmethod
    async def open(
        cls, url: str, *, api: bool = False, settings: Settings = SETTINGS, agent: Agent | None = None
    ) -> Self:
        """On a platform that is sent to (class A: it knows our keys), or on the HTTP platform, whose delivery is an event.

        Beside the HTTP platform there is the page's.
        """
        store = await open_store(url)
        platform: Platform = ApiPlatform() if api else FakePlatform()
        others: list[Platform] = [WebPlatform()] if api else []
        watched = Watched(store, finish if api else record_sent, _key_of)
        gateway = Gateway(
            watched, agent or ScriptedAgent(tools=["look"]), {each.name: each for each in (platform, *others)}, SystemClock(),
            open_to_all(settings, platform.name),
        )  # fmt: skip
        await gateway.start()
        return cls(gateway, watched, platform.name)

    async def turn(self, chat: str) -> None:
        """From the message at the intake until the delivery of its answer is recorded."""
        await self.store.ended(await self.accept(chat))

    async def accept(self, chat: str) -> str:
        """Accept a message; its key, after the commit."""
        number = next(self._ids)
        source = SessionSource(platform=self._platform, chat_id=chat, message_id=number)
        accepted = await self._accept(Inbound(id=f"{number}@{chat}", source=source, text=self.text))
        return accepted.key

    async def measure(self, chat_of: Callable[[int], str], sessions: int, seconds: float) -> Sample:
        """One block of turns; each session asks which chat its next turn is in."""
        before = self.store.commits

        async def turn(session: int, _count: int) -> None:
            await self.turn(chat_of(session))

        sample = await block(turn, sessions, seconds)
        return Sample(sample.done, sample.seconds, sample.cpu_s, self.store.commits - before)

    async def idle(self) -> None:
        """Wait until nothing that was accepted is open any more. Raises TimeoutError when nothing of it ends for a while."""
        left, seen_at = None, time.monotonic()
        while now := (await self.store.read(count_open))["inbox"]:
            if now != left:
                left, seen_at = now, time.monotonic()
            if time.monotonic() > seen_at + STANDSTILL_S:
                raise TimeoutError(f"{now} accepted messages are open, and none of them ended in {STANDSTILL_S:.0f} s")
            await asyncio.sleep(0.05)

    async def abandon(self) -> None:
        """Close everything at once; what is open stays so."""
        await self.gateway.stop(None)
        await self.store.close()

    async def close(self) -> None:
        """A planned stop."""
        stop = PlannedStop("stop", "measured")
        await self.gateway.drain(stop)
        await self.gateway.stop(stop)
        await self.store.close()


def _key_of(args: tuple[Any, ...]) -> str:
    """Of the reply that was sent, or of the turn that was finished."""
    return str(args[0].key)
