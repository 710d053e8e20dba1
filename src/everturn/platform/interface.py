"""The interface of a chat platform's adapter. The core is narrow; every further ability is a protocol of its own, which
an adapter may implement. A platform without CanSend gets its replies as events (api, web).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol, runtime_checkable

from everturn.model import Attachment, Inbound, ReadTo, SessionSource
from everturn.outbox.rules.delivery import Surety
from everturn.platform.rules import RECENT_S


@dataclass(frozen=True, slots=True)
class TextLimits:
    """The longest text, measured in the platform's own unit, and how long a reply stays of use."""

    text: int = 4000
    unit: Callable[[str], int] = len
    valid_s: float | None = None
    caption: int | None = None  # the longest caption of a file; None: as long as a text


class Platform(Protocol):
    """A chat platform, as one account of ours sees it."""

    @property
    def name(self) -> str:
        """The platform's name in settings and session keys: telegram, matrix, api, ..."""
        ...

    @property
    def account(self) -> str:
        """The id of our account there; empty where there is only one."""
        ...


@runtime_checkable
class HasChangingMembers(Protocol):
    """A platform whose direct chats are rooms: people join and leave, and the chat stays the same."""

    @property
    def direct_members_change(self) -> bool:
        """Whether the members of a direct chat can change. If so, the person is part of the session key, so that nobody
        continues the conversation of somebody who left.
        """
        ...


@runtime_checkable
class CanPull(Protocol):
    """A platform that the gateway reads: the adapter fetches messages."""

    def inbound(self, after: str | None) -> AsyncIterator[Inbound | ReadTo]:
        """Yield the messages after the committed cursor, for ever. When the gateway asks for the next one, the last one is
        committed, and the adapter may acknowledge it to the platform. ReadTo moves the cursor where no message was for us:
        yield it now and then, and before the first message ever.

        A failed read raises PlatformError. An adapter does not retry: the gateway logs the error, shows it in the status,
        waits (longer each time, and at least TryLater's delay) and calls `inbound` again with the committed cursor.
        """
        ...


@runtime_checkable
class TakesWebhooks(Platform, Protocol):
    """A platform that posts to the webhook `/hooks/NAME/ACCOUNT`, again until the 2xx that follows the commit."""

    def admits(self, headers: Mapping[bytes, bytes]) -> bool:
        """Whether a request with these headers comes from the platform, decided in constant time. All others get a 404."""
        ...

    async def read_webhook(self, body: bytes) -> Sequence[Inbound]:
        """Read a request's body; returns its messages for us, and earlier ones that became ours by it (parts of an album).
        Raises PlatformError when the platform shall post it again later.
        """
        ...

    async def acknowledge(self, inbound: Inbound) -> None:
        """Called when a message is committed; may acknowledge it to the sender."""
        ...


class Pulled(Platform, CanPull, Protocol):
    """A platform that the gateway reads."""


@runtime_checkable
class HasCredential(Protocol):
    """A platform that is read with a secret, which only one reader may use at a time."""

    @property
    def credential(self) -> str:
        """The SHA-256 of the secret as hex, never the secret: two gateways with the same one find out by it."""
        ...


@runtime_checkable
class CanSend(Protocol):
    """A platform that takes replies. The adapter turns library errors into TryLater, Refused or OutcomeUnknown."""

    @property
    def surety(self) -> Surety:
        """What can be found out about a send whose answer was lost: KEYED, READ_BACK or NEITHER."""
        ...

    @property
    def limits(self) -> TextLimits:
        """The limits of one message."""
        ...

    async def send(self, to: SessionSource, text: str, key: str) -> str:
        """Send one message under a key that is the same for every repetition; returns the platform's id of it.

        `to.message_id` is the message to reply to, where the reply should name it and the platform can. If it is gone, send without.
        Raises TryLater (nothing was sent), Refused (it never will be) or OutcomeUnknown (it may have been sent).
        """
        ...


@runtime_checkable
class CanEdit(Protocol):
    """A platform on which our messages can be edited."""

    async def edit(self, to: SessionSource, message_id: str, text: str) -> None:
        """Replace the text of a message; the same text again succeeds. Errors as for `send`."""
        ...


@runtime_checkable
class CanDelete(Protocol):
    """A platform on which our messages can be deleted."""

    async def delete(self, to: SessionSource, message_id: str) -> None:
        """Delete a message; one that is gone succeeds. Raises Refused where it has to stay; else as for `send`."""
        ...


