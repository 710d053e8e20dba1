"""Platforms in memory with a screen to look at, which fail on order. Import them from `everturn.testing`."""

from __future__ import annotations

import asyncio
import json
import os
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from msgspec import convert, to_builtins

from everturn.clock import Clock, SystemClock
from everturn.errors import PlatformError, Refused, TryLater
from everturn.model import Attachment, Inbound, SessionSource
from everturn.outbox.rules.delivery import Surety
from everturn.platform.interface import Channel, Contact, Outgoing, TextLimits
from everturn.testing.clock import WAIT_S, within

OPEN_CARD = " [...]"  # how a card that is not closed looks


@dataclass(frozen=True, slots=True)
class SendFault:
    """A fault of a send: an error, after the platform accepted the message or before."""

    error: PlatformError
    accepted: bool = False


@dataclass(frozen=True, slots=True)
class ShownMessage:
    """A message on the screen of a chat."""

    chat: str
    text: str
    key: str
    id: str
    answers: str | None = None  # the message that it replies to


class InboundMessages:
    """The messages that people wrote on a platform, and how they are read."""

    account = ""

    def __init__(self, name: str, file: Path | None, repeat: int) -> None:
        self.name = name
        self._said: list[Inbound] = []
        self.acknowledged = 0  # how many of the messages were acknowledged to the platform
        self.reads = 0  # how often the adapter was asked for messages
        self._lost = False
        self._again: deque[Inbound] = deque()
        self._file = file
        self._repeat = repeat
        self._changed = asyncio.Event()

    def say(self, chat: str, text: str, number: str | None = None, **about: str) -> str:
        """Let somebody write; returns the message's id."""
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
        """Let somebody write with attachments; returns the message's id."""
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
        """Write a message unless it was written before: people do not write again because a gateway restarts."""
        if not any(each.source.chat_id == chat and each.text == text for each in self._said):
            self.say(chat, text)

    def said(self) -> list[Inbound]:
        """The messages that people wrote so far."""
        return list(self._said)

    async def inbound(self, after: str | None = None) -> AsyncIterator[Inbound]:  # noqa: ARG002  it remembers what we acknowledged
        """Yield the messages, from the first that was not acknowledged; each may be delivered more than once."""
        place = self.acknowledged
        while True:
            changed = self._changed
            self._asked()
            if self._again:
                yield self._again.popleft()
            elif place < len(self._said):
                for _ in range(self._repeat):
                    yield self._said[place]
                place += 1
                self.acknowledged = place
                self._keep("acknowledged", place=place)
                self._notify()
            else:
                await changed.wait()

    def _asked(self) -> None:
        """Count a read. Raises TryLater while the platform is disconnected."""
        self.reads += 1
        if self._lost:
            raise TryLater("the platform is disconnected", 0.0)

    def garble(self) -> None:
        """Deliver what was acknowledged again, the newest first, and what follows twice."""
        self._again.extend(reversed(self._said[: self.acknowledged]))
        self._repeat = max(self._repeat, 2)
        self._notify()

    def set_disconnected(self, *, disconnected: bool = True) -> None:
        """Disconnect the platform, so that it cannot be read, or connect it again."""
        self._lost = disconnected
        self._notify()

    async def until(self, true: Callable[[], bool], timeout_s: float = WAIT_S) -> None:
        """Wait for a condition on this platform. A failure reports the platform's state."""
        async with within(timeout_s, self._found):
            while not true():
                await self._changed.wait()

    def _found(self) -> str:
        """The state that a failed wait reports."""
        return f"{self.acknowledged} of {len(self._said)} messages acknowledged, read {self.reads} times"

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


class FakePlatform(InboundMessages):
    """A platform with a screen. Class A knows our keys, B can be read back, C neither; it fails on order.

    With a `file` it saves the messages, the acknowledgements and the screen there, so that it outlives
    the process that uses it, as a platform does.
    """

    def __init__(
        self,
        name: str = "fake",
        surety: Surety = Surety.KEYED,
        faults: Iterable[SendFault | None] = (),
        file: Path | None = None,
        limits: TextLimits = TextLimits(),  # noqa: B008  frozen
        repeat: int = 1,
    ) -> None:
        super().__init__(name, file, repeat)
        self.surety = surety
        self.limits = limits
        self.screen: list[ShownMessage] = []
        self.places: list[Channel] = []  # the channels that it lists
        self._by_key: dict[str, str] = {}
        self.calls = 0
        self._sent = 0
        self._faults = iter(faults)
        if file is not None and file.exists():
            self._load(file.read_text())

    async def send(self, to: SessionSource, text: str, key: str) -> str:
        """Put a message on the screen, unless its key is there already and the platform knows keys."""
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
        """The channels that the test set."""
        return list(self.places)

    def reloaded(self) -> FakePlatform:
        """The platform as its file says now, whichever process wrote it."""
        return FakePlatform(self.name, self.surety, file=self._file)

    def texts(self, chat: str) -> list[str]:
        """The texts of ours that a person in this chat sees."""
        return [shown.text for shown in self.screen if shown.chat == chat]

    def _found(self) -> str:
        texts = {chat: self.texts(chat) for chat in dict.fromkeys(shown.chat for shown in self.screen)}
        return f"texts by chat {texts}, after {self.calls} calls; {super()._found()}"

    def _show(self, to: SessionSource, text: str, key: str) -> str:
        self._sent += 1
        shown = ShownMessage(to.chat_id or "", text, key, f"{self.name}-{self._sent}", to.message_id)
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
        """Count a call; yields whether it is done, then raises the fault that was ordered for it."""
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
                    self.screen.append(ShownMessage(**data))
                    self._by_key[data["key"]] = data["id"]
        self._file = file


