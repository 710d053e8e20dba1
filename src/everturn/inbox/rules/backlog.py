"""The backlog policy: what becomes of messages that were sent while the gateway was disconnected."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import takewhile

GRACE_S = 5.0  # clocks differ, and the last process may have crashed before it stored a message
QUIET_S = 2.0  # a backlog comes in one go: it is complete when nothing came for so long
BACKLOG_REQUEST = "backlog"  # the kind of the reply that asks what to do with several messages
BACKLOG_REQUEST_OF_ONE = "backlog_one"
MOST_WAITING = 100  # of one conversation; who wrote more gets a notice
ASKED_S = 86_400.0  # how long a backlog request is open, where no greatest age is set


class BacklogPolicy(StrEnum):
    """The backlog policies."""

    ALL = "all"
    NEWEST = "newest"  # of each conversation only the newest is answered
    DIGEST = "digest"  # all of a conversation begin one turn
    ASK = "ask"  # their sender decides whether they are answered


class Arriving(StrEnum):
    """What happens to a message when it arrives."""

    NOW = "now"
    HOLD = "hold"  # it waits until the whole backlog is there
    EXPIRE = "expire"  # it is too old


@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogRule:
    """The backlog settings of a platform; `age_s` 0: nothing is too old."""

    policy: str = BacklogPolicy.ALL
    age_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogDecision:
    """What becomes of a backlog: all but the newest message expire, or all are answered."""

    newest: bool = False
    together: bool = False  # they begin one turn
    ask: bool = False  # they wait on, and their sender is asked


def arriving(backlog: BacklogRule, said_at: float | None, since: float, now: float, *, command: bool) -> Arriving:
    """What happens to a message that was sent at `said_at`, where the platform is connected since `since`.

    Commands are about the present: they do not wait.
    """
    if said_at is None:
        return Arriving.NOW
    if backlog.age_s and now - said_at > backlog.age_s:
        return Arriving.EXPIRE
    if command or backlog.policy == BacklogPolicy.ALL or not sent_during_outage(said_at, since):
        return Arriving.NOW
    return Arriving.HOLD


def sent_during_outage(said_at: float | None, since: float) -> bool:
    """Whether a message was sent while the gateway was disconnected."""
    return said_at is not None and said_at < since - GRACE_S


def outage_id(since: float) -> int:
    """The id of the outage that ended then: a chat gets one notice for each."""
    return round(since * 1000)


def room_in_queue(limit: int, said_at: float | None, since: float) -> int:
    """How many messages may be queued with this one. A backlog comes in one go: its author could not be asked to wait."""
    return max(limit, MOST_WAITING) if sent_during_outage(said_at, since) else limit


def count(albums: Sequence[str | None]) -> int:
    """How many messages these rows are, by the albums they belong to: the parts of one album are one message."""
    return sum(album is None or place == 0 or albums[place - 1] != album for place, album in enumerate(albums))


def before_newest(albums: Sequence[str | None]) -> int:
    """How many of these rows come before the newest message: an album is not torn apart."""
    newest = albums[-1] if albums else None
    together = sum(1 for _ in takewhile(lambda album: album == newest, reversed(albums))) if newest is not None else 1
    return max(0, len(albums) - together)


def settle(policy: str, messages: int) -> BacklogDecision:
    """What becomes of the backlog of one conversation when no more messages come."""
    match policy:
        case BacklogPolicy.NEWEST:
            return BacklogDecision(newest=messages > 1)
        case BacklogPolicy.DIGEST:
            return BacklogDecision(together=messages > 1)
        case BacklogPolicy.ASK:
            return BacklogDecision(ask=messages > 0)
        case _:
            return BacklogDecision()
