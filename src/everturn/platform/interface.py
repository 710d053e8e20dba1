"""What the gateway asks of a chat platform. The core is narrow; every other ability is a protocol of its own that an
adapter may have. A platform that cannot send has its replies delivered as events (api, web).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol, runtime_checkable

from everturn.decide.contact import RECENT_S
from everturn.decide.delivery import Surety
from everturn.model import Attachment, Inbound, ReadTo, SessionSource


@dataclass(frozen=True, slots=True)
class Limits:
    """The longest text, measured in the platform's own unit, and how long a reply stays of use."""

    text: int = 4000
    unit: Callable[[str], int] = len
    valid_s: float | None = None
    caption: int | None = None  # the longest words beneath a file; None: as long as a text


class Platform(Protocol):
    """Where people write."""

    @property
    def name(self) -> str:
        """telegram, matrix, api, ..."""
        ...

    @property
    def account(self) -> str:
        """Which of our accounts there; empty for the only one."""
        ...


@runtime_checkable
class HasChangingMembers(Protocol):
    """Its direct chats are rooms: people come in and leave, and the chat stays the same."""

    @property
    def direct_members_change(self) -> bool:
        """Whether the members of a direct chat can change. The person is then part of the session key, so that nobody
        continues the conversation of somebody who left.
        """
        ...


@runtime_checkable
class CanPull(Protocol):
    """It is read by us."""

    def inbound(self, after: str | None) -> AsyncIterator[Inbound | ReadTo]:
        """The messages that arrive after the committed cursor. Asking for the next one acknowledges the last, which is
        committed by then. ReadTo moves the cursor where nothing was said to us: now and then, and before the first message
        ever.

        A read that fails raises PlatformError. An adapter does not retry: the gateway logs the error, shows it in the status,
        waits (longer each time, and at least TryLater's delay) and calls `inbound` again with the committed cursor.
        """
        ...


@runtime_checkable
class CanBeBrought(Platform, Protocol):
    """It comes to us, at `/hooks/NAME/ACCOUNT`. A 2xx is answered after the commit, so that it knows what to bring again."""

    def admits(self, headers: Mapping[bytes, bytes]) -> bool:
        """Whether a request with these headers comes from it, found out in constant time. Everybody else gets a 404."""
        ...

    async def hear(self, body: bytes) -> Sequence[Inbound]:
        """What was said to us, if anything was; with it, what it makes ours of what was brought before. A PlatformError: it
        shall be brought again later.
        """
        ...

    async def took(self, inbound: Inbound) -> None:
        """It is committed."""
        ...


class Pulled(Platform, CanPull, Protocol):
    """A platform that is read by us."""


@runtime_checkable
class HasCredential(Protocol):
    """It is read with a secret that only one reader may use."""

    @property
    def credential(self) -> str:
        """The secret's SHA-256, as hex: by it, others that use the same one are recognised. Never the secret."""
        ...


@runtime_checkable
class CanSend(Protocol):
    """Replies are sent to it. Library errors become TryLater, Refused or OutcomeUnknown inside the adapter."""

    @property
    def surety(self) -> Surety:
        """What it lets us know about a send whose answer was lost."""
        ...

    @property
    def limits(self) -> Limits:
        """What one message may hold."""
        ...

    async def send(self, to: SessionSource, text: str, key: str) -> str:
        """Send one part under a key that is the same for every repetition; returns the platform's id of it.

        `to.message_id` is the message that is answered, where the answer is to name it and the platform can. If that one
        is gone, the answer is sent without it.
        """
        ...


@runtime_checkable
class CanEdit(Protocol):
    """What was sent to it can be replaced."""

    async def edit(self, to: SessionSource, message_id: str, text: str) -> None:
        """Replace a part that was sent; the same text again does no harm. Errors are those of `send`."""
        ...


@runtime_checkable
class CanDelete(Protocol):
    """What was sent to it can be taken away."""

    async def delete(self, to: SessionSource, message_id: str) -> None:
        """Take a part away; one that is gone does no harm. Refused where it has to stay. Errors are those of `send`."""
        ...


@runtime_checkable
class CanReadBack(Protocol):
    """It can be asked whether a part is out."""

    async def find(self, to: SessionSource, key: str, text: str) -> str | None:
        """The platform's id of the part sent under this key, None when it is not there."""
        ...