class EditingPlatform(FakePlatform):
    """A platform on which our messages can be edited."""

    async def edit(self, to: SessionSource, message_id: str, text: str) -> None:  # noqa: ARG002  the id is enough here
        """Replace a message on the screen."""
        await self._change_screen(message_id, text)


class DeletingPlatform(EditingPlatform):
    """A platform on which our messages can also be deleted."""

    async def delete(self, to: SessionSource, message_id: str) -> None:  # noqa: ARG002  the id is enough here
        """Delete a message; one that is gone stays so."""
        with self._faulty() as done:
            if done:
                self._take_away(message_id)
                self._keep("deleted", id=message_id)


class FilePlatform(FakePlatform):
    """A platform with files: those that people attach can be fetched, and ours appear on the screen.

    `contents` has the bytes by reference; what is not there is gone. The next fetches meet `fetch_faults`.
    """

    def __init__(self, *, contents: Mapping[str, bytes] | None = None, **given: Any) -> None:
        super().__init__(**given)
        self.contents = dict(contents or {})
        self.fetch_faults: list[Exception] = []
        self.fetches: list[str] = []
        self.slow = asyncio.Event()  # a file named slow waits for it
        self.files: dict[str, bytes] = {}  # what was sent, by the id on the screen

    async def fetch(self, attachment: Attachment) -> AsyncIterator[bytes]:
        """Yield the bytes, in two chunks."""
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
        """Put a file on the screen: its name and its caption are seen."""
        content = await asyncio.to_thread(file.path.read_bytes)
        seen = f"<{file.name}>"
        number = await self.send(to, f"{seen} {file.text}" if file.text else seen, key)
        self.files[number] = content
        return number


class CardPlatform(FakePlatform):
    """A platform whose streaming messages are cards. One that was not closed is seen as such on the screen."""

    async def open(self, to: SessionSource, text: str, key: str) -> str:
        """Open a card, unless its key is there already and the platform knows keys."""
        return await self.send(to, text + OPEN_CARD, key)

    async def update(self, to: SessionSource, card_id: str, text: str) -> None:
        """Replace the text of an open card."""
        await self._change(to, card_id, text + OPEN_CARD)

    async def close(self, to: SessionSource, card_id: str, text: str) -> None:
        """Close a card."""
        await self._change(to, card_id, text)

    async def _change(self, _to: SessionSource, card_id: str, text: str) -> None:
        now = next(each.text for each in self.screen if each.id == card_id)
        if not now.endswith(OPEN_CARD) and now != text:
            raise Refused("the card is closed")
        await self._change_screen(card_id, text)


class RemotePlatform(DeletingPlatform):
    """A platform on the other side of a network: its adapter reports when it was last answered. People there see our typing
    indicator, and our reactions to messages.
    """

    def __init__(self, *, clock: Clock | None = None, **given: Any) -> None:
        super().__init__(**given)
        self.contact = Contact()
        self.typing_in: list[str] = []  # the chats in which the typing indicator was shown
        self.marks: dict[str, str] = {}  # by the message
        self._clock = clock or SystemClock()

    async def inbound(self, after: str | None = None) -> AsyncGenerator[Inbound, None]:
        """Yield messages for ever."""
        async for each in super().inbound(after):
            self.contact = self.contact.answered(self._clock.now())
            yield each

    async def typing(self, to: SessionSource) -> None:
        """Show the typing indicator."""
        self.typing_in.append(to.chat_id or "")
        self._notify()

    async def react(self, to: SessionSource, message_id: str, mark: str) -> None:  # noqa: ARG002  the id is enough here
        """Put a reaction on a message, in place of an earlier one."""
        if any(each.source.message_id == message_id for each in self._said):
            self.marks = {**self.marks, message_id: mark}
            self._notify()
