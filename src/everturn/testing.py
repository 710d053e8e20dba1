"""For people who write adapters and agents: a platform that misbehaves on order, a scripted agent, a clock that is moved
by hand, and a world that wires them to a real gateway. Nothing here is patched or mocked.

The platforms' own servers are beside it, and are loaded by who imports them: `everturn.testing_telegram`, a Telegram on this
machine, and `everturn.testing_matrix`, a way to a homeserver that misbehaves. Both keep to the platform's documentation, and fail
when told to.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Self

from everturn.agent.interface import Agent, Answer, TurnContext
from everturn.clock import Clock, SystemClock
from everturn.decide.admission import OPEN
from everturn.decide.keys import session_key
from everturn.gateway.lifecycle import Gateway, Stop
from everturn.gateway.parts import Settings
from everturn.gateway.recovery import Report
from everturn.media import Media
from everturn.model import Effect, Inbound, SessionSource, ToolCall
from everturn.platform.interface import Platform
from everturn.store.interface import Store
from everturn.store.open import open_store
from everturn.testing_clock import ManualClock
from everturn.testing_fakes import (
    OPEN_CARD,
    CardPlatform,
    DeletingPlatform,
    EditingPlatform,
    FakePlatform,
    Fault,
    FilePlatform,
    RemotePlatform,
    Shown,
)
from everturn.tracing import Tracer

__all__ = [
    "OPEN_CARD", "CardPlatform", "DeletingPlatform", "EditingPlatform", "FakePlatform", "Fault", "FilePlatform", "ManualClock",
    "RemotePlatform", "ScriptedAgent", "Shown", "World", "key_of", "open_to_all",
]  # fmt: skip

Act = Callable[[str, str], Awaitable[str]]


async def _nothing(name: str, _key: str) -> str:
    return f"{name} done"


class ScriptedAgent:
    """Uses its tools in order, each in a step of its own, then answers. It goes on after an interruption.

    With `joins` it hears what is written meanwhile, as an agent does before each model call.
    """

    def __init__(
        self,
        tools: Sequence[str] = (),
        answer: Callable[[TurnContext], str] = lambda turn: f"echo: {turn.words}",
        act: Act = _nothing,
        effect: Effect = Effect.ONCE,
        *,
        joins: bool = False,
    ) -> None:
        self._tools = tools
        self._joins = joins
        self._answer = answer
        self._act = act
        self._effect = effect
        self.notes: list[str | None] = []
        self.heard: list[str] = []  # what joined its turns

    async def run(self, turn: TurnContext) -> Answer:
        """The script."""
        self.notes.append(turn.note)
        turn.calling()
        done = 0
        if turn.attempt > 1:
            await turn.settle(self._run)
            done = sum(row.role == "tool" for row in await turn.own())
        for place in range(done, len(self._tools)):
            await self._hear(turn)
            call = ToolCall(id=f"call-{place + 1}", name=self._tools[place], effect=self._effect)
            await turn.step("", [call], self._run)
        await self._hear(turn)
        return Answer(self._answer(turn))

    async def _hear(self, turn: TurnContext) -> None:
        self.heard += [row.content for row in await turn.joined()] if self._joins else []

    async def _run(self, call: ToolCall, key: str) -> str:
        return await self._act(call.name, key)


class World:
    """A gateway on a real database with whatever agent and platforms one brings.

    Unless other settings are given, every message is a turn of its own, however fast they come. A platform for which the
    settings have no policy is open to everybody here, which it never is in a real gateway.
    """

    def __init__(
        self,
        url: str,
        agent: Agent,
        platforms: Sequence[Platform],
        clock: Clock | None = None,
        settings: Settings = Settings(burst_s=0.0),  # noqa: B008  frozen
        tracer: Tracer | None = None,
        *,
        media: Media | None = None,
        opened: Callable[[str], Awaitable[Store]] = open_store,
    ) -> None:
        self.url = url
        self._media = media
        self._opened = opened
        self._tracer = tracer
        self._agent = agent
        self.platforms: Mapping[str, Platform] = {each.name: each for each in platforms}
        self.clock = clock or SystemClock()
        self._settings = open_to_all(settings, *self.platforms)
        self._gateway: Gateway | None = None
        self._store: Store | None = None

    @property
    def gateway(self) -> Gateway:
        """The running gateway."""
        if self._gateway is None:
            raise RuntimeError("the world is not started")
        return self._gateway

    @property
    def store(self) -> Store:
        """Its store."""
        return self.gateway.parts.store

    async def start(self) -> Report:
        """Open the database and start."""
        self._store = await self._opened(self.url)
        self._gateway = Gateway(
            self._store, self._agent, self.platforms, self.clock, self._settings, self._tracer, media=self._media
        )
        return await self._gateway.start()

    async def stop(self, kind: str = "stop") -> bool:
        """A planned stop; True when every turn finished before it."""
        stop = Stop(kind, "test")
        finished = await self.gateway.drain(stop)
        await self.gateway.stop(stop)
        await self._close()
        return finished

    async def abandon(self) -> None:
        """An end without a word: no drain, nothing written. (Tasks are cancelled; for a true death kill a process.)"""
        store, self._store = self._store, None
        gateway, self._gateway = self._gateway, None
        if store is not None:
            await store.close()
        if gateway is not None:
            await gateway.stop(None)

    async def accept(self, inbound: Inbound) -> str:
        """Hand a message to the door; returns its key."""
        return (await self.gateway.intake.accept(inbound)).key

    async def _close(self) -> None:
        store, self._store, self._gateway = self._store, None, None
        if store is not None:
            await store.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._gateway is not None:
            await self.abandon() if error[0] else await self.stop()


def open_to_all(settings: Settings, *platforms: str) -> Settings:
    """The settings with these platforms open to everybody, where they say nothing of them. For tests alone."""
    policies = dict.fromkeys(platforms, OPEN) | dict(settings.admission.policies)
    return replace(settings, admission=replace(settings.admission, policies=policies))


def key_of(platform: FakePlatform, chat: str) -> str:
    """The session key of what `say` says in a chat."""
    return session_key(SessionSource(platform=platform.name, chat_id=chat, user_id="ann"))
