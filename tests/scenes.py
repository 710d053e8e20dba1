"""Helpers of the gateway's tests: an agent that plays the text of a message and can be held, crashes, and ways to look."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from everturn.agent.interface import Answer, TurnContext
from everturn.errors import StoreError
from everturn.lifecycle.settings import Policies, Settings
from everturn.model import Effect, Message, SessionEntry, ToolCall
from everturn.operator.rows.reading import explain
from everturn.sessions.rows.entries import find_entry, transcript
from everturn.sessions.rules.reset_policy import ResetPolicy
from everturn.store.interface import GRACE_S, Op, sql
from everturn.store.open import open_store
from everturn.testing import FakePlatform, ManualClock, World, key_of
from tests.waiting import read_until, within

T = TypeVar("T")
A_STEP_LASTS_S = 0.002
EAGER = Settings(drain_s=0.0)  # a drain that cuts off at once
IDLE_HOUR = Policies(default=ResetPolicy("idle", idle_minutes=60))


class Rooms(FakePlatform):
    """A platform whose direct chats are rooms: people come in and leave."""

    direct_members_change = True


@dataclass(frozen=True)
class Attempt:
    """The input that the agent got."""

    text: str
    number: int
    note: str
    turn: str
    session_id: str
    earlier: int


class Actor:
    """Plays the text of a message, word by word: `nocall`, `tool`, `step`, `hold`, `raise`, `empty`; the rest is just said.

    A tool is used once in a turn, a step is taken in each attempt. A held turn waits until its text is released, in
    whichever process.
    """

    def __init__(self, effect: Effect = Effect.ONCE) -> None:
        self.attempts: list[Attempt] = []
        self.effects: list[str] = []
        self.holding: set[str] = set()
        self.most_at_once = 0
        self.overlaps: list[str] = []
        self._released: set[str] = set()
        self._effect = effect
        self._at_work: list[str] = []
        self._changed = asyncio.Event()

    async def run(self, turn: TurnContext) -> Answer:
        """Play the text."""
        self.attempts.append(Attempt(turn.text, turn.attempt, turn.note or "", turn.id, turn.session_id, turn.earlier))
        self.overlaps += [turn.key] if turn.key in self._at_work else []
        self._at_work.append(turn.key)
        self.most_at_once = max(self.most_at_once, len(self._at_work))
        try:
            return await self._play(turn)
        finally:
            self._at_work.remove(turn.key)
            self._notify()

    def marks_calls(self, _key: str) -> bool:
        """It is as careful as our own: without a model call there is nothing that a crash could interrupt."""
        return True

    def release(self, *text: str) -> None:
        """Release the turns of these texts; all turns when none are named."""
        self._released |= set(text) or {"*"}
        self._notify()

    async def until(self, true: Callable[[], bool]) -> None:
        """Wait for something to be true of this agent."""
        async with within(seen=lambda: f"held {self.holding}, attempts {self.attempts}"):
            while not true():
                await self._changed.wait()

    async def held(self, *text: str) -> None:
        """Wait until the turns of these texts are held."""
        await self.until(lambda: set(text) <= self.holding)

    def given(self, text: str) -> list[Attempt]:
        """The attempts at this text."""
        return [each for each in self.attempts if each.text == text]

    def notes(self, text: str) -> list[str]:
        """The notes that came with this text, attempt by attempt."""
        return [each.note for each in self.given(text)]

    async def _play(self, turn: TurnContext) -> Answer:
        acts = turn.text.split()
        if "nocall" not in acts:
            await turn.calling()
        if turn.attempt > 1:
            await turn.settle(self._act)
        done = sum(row.role == "tool" for row in await turn.own())
        for place, act in enumerate(acts):
            if act == "tool" and acts[:place].count("tool") >= done:
                await turn.step("", [ToolCall(f"call-{place}", "tool", effect=self._effect)], self._act)
            elif act == "step":
                await turn.step(f"step {turn.attempt}", [], self._act)
            elif act == "hold":
                await self._hold(turn.text)
            elif act == "raise":
                raise RuntimeError("the model is not there")
        return Answer("" if "empty" in acts else answer_to(turn.text))

    async def _hold(self, text: str) -> None:
        self.holding.add(text)
        self._notify()
        try:
            while not self._released & {text, "*"}:
                await self._changed.wait()
        finally:
            self.holding.discard(text)

    async def _act(self, call: ToolCall, key: str) -> str:
        self.effects.append(key)
        return f"{call.id} done"

    def _notify(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


def answer_to(text: str) -> str:
    """What the actor answers."""
    return f"answer: {text}"


async def die(world: World) -> None:
    """End the gateway as a crash does."""
    await world.abandon()
    await until_all_are_dead(world.url)


async def until_all_are_dead(url: str) -> None:
    """Wait until the database, too, knows that no instance is alive."""
    store = await open_store(url)
    try:
        await read_until(store.alive, lambda alive: not alive)
    finally:
        await store.close()


async def swept(world: World) -> None:
    """Look for dead replicas through a whole grace period."""
    assert isinstance(world.clock, ManualClock)
    await world.gateway.recovery.sweep()
    world.clock.advance(GRACE_S)
    await world.gateway.recovery.sweep()


async def restarted(world: World) -> None:
    """Crash, and start again."""
    await die(world)
    await world.start()


async def entry_of(world: World, platform: FakePlatform, chat: str) -> SessionEntry:
    """The session entry of the chat's key."""
    entry = await world.store.read(find_entry, key_of(platform, chat))
    assert entry is not None
    return entry


