"""For people who write adapters and agents: a platform that misbehaves on order, a scripted agent, a clock that is moved
by hand, and a world that wires them to a real gateway. Nothing here is patched or mocked.

The platforms' own servers are beside it, and are loaded by who imports them: `everturn.testing_telegram`, a Telegram on this
machine, and `everturn.testing_matrix`, a way to a homeserver that misbehaves. Both keep to the platform's documentation, and fail
when told to.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

from msgspec import convert, to_builtins

from everturn.agent.interface import Agent, Answer, TurnContext
from everturn.clock import Clock, SystemClock
from everturn.decide.admission import OPEN
from everturn.decide.delivery import Surety
from everturn.decide.keys import session_key
from everturn.errors import PlatformError, Refused
from everturn.gateway.lifecycle import Gateway, Stop
from everturn.gateway.parts import Settings
from everturn.gateway.recovery import Report
from everturn.media import Media
from everturn.model import Attachment, Effect, Inbound, SessionSource, ToolCall
from everturn.platform.interface import Channel, Limits, Outgoing, Platform
from everturn.store.interface import Store
from everturn.store.open import open_store
from everturn.testing_clock import ManualClock
from everturn.tracing import Tracer

__all__ = [
    "OPEN_CARD", "CardPlatform", "DeletingPlatform", "EditingPlatform", "FakePlatform", "Fault", "FilePlatform", "ManualClock",
    "ScriptedAgent", "Shown", "World", "key_of", "open_to_all",
]  # fmt: skip
OPEN_CARD = " [...]"  # how a card that is not closed looks


@dataclass(frozen=True, slots=True)
class Fault:
    """What a send meets: an error, after the platform took the message or before."""

    error: PlatformError
    accepted: bool = False


@dataclass(frozen=True, slots=True)
class Shown:
    """A message on the screen of a chat."""

    chat: str
    text: str
    key: str
    id: str
    answers: str | None = None  # the message that it names as the one it answers


class FakePlatform:
    """A platform with a screen. Class A knows our keys, B can be read back, C neither; it fails when told to.

    With a `file` it keeps what people said, what was acknowledged and what is on the screen there, so that it outlives
    the process that talks to it, as a platform does.
    """

    account = ""

    def __init__(
        self,
        name: str = "fake",
        surety: Surety = Surety.KEYED,
        faults: Iterable[Fault | None] = (),
        file: Path | None = None,
        limits: Limits = Limits(),  # noqa: B008  frozen
        repeat: int = 1,
    ) -> None:
        self.name = name
        self.surety = surety
        self.limits = limits
        self.screen: list[Shown] = []
        self.places: list[Channel] = []  # where it says that we are
        self._by_key: dict[str, str] = {}
        self.calls = 0
        self._sent = 0
        self._said: list[Inbound] = []
        self.acknowledged = 0  # how many of the messages people wrote we were told are taken
        self._faults = iter(faults)
        self._file = file
        self._repeat = repeat
        self._changed = asyncio.Event()
        if file is not None and file.exists():
            self._load(file.read_text())

    def say(self, chat: str, text: str, number: str | None = None, **about: str) -> str:
        """Somebody writes; returns the message's id."""
        return self.attach(chat, text, (), None, number, about)

    def attach(
        self,
        chat: str,
        text: str,
        files: Sequence[Attachment],
        album: str | None = None,
        number: str | None = None,
        about: Mapping[str, str] = MappingProxyType({}),
    ) -> str:
        """Somebody writes and sends files with it; returns the message's id."""
        message_id = number or f"m{len(self._said) + 1}"
        source = SessionSource(
            platform=self.name, **({"chat_id": chat, "user_id": "ann", "message_id": message_id} | dict(about))
        )
        said = Inbound(id=f"{message_id}@{chat}", source=source, text=text, attachments=tuple(files), album=album)
        self._said.append(said)
        raw = to_builtins(said.attachments)
        self._keep("said", id=message_id, chat=chat, text=text, about=dict(about), files=raw, album=album)
        self._notify()
        return message_id

    def say_once(self, chat: str, text: str) -> None:
        """Say it unless it was said before: people do not write again because a gateway restarts."""
        if not any(each.source.chat_id == chat and each.text == text for each in self._said):
            self.say(chat, text)

    def said(self) -> list[Inbound]:
        """What people wrote so far."""
        return list(self._said)

    async def inbound(self, after: str | None = None) -> AsyncIterator[Inbound]:  # noqa: ARG002  it remembers what we acknowledged
        """What was said, from the first that was not acknowledged; each may be delivered more than once."""
        place = self.acknowledged
        while True:
            while place < len(self._said):
                for _ in range(self._repeat):
                    yield self._said[place]
                place += 1
                self.acknowledged = place
                self._keep("acknowledged", place=place)
                self._notify()
            changed = self._changed
            await changed.wait()

    async def send(self, to: SessionSource, text: str, key: str) -> str:
        """Put a part on the screen, unless its key is there already and we know keys."""
        self.calls += 1
        self._notify()
        fault = next(self._faults, None)
        if fault is not None and not fault.accepted:
            raise fault.error
        known = self._by_key.get(key) if self.surety is Surety.KEYED else None
        number = known or self._show(to, text, key)
        if fault is not None:
            raise fault.error
        return number

    async def find(self, to: SessionSource, key: str, text: str) -> str | None:  # noqa: ARG002  the key is enough here
        """Read back: only class B can."""
        if self.surety is not Surety.READ_BACK:
            return None
        return self._by_key.get(key)

    async def channels(self) -> list[Channel]:
        """Where we are, as a test said."""
        return list(self.places)

    def reloaded(self) -> FakePlatform:
        """The platform as its file says now, whoever wrote there meanwhile."""
        return FakePlatform(self.name, self.surety, file=self._file)

    def texts(self, chat: str) -> list[str]:
        """What a person in this chat sees of us."""
        return [shown.text for shown in self.screen if shown.chat == chat]

    async def until(self, true: Callable[[], bool], timeout_s: float = 60) -> None:
        """Wait for something to be true of this platform."""
        async with asyncio.timeout(timeout_s):
            while not true():
                await self._changed.wait()

    def _show(self, to: SessionSource, text: str, key: str) -> str:
        self._sent += 1
        shown = Shown(to.chat_id or "", text, key, f"{self.name}-{self._sent}", to.message_id)
        self.screen.append(shown)
        self._by_key[key] = shown.id
        self._keep("shown", chat=shown.chat, text=text, key=key, id=shown.id, answers=shown.answers)
        self._notify()
        return shown.id

    async def _change_screen(self, message_id: str, text: str) -> None:
        with self._faulty() as done:
            if done:
                self._replace(message_id, text)
                self._keep("edited", id=message_id, text=text)

    @contextmanager
    def _faulty(self) -> Iterator[bool]:
        """A call: whether it is done, and then the error that was ordered for it."""
        self.calls += 1
        fault = next(self._faults, None)
        yield fault is None or fault.accepted
        self._notify()
        if fault is not None:
            raise fault.error

    def _take_away(self, message_id: str) -> None:
        self.screen = [each for each in self.screen if each.id != message_id]
        if self.surety is Surety.READ_BACK:  # a history forgets what was deleted, a table of keys does not
            self._by_key = {key: each for key, each in self._by_key.items() if each != message_id}

    def _replace(self, message_id: str, text: str) -> None:
        self.screen = [replace(each, text=text) if each.id == message_id else each for each in self.screen]

    def _notify(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def _keep(self, what: str, **data: object) -> None:
        if self._file is None:
            return
        line = json.dumps({"what": what, **data}) + "\n"
        number = os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(number, line.encode())
        finally:
            os.close(number)

    def _load(self, text: str) -> None:
        file, self._file = self._file, None
        for line in text.splitlines():
            data = json.loads(line)
            match data.pop("what"):
                case "said":
                    files = convert(data.get("files", ()), tuple[Attachment, ...])
                    self.attach(data["chat"], data["text"], files, data.get("album"), data["id"], data["about"])
                case "acknowledged":
                    self.acknowledged = data["place"]
                case "edited":
                    self._replace(data["id"], data["text"])
                case "deleted":
                    self._take_away(data["id"])
                case _:
                    self._sent += 1
                    self.screen.append(Shown(**data))
                    self._by_key[data["key"]] = data["id"]
        self._file = file


class EditingPlatform(FakePlatform):
    """A platform on which what was sent can be replaced."""

    async def edit(self, to: SessionSource, message_id: str, text: str) -> None:  # noqa: ARG002  the id is enough here
        """Replace a message on the screen."""
        await self._change_screen(message_id, text)


class DeletingPlatform(EditingPlatform):
    """A platform on which what was sent can also be taken away."""

    async def delete(self, to: SessionSource, message_id: str) -> None:  # noqa: ARG002  the id is enough here
        """Take a message away; one that is gone stays so."""
        with self._faulty() as done:
            if done:
                self._take_away(message_id)
                self._keep("deleted", id=message_id)


class FilePlatform(FakePlatform):
    """A platform with files: those that people attach can be fetched, and ours appear on the screen.

    `contents` has the bytes by reference; what is not there is gone. `fetch_faults` are met by the next fetches.
    """

    def __init__(self, *, contents: Mapping[str, bytes] | None = None, **given: Any) -> None:
        super().__init__(**given)
        self.contents = dict(contents or {})
        self.fetch_faults: list[Exception] = []
        self.fetches: list[str] = []
        self.slow = asyncio.Event()  # what is called slow waits for it
        self.files: dict[str, bytes] = {}  # what was sent, by the id on the screen

    async def fetch(self, attachment: Attachment) -> AsyncIterator[bytes]:
        """The bytes, in two pieces."""
        self.fetches.append(attachment.ref)
        self._notify()
        if self.fetch_faults:
            raise self.fetch_faults.pop(0)
        if attachment.ref == "slow":
            await self.slow.wait()
        if attachment.ref not in self.contents:
            raise Refused("the file is gone")
        content = self.contents[attachment.ref]
        half = len(content) // 2
        for piece in (content[:half], content[half:]):
            yield piece

    async def send_file(self, to: SessionSource, file: Outgoing, key: str) -> str:
        """Put a file on the screen: its name and its words are seen."""
        content = await asyncio.to_thread(file.path.read_bytes)
        seen = f"<{file.name}>"
        number = await self.send(to, f"{seen} {file.words}" if file.words else seen, key)
        self.files[number] = content
        return number


class CardPlatform(FakePlatform):
    """A platform whose live replies are cards. One that was not closed is seen as such on the screen."""

    async def open(self, to: SessionSource, text: str, key: str) -> str:
        """Show a card, unless its key is there already and we know keys."""
        return await self.send(to, text + OPEN_CARD, key)

    async def update(self, to: SessionSource, card_id: str, text: str) -> None:
        """Replace what an open card shows."""
        await self._change(to, card_id, text + OPEN_CARD)

    async def close(self, to: SessionSource, card_id: str, text: str) -> None:
        """End a card."""
        await self._change(to, card_id, text)

    async def _change(self, _to: SessionSource, card_id: str, text: str) -> None:
        now = next(each.text for each in self.screen if each.id == card_id)
        if not now.endswith(OPEN_CARD) and now != text:
            raise Refused("the card is closed")
        await self._change_screen(card_id, text)


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
    ) -> None:
        self.url = url
        self._media = media
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
        self._store = await open_store(self.url)
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
