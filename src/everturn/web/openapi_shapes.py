"""The types of requests and responses that the OpenAPI document describes."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

Json = dict[str, Any]


class ApiResponse(msgspec.Struct, frozen=True):
    """Base of the response types."""


class Alive(ApiResponse, frozen=True):
    """The process is alive."""

    alive: bool


class Ready(ApiResponse, frozen=True):
    """Whether messages are accepted and answered."""

    ready: bool
    reason: str = ""


class Open(ApiResponse, frozen=True):
    """Counts of open work, by state."""

    inbox: dict[str, int]
    turns: dict[str, int]
    outbox: dict[str, int]


class PlatformStatus(ApiResponse, frozen=True):
    """The state of a platform: open, reading, connecting, silent or trouble, and since when it receives nothing."""

    name: str
    account: str
    state: str
    trouble: str | None
    since: float | None


class Status(ApiResponse, frozen=True):
    """The state of the gateway; `open` is null while the database does not answer."""

    state: str
    open: Open | None
    version: str = ""
    pid: int = 0
    url: str = ""
    started_at: float = 0.0
    trouble: str | None = None
    warning: str | None = None
    running_turns: int = 0
    platforms: list[PlatformStatus] = []


class ChannelSeen(ApiResponse, frozen=True):
    """A chat, or a thread in one, as it was last seen; names are chosen by its users."""

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


class DirectoryResponse(ApiResponse, frozen=True):
    """The chat directory, the last seen first, and every alias with its address."""

    channels: list[ChannelSeen]
    aliases: dict[str, str]


class Aliased(ApiResponse, frozen=True):
    """An alias and its address."""

    alias: str
    address: str


class Unaliased(ApiResponse, frozen=True):
    """The removed alias."""

    unaliased: str


class Session(ApiResponse, frozen=True):
    """A session key and its current session."""

    key: str
    session_id: str
    state: str


class SessionList(ApiResponse, frozen=True):
    """Sessions in the order of their keys; `next` is the `after` of the following page."""

    sessions: list[Session]
    next: str | None


class TimelineResponse(ApiResponse, frozen=True):
    """The timeline of a message."""

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


class TimelineList(ApiResponse, frozen=True):
    """The timelines of the messages with an id, one for each chat that used it."""

    messages: list[TimelineResponse]


class Stopping(ApiResponse, frozen=True):
    """A planned stop or restart has begun."""

    stopping: bool
    kind: Literal["stop", "restart"]


class Key(ApiResponse, frozen=True):
    """An access key, without its secret."""

    name: str
    prefix: str
    scopes: list[str]
    made_at: float
    used_at: float | None
    revoked_at: float | None
    made_by: str | None
    maker_revoked: bool


class KeyList(ApiResponse, frozen=True):
    """All keys, also revoked ones."""

    keys: list[Key]


class PeopleResponse(ApiResponse, frozen=True):
    """Open access requests, and approved and revoked people."""

    requests: list[Json]
    people: list[Json]


class PersonApproved(ApiResponse, frozen=True):
    """The approved person."""

    approved: str
    owner: bool
    name: str | msgspec.UnsetType | None = msgspec.UNSET
    platform_known: bool | msgspec.UnsetType = msgspec.UNSET


class RevokedResponse(ApiResponse, frozen=True):
    """The person whose access was revoked."""

    revoked: str
    stopped_turns: int
    platform_known: bool


class KeyMade(ApiResponse, frozen=True):
    """The new key; its secret is shown only once."""

    name: str
    scopes: list[str]
    key: str


class Revoked(ApiResponse, frozen=True):
    """The revoked key, the keys made with it that were also revoked, and those that are still valid."""

    revoked: str
    also: list[str]
    left: list[str]


class LoginMade(ApiResponse, frozen=True):
    """A login link is ADDRESS/login#CODE."""

    code: str
    expires_at: float
    public_url: str


class Ended(ApiResponse, frozen=True):
    """How many browsers were logged out."""

    ended: int


class Me(ApiResponse, frozen=True):
    """What the page needs when it opens: version, commands and limits."""

    name: str
    version: str
    commands: list[Json]
    message_chars: int
    file_bytes: int
    now: float


class ConversationItem(ApiResponse, frozen=True):
    """A conversation in the list; `where` is the text that a search found."""

    chat: str
    key: str
    title: str
    named: bool
    state: str
    queued: int
    made_at: float
    active_at: float
    where: str = ""


class ConversationList(ApiResponse, frozen=True):
    """Conversations, the last used first."""

    conversations: list[ConversationItem]
    now: float


class Rows(ApiResponse, frozen=True):
    """Rows added to a transcript; if the session is another one, load the conversation again."""

    session_id: str | None
    rows: list[Json]


class EarlierResponse(ApiResponse, frozen=True):
    """Earlier rows, also those of the session that was compacted into this one."""

    depth: int
    rows: list[Json]
    earlier: Json | None


class ConversationResponse(ApiResponse, frozen=True):
    """A conversation as the page shows it, and the event id to continue from."""

    event: int
    session_id: str | None
    state: str
    title: str
    rows: list[Json]
    earlier: Json | None
    events: list[Json]
    queued: list[str]
    turn: Json | None
    approvals: list[Json]
    now: float


class FileKept(ApiResponse, frozen=True):
    """An uploaded file."""

    id: str
    name: str
    size: int
    type: str
    url: str


class Overview(msgspec.Struct, frozen=True):
    """The gateway, counts of open work, instances, platforms and recoveries."""

    now: float
    gateway: Json
    counts: dict[str, int | float | None]
    instances: list[Json]
    platforms: list[Json]
    recoveries: list[Json]


class TurnPage(msgspec.Struct, frozen=True):
    """A page of turns."""

    now: float
    turns: list[Json]
    next: int | str | None


class SessionPage(msgspec.Struct, frozen=True):
    """A page of sessions."""

    now: float
    sessions: list[Json]
    next: int | str | None


class Inbox(msgspec.Struct, frozen=True):
    """A page of messages."""

    now: float
    messages: list[Json]
    next: int | str | None


class OutboxPage(msgspec.Struct, frozen=True):
    """A page of replies."""

    now: float
    replies: list[Json]
    next: int | str | None


class Explained(msgspec.Struct, frozen=True):
    """Messages, each with its timeline."""

    now: float
    messages: list[Json]


class Trends(msgspec.Struct, frozen=True):
    """Metrics over time, in buckets of `step_s` seconds."""

    now: float
    step_s: float
    buckets: list[Json]


class AccessOverview(msgspec.Struct, frozen=True):
    """Access requests of chat platforms, approved and revoked people, and the settings of access."""

    now: float
    requests: list[Json]
    people: list[Json]
    settings: list[Json]


class ActionResult(msgspec.Struct, frozen=True):
    """What was done, as a sentence."""

    done: bool
    said: str
