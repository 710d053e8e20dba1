"""The shared value types and states. No I/O, no clock, no decisions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

import msgspec

Json = dict[str, object]


class SessionSource(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Where one message came from. Unknown stored fields are ignored, so old and new rows both load."""

    platform: str
    account: str = ""
    chat_id: str | None = None
    chat_type: str = "dm"
    thread_id: str | None = None
    user_id: str | None = None
    user_id_alt: str | None = None
    scope_id: str | None = None
    chat_name: str | None = None
    user_name: str | None = None
    chat_topic: str | None = None
    chat_id_alt: str | None = None
    parent_chat_id: str | None = None
    message_id: str | None = None
    prospective_thread_id: str | None = None


@dataclass(frozen=True, slots=True)
class Active:
    """The normal state of a session: the next message continues it."""


@dataclass(frozen=True, slots=True)
class ResumePending:
    """A turn was cut off; the session continues with its id and a note."""

    reason: str = "restart_timeout"
    marked_at: float | None = None


@dataclass(frozen=True, slots=True)
class Suspended:
    """The session is suspended: the next message starts a new one, `/resume` returns to this one."""

    reason: str = "stuck"
    marked_at: float | None = None


State = Active | ResumePending | Suspended
ACTIVE = Active()


class SessionEntry(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The session that a session key points at now, and its state."""

    key: str
    session_id: str | None
    state: State = ACTIVE
    unclean_ends: int = 0
    tail: bool = False  # the transcript may end with a tool result
    tail_key: str | None = None  # the tail that was acknowledged
    tail_at: float | None = None
    previous_session_id: str | None = None
    auto_reset_reason: str | None = None
    reset_had_activity: bool = False
    expired: str | None = None  # ended by the expiry loop for this reason; the next message starts a new session
    origin: SessionSource | None = None
    created_at: float = 0.0
    active_at: float = 0.0
    fence: int = 0
    holder: int | None = None
    turn: int | None = None
    seq: int = 0
    event_seq: int = 0
    turns: int = 0
    waiting: int = 0  # accepted and not begun, commands included
    model: str | None = None  # what /model chose for its session
    rolled_back: tuple[int, ...] = ()  # turns taken back since the last answer, whose effects did happen


class InboxState(StrEnum):
    """The states of an accepted message."""

    QUEUED = "queued"
    CLAIMED = "claimed"
    DONE = "done"
    WITHDRAWN = "withdrawn"
    EXPIRED = "expired"
    DEAD = "dead"


class TurnState(StrEnum):
    """The states of a turn."""

    RUNNING = "running"
    AWAITING_APPROVAL = "awaiting_approval"
    INTERRUPTED = "interrupted"
    ANSWERED = "answered"
    FAILED = "failed"
    STOPPED = "stopped"
    ROLLED_BACK = "rolled_back"
    SUSPENDED = "suspended"


class OutboxState(StrEnum):
    """The states of a reply."""

    OPEN = "open"
    PENDING = "pending"
    SENDING = "sending"
    SENT = "sent"
    UNKNOWN = "unknown"
    DEAD = "dead"


INBOX_MOVES: dict[InboxState, frozenset[InboxState]] = {
    InboxState.QUEUED: frozenset(
        {InboxState.CLAIMED, InboxState.DONE, InboxState.WITHDRAWN, InboxState.EXPIRED, InboxState.DEAD}
    ),
    InboxState.CLAIMED: frozenset({InboxState.DONE, InboxState.WITHDRAWN, InboxState.EXPIRED, InboxState.DEAD}),
    InboxState.DONE: frozenset(),
    InboxState.WITHDRAWN: frozenset(),
    InboxState.EXPIRED: frozenset(),
    InboxState.DEAD: frozenset(),
}
TURN_MOVES: dict[TurnState, frozenset[TurnState]] = {
    TurnState.RUNNING: frozenset(set(TurnState) - {TurnState.RUNNING}),
    TurnState.AWAITING_APPROVAL: frozenset(
        {TurnState.RUNNING, TurnState.STOPPED, TurnState.FAILED, TurnState.SUSPENDED, TurnState.ROLLED_BACK}
    ),
    TurnState.INTERRUPTED: frozenset(
        {TurnState.RUNNING, TurnState.STOPPED, TurnState.FAILED, TurnState.SUSPENDED, TurnState.ROLLED_BACK}
    ),
    TurnState.ANSWERED: frozenset(),
    TurnState.FAILED: frozenset(),
    TurnState.STOPPED: frozenset(),
    TurnState.ROLLED_BACK: frozenset(),
    TurnState.SUSPENDED: frozenset(),
}
OUTBOX_MOVES: dict[OutboxState, frozenset[OutboxState]] = {
    OutboxState.OPEN: frozenset({OutboxState.PENDING, OutboxState.SENDING, OutboxState.UNKNOWN, OutboxState.DEAD}),
    # A streaming message that an interruption left continues.
    OutboxState.PENDING: frozenset({OutboxState.OPEN, OutboxState.SENDING, OutboxState.SENT, OutboxState.DEAD}),
    OutboxState.SENDING: frozenset({OutboxState.PENDING, OutboxState.SENT, OutboxState.UNKNOWN, OutboxState.DEAD}),
    # A progress notice or a streaming message that is edited, or continues.
    OutboxState.SENT: frozenset({OutboxState.PENDING, OutboxState.OPEN, OutboxState.SENDING}),
    OutboxState.UNKNOWN: frozenset({OutboxState.PENDING, OutboxState.SENT, OutboxState.DEAD}),
    OutboxState.DEAD: frozenset({OutboxState.PENDING}),
}

S = TypeVar("S", InboxState, TurnState, OutboxState)


def sources_of(moves: dict[S, frozenset[S]], after: S) -> tuple[S, ...]:
    """The states from which the table allows the move to this one."""
    return tuple(before for before, afters in moves.items() if after in afters)


def may_become(moves: dict[S, frozenset[S]], after: S, *, or_is: bool = False) -> str:
    """The SQL condition of a write that sets this state: the row has a state that the table lets it leave for it. `or_is`: or
    has this state already, and keeps it.
    """
    return f"state IN ({_quoted([*sources_of(moves, after), *([after] if or_is else [])])})"


def has_not_ended(moves: dict[S, frozenset[S]]) -> str:
    """The SQL condition of a write that ends a row whatever its state is, also one that this version does not know."""
    return f"state NOT IN ({_quoted([state for state, afters in moves.items() if not afters])})"


def _quoted(states: Sequence[str]) -> str:
    return ",".join(f"'{state}'" for state in states)


class Effect(StrEnum):
    """The effect class that a tool declares: may it run again when its outcome is unknown?"""

    PURE = "pure"
    IDEMPOTENT = "idempotent"
    ONCE = "once"


class ToolCall(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A tool call of a model response."""

    id: str
    name: str
    arguments: str = ""
    effect: Effect = Effect.ONCE
    ask: str | None = None  # the text of its approval request; None: it needs no approval


class Usage(msgspec.Struct, frozen=True, omit_defaults=True):
    """The usage of a model call, or of several together; `cost` only where the price is known."""

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0  # of the input, what the provider had in its cache
    cost: float | None = None


class RowOutcome(StrEnum):
    """The outcome of a transcript row that did not end normally."""

    STOPPED = "stopped"  # an answer that somebody stopped: its text is what had been streamed by then
    FAILED = "failed"  # the result of a tool call that failed
    SKIPPED = "skipped"  # what stands for the result of a tool call that was not run


class Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A transcript row: what the user, the agent or a tool said."""

    role: str
    content: str
    seq: int = 0
    calls: tuple[ToolCall, ...] = ()
    call_id: str | None = None
    unknown: bool = False  # a tool result whose outcome a crash hid
    extra: str | None = None  # JSON for the agent that wrote it only: the provider's own parts of a response
    author: str | None = None  # who said it, where several people speak
    turn: int | None = None
    at: float = 0.0
    outcome: str | None = None  # RowOutcome; None: the row is whole


class Attachment(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A file that came with a message, by reference: the bytes are fetched once, after the message is saved."""

    kind: str  # image, audio, voice, video, document or sticker
    ref: str  # what its platform calls it; only the adapter understands it
    name: str = ""
    mime: str = ""  # as its sender said; what it is, is found in its bytes
    size: int = 0  # as its sender said; 0: not known
    text: str = ""  # what stands for it in text: a sticker's emoji
    seconds: int = 0  # how long it plays; 0: not known
    unique: str = ""  # what its platform calls it for everybody and for ever: a sticker's
    family: str = ""  # the set that a sticker belongs to
    moving: bool = False  # a sticker that is no still picture


class StoredFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A file in the home's folder of files."""

    id: str
    name: str
    type: str = ""
    size: int = 0


class SettledFiles(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The fetched files of one message: its text with them, and where each is; None for one that is missing."""

    text: str
    files: tuple[StoredFile | None, ...] = ()


class Heard(StrEnum):
    """The kind of an inbound event of a platform."""

    SAID = "said"
    EDITED = "edited"  # an earlier message has another text now
    DELETED = "deleted"  # an earlier message was deleted
    MOVED = "moved"  # the chat has another number now


class ClientTool(msgspec.Struct, frozen=True, omit_defaults=True):
    """A function of the requesting program: the agent may call it, and the program runs it."""

    name: str
    description: str = ""
    parameters: Json = {}


class RequestExtras(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The request extras of a program's message beside its text; stored with the message until it is deleted."""

    rows: tuple[
        Message, ...
    ] = ()  # what the transcript has before its text: a history, or results of the program's functions
    instructions: str = ""  # for the model, in its turn only
    tools: tuple[ClientTool, ...] = ()
    about: Json = {}  # what the endpoint wants to know again


NO_EXTRAS = RequestExtras()


class HistoryPosition(msgspec.Struct, frozen=True):
    """Up to where an agent knows a transcript of which it keeps what it made of the rows."""

    session_id: str
    seq: int = 0  # the last row that it knows
    revision: int = 0  # of the transcript: it rises when rows are hidden or changed, and all of it has to be read again


class TranscriptPart(msgspec.Struct, frozen=True, kw_only=True):
    """The rows of a transcript behind a position."""

    rows: list[Message]
    position: HistoryPosition  # of the last row
    whole: bool  # these are all rows: the position that was given is of another session, or of an older revision
    compaction_wanted: bool = False  # the user asked for a compaction that was not made yet


class TurnOpening(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent that asks a model wants to know before its first request, in one read."""

    frozen: str | None  # the session's frozen prompt; None: there is none yet
    extras: RequestExtras
    history: TranscriptPart


class Inbound(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A message as an adapter received it. `id` is unique within the platform account.

    One with extras is never a command, and always a turn of its own.
    """

    id: str
    source: SessionSource
    text: str
    cursor: str | None = None  # where the platform is read on after this message, committed with it
    agent: str | None = None  # the agent, where the sender may choose; None: the one that the routes name
    extras: RequestExtras | None = None
    fingerprint: str | None = None  # of the whole request: the same id with another one is a conflict
    what: Heard = Heard.SAID
    of: str | None = None  # the `id` of the message that was edited or deleted; the number that a chat had
    edition: int | None = None  # of what an edit, or a message with its edits, says: a lower one does not replace it
    attachments: tuple[Attachment, ...] = ()
    said_at: float | None = None  # when its author sent it, by the platform's clock
    album: str | None = None  # messages of one album come one by one, and begin one turn
    only_with_album: bool = False  # it is for us if another message of its album is, and else forgotten


class ReadTo(msgspec.Struct, frozen=True):
    """A platform was read up to this cursor without a message for us: only the cursor is committed."""

    cursor: str


class Event(msgspec.Struct, frozen=True, gc=False):
    """A numbered fact of one key that a watcher may have missed."""

    seq: int
    kind: str
    data: str  # JSON
    at: float


class Delta(msgspec.Struct, frozen=True):
    """The answer's text so far, not durable: `text` replaces what was shown for this turn."""

    turn: str
    text: str


class Hint(msgspec.Struct, frozen=True):
    """A change that watchers get at once and that is stored nowhere: the rows say what it was."""

    kind: str
    data: Json


class Bubble(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The stored state of a streaming message; the ids of its parts are in `Reply.sent_parts`."""

    name: str  # what its send keys begin with
    opening: int = 0  # which opening wrote this: an operation that runs twice knows its own
    shown: tuple[str, ...] = ()  # of each part, what it shows (by hash); empty: not known
    said: str = ""  # the text as of the last commit
    sending: int | None = None  # the part whose delivery is unknown, as is its id
    repeats: bool = False  # the next part may be sent under its key already, with another text
    replaces: tuple[int, ...] = ()  # parts that were sent again, and say so
    hold: str | None = None  # what the owner's policy says of a part whose delivery is unknown: nothing more is sent
    unsettled: int = 0  # the opening of a writer that was ended by somebody else: its last edit may be in flight


class Reply(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A row of the outbox as the sender needs it."""

    id: int
    key: str
    kind: str
    source: SessionSource
    text: str
    claim: int  # the number under which it is ours to send: every write about it names it
    attempts: int
    sent_parts: tuple[str, ...]  # the platform's ids of the parts that were sent
    marked: bool  # it may be a repetition, and says so
    look: bool = False  # ask the platform whether it was sent before sending it again
    valid_until: float | None = None
    failures: int = 0  # of the attempts, those that failed: not waits that were ordered, nor crashes of ours
    bubble: Bubble | None = None  # it is a streaming message
    file: StoredFile | None = None  # it is a file; the text stands beneath it
    turn: int | None = None  # the turn, or the reply, that it is about
