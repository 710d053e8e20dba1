"""What endpoints answer, as types. They say what a program may rely on; more may come with it."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

Json = dict[str, Any]


class Answered(msgspec.Struct, frozen=True):
    """Some answer."""


class Alive(Answered, frozen=True):
    """The process lives."""

    alive: bool


class Ready(Answered, frozen=True):
    """Whether messages are accepted and answered."""

    ready: bool
    reason: str = ""


class Open(Answered, frozen=True):
    """How much is open, by state."""

    inbox: dict[str, int]
    turns: dict[str, int]
    outbox: dict[str, int]


class Reached(Answered, frozen=True):
    """Whether a platform receives: open, reading, connecting, silent or trouble, and since when it does not."""

    name: str
    account: str
    state: str
    trouble: str | None
    since: float | None


class Status(Answered, frozen=True):
    """How the gateway is; `open` is null while the database does not say."""

    state: str
    open: Open | None
    version: str = ""
    pid: int = 0
    url: str = ""
    started_at: float = 0.0
    trouble: str | None = None
    warning: str | None = None
    running_turns: int = 0
    platforms: list[Reached] = []


class ChannelSeen(Answered, frozen=True):
    """A chat, or a thread in one, as it was last seen; names are what others chose."""

    label: str
    address: str
    type: str
    platform: str
    account: str
    chat: str
    thread: str | None
    name: str
    parent: str | None
    aliases: list[str]
    seen_at: float


class Directory(Answered, frozen=True):
    """The chats, the last seen first, and every alias with its address."""

    channels: list[ChannelSeen]
    aliases: dict[str, str]


class Aliased(Answered, frozen=True):
    """A name, and where it leads now."""

    alias: str
    address: str


class Unaliased(Answered, frozen=True):
    """The name that leads nowhere now."""

    unaliased: str


class Session(Answered, frozen=True):
    """What a session key points at."""

    key: str
    session_id: str
    state: str


class Sessions(Answered, frozen=True):
    """In the order of their keys; `next` is the `after` of the following page."""

    sessions: list[Session]
    next: str | None


class Life(Answered, frozen=True):
    """The life of a message."""

    id: str
    platform: str
    key: str
    kind: str
    state: str
    why: str | None
    received_at: float
    ended_at: float | None
    turn: Json | None
    replies: list[Json]


class Lives(Answered, frozen=True):
    """The lives of the messages with an id, one for each chat that used it."""

    messages: list[Life]


class Stopping(Answered, frozen=True):
    """A planned end has begun."""

    stopping: bool
    kind: Literal["stop", "restart"]


class Key(Answered, frozen=True):
    """An access key, without its secret."""

    name: str
    prefix: str
    scopes: list[str]
    made_at: float
    used_at: float | None
    revoked_at: float | None
    made_by: str | None
    maker_revoked: bool


class KeyList(Answered, frozen=True):
    """All keys, those that ended too."""

    keys: list[Key]


class People(Answered, frozen=True):
    """The open requests, and the people who were let in or turned out."""

    requests: list[Json]
    people: list[Json]


class LetIn(Answered, frozen=True):
    """Somebody may speak."""

    let_in: str
    owner: bool
    name: str | msgspec.UnsetType | None = msgspec.UNSET
    platform_known: bool | msgspec.UnsetType = msgspec.UNSET


class TurnedOut(Answered, frozen=True):
    """Somebody may speak no more."""

    revoked: str
    stopped_turns: int
    platform_known: bool


class KeyMade(Answered, frozen=True):
    """The key, shown this once."""

    name: str
    scopes: list[str]
    key: str


class Revoked(Answered, frozen=True):
    """The key's name, what was made with it and ended, too, and what was made with it and is still in force."""

    revoked: str
    also: list[str]
    left: list[str]


class LoginMade(Answered, frozen=True):
    """A login link is ADDRESS/login#CODE."""

    code: str
    expires_at: float
    public_url: str


class Ended(Answered, frozen=True):
    """How many browsers are out."""

    ended: int


class Me(Answered, frozen=True):
    """What the page is told when it opens."""

    name: str
    version: str
    commands: list[Json]
    message_chars: int
    file_bytes: int
    now: float


class Listed(Answered, frozen=True):
    """A conversation in the list; `where` are the words that a search found."""

    chat: str
    key: str
    title: str
    named: bool
    state: str
    waiting: int
    made_at: float
    active_at: float
    where: str = ""


class Listing(Answered, frozen=True):
    """The last used first."""

    conversations: list[Listed]
    now: float


class Rows(Answered, frozen=True):
    """What was added to a transcript; another session means: load it all again."""

    session_id: str | None
    rows: list[Json]


class Earlier(Answered, frozen=True):
    """What was said before, also in the session that was summed up into this one."""

    depth: int
    rows: list[Json]
    earlier: Json | None


class Conversation(Answered, frozen=True):
    """All that is shown of a conversation, and the event to follow from."""

    event: int
    session_id: str | None
    state: str
    title: str
    rows: list[Json]
    earlier: Json | None
    events: list[Json]
    waiting: list[str]
    turn: Json | None
    approvals: list[Json]
    now: float


class FileKept(Answered, frozen=True):
    """A file that is whole on disk."""

    id: str
    name: str
    size: int
    type: str
    url: str
