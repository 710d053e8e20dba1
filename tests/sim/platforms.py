"""Platforms with a screen, one of each class. A request arrives after a while, whatever has become of its sender.

`keyed` posts webhooks and knows our keys. `readable` is polled from a cursor with a credential, can be read back, edited and cleared,
and has buttons. `cards` knows our keys and streams into cards. `unsure` can only be edited: it knows no keys and shows no history.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from msgspec.structs import replace

from everturn.errors import OutcomeUnknown, PlatformError, Refused, TryLater
from everturn.model import Inbound, ReadTo, SessionSource
from everturn.outbox.rules.delivery import Surety
from everturn.platform.interface import Choice, TextLimits
from tests.sim.loop import OWNER
from tests.sim.network import Network
from tests.sim.plan import CARDS, KEYED, READABLE, UNSURE

T = TypeVar("T")
OPEN_CARD = " [...]"
FAULTS: tuple[tuple[float, str], ...] = (
    (0.01, "lost"),
    (0.02, "taken"),
    (0.045, "later"),
    (0.048, "refused"),
    (0.053, "given up"),
)
LOOKS = "nothing"  # what a look at the history changes
GIVEN_UP_S = 1.2  # so much later than a sender that waits no longer its request arrives at most


@dataclass
class Shown:
    """A message of ours on the screen of a chat."""

    chat: str
    text: str
    key: str
    at: float
    card: bool = False
    changed_at: float = 0.0


@dataclass(frozen=True)
class Refusal:
    """A request that was refused: the text that it was to show, and the message of ours that it was to change, or its key."""

    chat: str
    text: str
    shown: str = ""
    key: str = ""


class SimPlatform:
    """A platform whose messages stay as they were sent."""

    account = ""
    limits = TextLimits(text=300)
    surety = Surety.KEYED
    name = KEYED

    def __init__(self, network: Network, asked: Callable[[str, str], None]) -> None:
        self.network = network
        self._asked = asked  # called with the chat and the text of an approval request that is shown
        self.screen: dict[str, Shown] = {}  # by id, in the order of arrival
        self.by_key: dict[str, str] = {}
        self._shown = 0
        self.refused: list[Refusal] = []

    async def send(self, to: SessionSource, text: str, key: str) -> str:
        """Show a message; a key that is known shows nothing again."""
        return await self._call(to, "send", text, lambda: self._show(to, text, key), key=key)

    async def _call(
        self, to: SessionSource, what: str, text: str, work: Callable[[], T], changes: str = "", key: str = ""
    ) -> T:
        """One request, that shows a text anew or changes a message. Neither its arrival nor its answer waits for its sender."""
        network, chat = self.network, to.chat_id or ""
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        sender = OWNER.get()
        if sender is not None and sender.dead:
            return await done  # for ever
        fault = network.fault(FAULTS)

        def arrive() -> None:
            result = self._received(fault, work)
            if isinstance(result, Refused):
                self.refused.append(Refusal(chat, text, changes, key))
            network.trace(self.name, chat, what, changes or key, repr(text), "->", result)
            network.later(settle, done, result)

        if fault == "given up" and not changes:  # its sender waits no longer, and then it arrives
            network.later(settle, done, OutcomeUnknown("no answer in time"))
            network.after(GIVEN_UP_S, arrive)
        else:
            network.later(arrive)
        return await done

    def _received(self, fault: str, work: Callable[[], T]) -> T | PlatformError:
        """What the platform answers, or the network in its place."""
        failed = error_of(fault)
        result = refusing(work) if failed is None or fault == "taken" else failed
        return result if failed is None else failed

    def _show(self, to: SessionSource, text: str, key: str, *, card: bool = False) -> str:
        if self.surety is not Surety.KEYED or key not in self.by_key:
            self._shown += 1
            number = f"{self.name}-{self._shown}"
            self.by_key[key] = number
            self.screen[number] = Shown(to.chat_id or "", text, key, self.network.now(), card)
            if "/approve" in text:
                self._asked(to.chat_id or "", text)
        return self.by_key[key]


class EditablePlatform(SimPlatform):
    """Messages can be edited. What was deleted is not there any more."""

    name = UNSURE
    surety = Surety.NEITHER

    async def edit(self, to: SessionSource, message_id: str, text: str) -> None:
        """Replace the text of a message."""
        await self._call(to, "edit", text, lambda: self._replace(message_id, text), message_id)

    def _replace(self, message_id: str, text: str) -> None:
        if message_id not in self.screen:
            raise Refused("the message is gone")
        shown = self.screen[message_id]
        shown.text, shown.changed_at = text, self.network.now()


class ReadablePlatform(EditablePlatform):
    """It is polled with a credential, by one reader at a time, from the place that the reader has committed."""

    name = READABLE
    surety = Surety.READ_BACK
    credential = hashlib.sha256(b"the secret of the readable platform").hexdigest()

    def __init__(self, network: Network, asked: Callable[[str, str], None]) -> None:
        super().__init__(network, asked)
        self.updates: list[Inbound] = []
        self.acknowledged = 0  # how many of them were: the place from which somebody read on
        self._more = asyncio.Event()

    def post(self, inbound: Inbound) -> None:
        """Somebody wrote."""
        self.updates.append(replace(inbound, cursor=str(len(self.updates) + 1)))
        self._more.set()

    async def inbound(self, after: str | None) -> AsyncIterator[Inbound | ReadTo]:
        """Poll for ever."""
        place = int(after or 0)
        while True:
            await self.network.trip(FAULTS[:1])
            self.acknowledged = max(self.acknowledged, place)
            page = self.updates[place : place + 5]
            if not page:
                self._more.clear()
                await self._more.wait()
            for each in page:
                yield each
            place += len(page)

    async def find(self, to: SessionSource, key: str, text: str) -> str | None:
        """Look into the history."""
        return await self._call(to, "find", text, lambda: self._found(key), LOOKS, key)

    def _found(self, key: str) -> str | None:
        number = self.by_key.get(key)
        return number if number in self.screen else None

    async def delete(self, to: SessionSource, message_id: str) -> None:
        """Take a message away."""
        await self._call(to, "delete", "", lambda: self.screen.pop(message_id, None), message_id)

    async def ask(self, to: SessionSource, text: str, choices: Sequence[Choice], key: str) -> str:
        """Show a message with buttons."""
        commands = " ".join(each.command for each in choices)
        return await self._call(to, "ask", text, lambda: self._show(to, f"{text} {commands}", key), key=key)


class CardsPlatform(SimPlatform):
    """It streams into cards, which stay open until they are closed."""

    name = CARDS

    async def open(self, to: SessionSource, text: str, key: str) -> str:
        """Open a card."""
        return await self._call(to, "open", text, lambda: self._show(to, text, key, card=True), key=key)

    async def update(self, to: SessionSource, card_id: str, text: str) -> None:
        """Replace the text of an open card."""
        await self._call(to, "update", text, lambda: self._change(card_id, text, closes=False), card_id)

    async def close(self, to: SessionSource, card_id: str, text: str) -> None:
        """Close a card with its final text."""
        await self._call(to, "close", text, lambda: self._change(card_id, text, closes=True), card_id)

    def _change(self, card_id: str, text: str, *, closes: bool) -> None:
        shown = self.screen[card_id]
        if not shown.card and (text != shown.text or not closes):
            raise Refused("the card is closed")
        shown.text, shown.card, shown.changed_at = text, not closes, self.network.now()


def error_of(fault: str) -> PlatformError | None:
    """What the platform, or the way to it, raises."""
    match fault:
        case "lost" | "taken":
            return OutcomeUnknown(f"no answer ({fault})")
        case "later":
            return TryLater("slow down", 0.5)
        case "refused":
            return Refused("not here")
    return None


def refusing(work: Callable[[], T]) -> T | PlatformError:
    """What the platform answers."""
    try:
        return work()
    except PlatformError as error:
        return error


Sending = SimPlatform | EditablePlatform | ReadablePlatform | CardsPlatform
KINDS: tuple[type[Any], ...] = (SimPlatform, ReadablePlatform, CardsPlatform, EditablePlatform)


def settle(done: asyncio.Future[T], result: T | PlatformError) -> None:
    """The answer arrives, if somebody still waits for it."""
    if done.done():
        return
    if isinstance(result, PlatformError):
        done.set_exception(result)
    else:
        done.set_result(result)
