"""What becomes of messages that were written while nobody heard, by the policy of their platform."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import takewhile

GRACE_S = 5.0  # clocks differ, and the last life may have died with a message on its way
QUIET_S = 2.0  # what piled up comes in one go: it is over when nothing came for so long
QUESTION = "backlog"  # the kind of the reply that asks what to do with several messages
QUESTION_OF_ONE = "backlog_one"
MOST = 100  # of one conversation; who wrote more is told
ASKED_S = 86_400.0  # a question about them is open for so long, where no greatest age is set


class Policy(StrEnum):
    """The policies."""

    ALL = "all"
    NEWEST = "newest"  # of each conversation only the newest is answered
    DIGEST = "digest"  # all of a conversation begin one turn
    ASK = "ask"  # their sender says whether they are answered


class Arriving(StrEnum):
    """What a message does when it arrives."""

    NOW = "now"
    HOLD = "hold"  # it waits until all that piled up is there
    EXPIRE = "expire"  # it is too old


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """As the settings of a platform say; `age_s` 0: nothing is too old."""

    policy: str = Policy.ALL
    age_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """What becomes of those that were held: all but the newest expire, or they go on."""

    newest: bool = False
    together: bool = False  # they begin one turn
    ask: bool = False  # they are held on, and their sender is asked


def arriving(backlog: Backlog, said_at: float | None, since: float, now: float, *, command: bool) -> Arriving:
    """What a message does that its author sent at `said_at`, where we hear without a silence since `since`.

    Commands mean what is now: they are not held.
    """
    if said_at is None:
        return Arriving.NOW
    if backlog.age_s and now - said_at > backlog.age_s:
        return Arriving.EXPIRE
    if command or backlog.policy == Policy.ALL or not piled_up(said_at, since):
        return Arriving.NOW
    return Arriving.HOLD


def piled_up(said_at: float | None, since: float) -> bool:
    """Whether its author sent it while nobody heard."""
    return said_at is not None and said_at < since - GRACE_S


def absence(since: float) -> int:
    """The name of the silence that ended then: who is not answered for it is told once."""
    return round(since * 1000)


def room_in_queue(limit: int, said_at: float | None, since: float) -> int:
    """How many messages may wait with this one. What piled up comes in one go, and its author could not be told to wait."""
    return max(limit, MOST) if piled_up(said_at, since) else limit


def count(albums: Sequence[str | None]) -> int:
    """How many messages these rows are, by the albums they belong to: the parts of one album are one message."""
    return sum(album is None or place == 0 or albums[place - 1] != album for place, album in enumerate(albums))


def before_newest(albums: Sequence[str | None]) -> int:
    """How many of these rows come before the newest message: an album is not torn apart."""
    newest = albums[-1] if albums else None
    together = sum(1 for _ in takewhile(lambda album: album == newest, reversed(albums))) if newest is not None else 1
    return max(0, len(albums) - together)


def settle(policy: str, held: int) -> Settled:
    """What becomes of the messages of one conversation when no more come."""
    match policy:
        case Policy.NEWEST:
            return Settled(newest=held > 1)
        case Policy.DIGEST:
            return Settled(together=held > 1)
        case Policy.ASK:
            return Settled(ask=held > 0)
        case _:
            return Settled()
