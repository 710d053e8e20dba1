"""Response types of the operator's endpoints."""

from __future__ import annotations

from typing import Any

import msgspec

Json = dict[str, Any]


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
