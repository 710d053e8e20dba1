"""What an operator is answered, as types."""

from __future__ import annotations

from typing import Any

import msgspec

Json = dict[str, Any]


class Overview(msgspec.Struct, frozen=True):
    """The gateway, what is open, its instances, platforms and recoveries."""

    now: float
    gateway: Json
    counts: dict[str, int | float | None]
    instances: list[Json]
    platforms: list[Json]
    recoveries: list[Json]


class Turns(msgspec.Struct, frozen=True):
    """A page of turns."""

    now: float
    turns: list[Json]
    next: int | str | None


class Sessions(msgspec.Struct, frozen=True):
    """A page of sessions."""

    now: float
    sessions: list[Json]
    next: int | str | None


class Inbox(msgspec.Struct, frozen=True):
    """A page of messages."""

    now: float
    messages: list[Json]
    next: int | str | None


class Outbox(msgspec.Struct, frozen=True):
    """A page of replies."""

    now: float
    replies: list[Json]
    next: int | str | None


class Explained(msgspec.Struct, frozen=True):
    """Lives of messages, each with its timeline."""

    now: float
    lives: list[Json]


class Figures(msgspec.Struct, frozen=True):
    """Figures in steps of time."""

    now: float
    step_s: float
    buckets: list[Json]


class People(msgspec.Struct, frozen=True):
    """Who asks to speak on chat platforms, who was let in or turned out, and what the settings say."""

    now: float
    requests: list[Json]
    people: list[Json]
    settings: list[Json]


class Done(msgspec.Struct, frozen=True):
    """What was done, in words."""

    done: bool
    said: str