@runtime_checkable
class CanReadBack(Protocol):
    """A platform on which the adapter can look up whether a message was sent."""

    async def find(self, to: SessionSource, key: str, text: str) -> str | None:
        """The platform's id of the message that was sent under this key; None when there is none."""
        ...


@runtime_checkable
class CanStream(Protocol):
    """A platform that streams into cards: opened with the first text, updated while it grows, closed once."""

    async def open(self, to: SessionSource, text: str, key: str) -> str:
        """Open a card under a key that is the same for every repetition; returns its id. Errors as for `send`."""
        ...

    async def update(self, to: SessionSource, card_id: str, text: str) -> None:
        """Replace the text of an open card."""
        ...

    async def close(self, to: SessionSource, card_id: str, text: str) -> None:
        """Set a card's final text and close it; closing it again with the same text succeeds."""
        ...


@runtime_checkable
class CanType(Protocol):
    """A platform with a typing indicator."""

    async def typing(self, to: SessionSource) -> None:
        """Show the typing indicator for a few seconds. The gateway never retries it."""
        ...


@runtime_checkable
class CanReact(Protocol):
    """A platform with emoji reactions to messages."""

    async def react(self, to: SessionSource, message_id: str, mark: str) -> None:
        """Put our emoji on a message; an empty mark removes it. The gateway never retries it."""
        ...


@dataclass(frozen=True, slots=True)
class Choice:
    """A button: its label, and the command that pressing it sends."""

    label: str
    command: str


@runtime_checkable
class CanAsk(Protocol):
    """A platform with buttons. A press arrives as the button's command, sent by the person who pressed it.

    Approval requests use it: what a person sees must be what runs. So show the text exactly as it is and interpret no
    markup in it; lines that are indented by four spaces are the tool call, best in monospace.
    """

    async def ask(self, to: SessionSource, text: str, choices: Sequence[Choice], key: str) -> str:
        """Send a message with buttons; otherwise like `send`."""
        ...


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A file to send."""

    path: Path
    name: str
    mime: str
    text: str = ""  # the caption


@runtime_checkable
class CanSendFiles(Protocol):
    """A platform that takes files."""

    async def send_file(self, to: SessionSource, file: Outgoing, key: str) -> str:
        """Send one file; otherwise like `send`."""
        ...


@runtime_checkable
class CanFetch(Protocol):
    """A platform from which attachments can be downloaded."""

    def fetch(self, attachment: Attachment) -> AsyncIterator[bytes]:
        """Yield an attachment in chunks. Raises Refused when it is gone or too large, TryLater when it may work later."""
        ...


@dataclass(frozen=True, slots=True)
class Channel:
    """A chat for the chat directory."""

    chat_id: str
    name: str
    chat_type: str
    thread_id: str | None = None
    parent: str | None = None  # the name of the community or forum it belongs to


@runtime_checkable
class CanListChannels(Protocol):
    """A platform that can list the chats of our account."""

    async def channels(self) -> list[Channel]:
        """Every chat that can be named."""
        ...


@runtime_checkable
class CanNoticeChannels(Protocol):
    """An adapter that notices when our account joins or leaves a chat."""

    @property
    def channel_changes(self) -> int:
        """How often that happened in this process: when the number grows, the gateway lists the channels again."""
        ...


@runtime_checkable
class CanClose(Protocol):
    """An adapter that holds connections."""

    async def close_connections(self) -> None:
        """Close them, within a second."""
        ...


@dataclass(frozen=True, slots=True)
class Contact:
    """The state of the connection: connected means proven to receive."""

    received_at: float | None = None  # when it last answered a read, by our clock; None: not yet in this process
    trouble: str | None = None  # why it does not receive, as a text for people, without secrets
    hears_since: float | None = None  # since when it is read without a gap: what was sent before that is backlog
    answers: int = field(default=0, compare=False)  # how often it answered; a failure before the newest answer is over

    def answered(self, now: float, trouble: str | None = None) -> Contact:
        """The state after an answer to a read, which comes every minute at least while we receive."""
        unbroken = self.received_at is not None and now - self.received_at <= RECENT_S
        return Contact(now, trouble, self.hears_since if unbroken else now, self.answers + 1)

    def checked(self, trouble: str | None = None) -> Contact:
        """The state after an answer that does not prove that we receive: `trouble` is what the platform reports."""
        return replace(self, trouble=trouble, answers=self.answers + 1)


@runtime_checkable
class CanTellContact(Protocol):
    """An adapter that reports whether it receives."""

    @property
    def contact(self) -> Contact:
        """The state of the connection now."""
        ...