async def session_of(world: World, platform: FakePlatform, chat: str) -> str:
    """The id of the session the chat's key points at."""
    session_id = (await entry_of(world, platform, chat)).session_id
    assert session_id is not None
    return session_id


async def said_in(world: World, session_id: str) -> list[Message]:
    """A session's transcript."""
    return await world.store.read(transcript, session_id, 0, 1000)


async def trace_of(world: World, message_id: str) -> dict[str, Any]:
    """The trace of one message, as soon as it is stored."""
    traces = await until_read(lambda: world.store.read(explain, message_id), bool)
    (trace,) = traces
    return dict(trace)


async def until_read(read: Callable[[], Any], true: Callable[[Any], bool]) -> Any:
    """Read again until it is true; returns what was read."""
    return await read_until(read, true)


async def until_ended(world: World, message_id: str, state: str) -> dict[str, Any]:
    """Wait until a message's row is in this state; returns its trace."""
    found: dict[str, Any] = await until_read(lambda: trace_of(world, message_id), lambda trace: trace["state"] == state)
    return found


async def while_time_passes(world: World, work: Awaitable[T], step_s: float = 1.0) -> T:
    """Move the world's clock on, step by step, until the work is done. A step lasts no less than a transaction: else
    minutes would pass while a slow database commits, and running turns would get notices, or fail.
    """
    assert isinstance(world.clock, ManualClock)
    task = asyncio.ensure_future(work)
    while not task.done():
        world.clock.advance(step_s)
        await asyncio.wait({task}, timeout=A_STEP_LASTS_S)
        with suppress(RuntimeError, StoreError):  # the world is ending
            await world.store.run(nothing)
    return await task


def nothing() -> Op[None]:
    """An operation that only waits for its turn to write."""
    yield sql("SELECT 1")


async def happened(event: asyncio.Event) -> None:
    """Wait for an event."""
    async with within():
        await event.wait()


async def ask(platform: FakePlatform, chat: str, text: str) -> str:
    """Say something, wait for its answer; returns the message's id."""
    message_id = platform.say(chat, text)
    await platform.until(lambda: answer_to(text) in platform.texts(chat))
    return message_id


async def told(platform: FakePlatform, chat: str, part: str) -> str:
    """Wait for a message that contains this; returns it."""
    await platform.until(lambda: any(part in text for text in platform.texts(chat)))
    return next(text for text in platform.texts(chat) if part in text)