@runtime_checkable
class CanStream(Protocol):
    """Its live reply is a card that must be closed: opened with the first words, replaced while it grows, closed once."""

    async def open(self, to: SessionSource, text: str, key: str) -> str:
        """Show a card under a key that is the same for every repetition; returns its id. Errors are those of `send`."""
        ...

    async def update(self, to: SessionSource, card_id: str, text: str) -> None:
        """Replace what an open card shows."""
        ...

    async def close(self, to: SessionSource, card_id: str, text: str) -> None:
        """Give a card its last shape and end it; closing a closed card with the same text does no harm."""
        ...


@runtime_checkable
class CanType(Protocol):
    """It can show that we are at work."""

    async def typing(self, to: SessionSource) -> None:
        """Show it for a few seconds. Never worth a retry."""
        ...


@runtime_checkable
class CanReact(Protocol):
    """What a person wrote can be given a mark."""

    async def react(self, to: SessionSource, message_id: str, mark: str) -> None:
        """Put an emoji on a message; empty takes ours away. Never worth a retry."""
        ...


@dataclass(frozen=True, slots=True)
class Choice:
    """A button: what it says, and the command that pressing it sends."""

    label: str
    command: str


@runtime_checkable
class CanAsk(Protocol):
    """A question can have buttons. A press arrives as the command, said by who pressed.

    An approval request is such a question: what a person sees must be what runs. So the text is shown exactly as it is, and no markup
    is read in it; lines that are indented by four spaces are the call, best in monospace.
    """

    async def ask(self, to: SessionSource, text: str, choices: Sequence[Choice], key: str) -> str:
        """Send a question with its buttons, as `send` does."""
        ...


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A file that is sent."""

    path: Path
    name: str
    mime: str
    words: str = ""  # what stands beneath it


@runtime_checkable
class CanSendFiles(Protocol):
    """Files can be sent to it."""

    async def send_file(self, to: SessionSource, file: Outgoing, key: str) -> str:
        """Send one file, as `send` does."""
        ...


@runtime_checkable
class CanFetch(Protocol):
    """What came with a message can be fetched."""

    def fetch(self, attachment: Attachment) -> AsyncIterator[bytes]:
        """The bytes, piece by piece. Refused when they are gone or too many, TryLater when they cannot be had now."""
        ...


@dataclass(frozen=True, slots=True)
class Channel:
    """A place on a platform where people talk."""

    chat_id: str
    name: str
    chat_type: str
    thread_id: str | None = None
    parent: str | None = None  # the name of the community or forum it belongs to


@runtime_checkable
class CanListChannels(Protocol):
    """It knows where we are."""

    async def channels(self) -> list[Channel]:
        """Every place it can name."""
        ...


@runtime_checkable
class CanNoticeChannels(Protocol):
    """It notices that we came into a place, or are out of one."""

    @property
    def channel_changes(self) -> int:
        """How often that happened in this life: when there are more, its channels are listed again."""
        ...


@runtime_checkable
class CanClose(Protocol):
    """It holds connections."""

    async def close_connections(self) -> None:
        """End them, within a second."""
        ...


@dataclass(frozen=True, slots=True)
class Contact:
    """What is known of our connection: connected means proven to receive."""

    received_at: float | None = None  # when it last answered a read, by our clock; None: not yet in this life
    trouble: str | None = None  # why it does not receive, in words, without secrets
    hears_since: float | None = None  # since when it is read without a silence: what was said before that piled up
    answers: int = field(default=0, compare=False)  # how often it answered; a failure before the newest answer is over

    def answered(self, now: float, trouble: str | None = None) -> Contact:
        """As it is after an answer to a read, which comes every minute at least while we hear."""
        unbroken = self.received_at is not None and now - self.received_at <= RECENT_S
        return Contact(now, trouble, self.hears_since if unbroken else now, self.answers + 1)

    def checked(self, trouble: str | None = None) -> Contact:
        """As it is after an answer that does not prove that we receive: the platform knows us, and what it says is wrong."""
        return replace(self, trouble=trouble, answers=self.answers + 1)


@runtime_checkable
class CanTellContact(Protocol):
    """It knows whether it receives."""

    @property
    def contact(self) -> Contact:
        """As of now."""
        ...
