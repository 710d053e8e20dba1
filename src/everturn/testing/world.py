"""A test world: a real gateway on a real store, with a scripted agent and the platforms of the test."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Self

from everturn.agent.interface import Agent, Answer, TurnContext
from everturn.clock import Clock, SystemClock
from everturn.home.files import Media
from everturn.lifecycle.gateway import Gateway, PlannedStop
from everturn.lifecycle.settings import Settings
from everturn.model import Effect, Inbound, SessionSource, ToolCall
from everturn.people.rules.access import OPEN
from everturn.platform.interface import Platform
from everturn.sessions.rules.keys import session_key
from everturn.store.interface import Store
from everturn.store.open import open_store
from everturn.telemetry.spans import Tracer
from everturn.testing.fakes import FakePlatform
from everturn.turns.recovery import Report

Act = Callable[[str, str], Awaitable[str]]


async def _nothing(name: str, _key: str) -> str:
    return f"{name} done"


class ScriptedAgent:
    """An agent that uses its tools in order, each in a step of its own, then answers. It continues after an interruption.

    With `joins` it takes the messages that arrive meanwhile, as an agent does before each model call.
    """

    def __init__(
        self,
        tools: Sequence[str] = (),
        answer: Callable[[TurnContext], str] = lambda turn: f"echo: {turn.text}",
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
        self.heard: list[str] = []  # the texts that joined its turns

    async def run(self, turn: TurnContext) -> Answer:
        """Run the script."""
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


# A message is a turn at once, and nothing is in flight to the platforms of a test when their gateway ends.
AT_ONCE = Settings(burst_s=0.0, in_flight_s=0.0)


class World:
    """A gateway on a real database with any agent and platforms.

    Unless other settings are given, every message is a turn of its own, however fast they arrive. A platform for which the
    settings have no policy is open to everybody here, which it never is in a real gateway.
    """

    def __init__(
        self,
        url: str,
        agent: Agent,
        platforms: Sequence[Platform],
        clock: Clock | None = None,
        settings: Settings = AT_ONCE,
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
        """The gateway's store."""
        return self.gateway.store

    async def start(self) -> Report:
        """Open the database and start the gateway."""
        self._store = await self._opened(self.url)
        self._gateway = Gateway(
            self._store, self._agent, self.platforms, self.clock, self._settings, self._tracer, media=self._media
        )
        return await self._gateway.start()

    async def stop(self, kind: str = "stop") -> bool:
        """Stop as planned; returns True when every turn finished before it."""
        stop = PlannedStop(kind, "test")
        finished = await self.gateway.drain(stop)
        await self.gateway.stop(stop)
        await self._close()
        return finished

    async def abandon(self) -> None:
        """Stop without a drain, and without writing anything. (Tasks are cancelled; for a real crash kill a process.)"""
        store, self._store = self._store, None
        gateway, self._gateway = self._gateway, None
        if store is not None:
            await store.close()
        if gateway is not None:
            await gateway.stop(None)

    async def accept(self, inbound: Inbound) -> str:
        """Give a message to the intake; returns its session key."""
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
    """The settings with these platforms open to everybody, where they have no policy. For tests only."""
    policies = dict.fromkeys(platforms, OPEN) | dict(settings.admission.policies)
    return replace(settings, admission=replace(settings.admission, policies=policies))


def key_of(platform: FakePlatform, chat: str) -> str:
    """The session key of the messages that `say` writes in a chat."""
    return session_key(SessionSource(platform=platform.name, chat_id=chat, user_id="ann"))
