"""What becomes of messages that were written while the gateway was away, by the policy of their platform."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

GRACE_S = 5.0  # clocks differ, and the last life may have died with a message on its way
QUIET_S = 2.0  # what piled up comes in one go: it is over when nothing came for so long
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
    """What becomes of those that were held, in their order: so many of the oldest expire, the others go on."""

    expire: int = 0
    together: bool = False  # they begin one turn
    ask: bool = False  # they are held on, and their sender is asked


def arriving(backlog: Backlog, said_at: float | None, started_at: float, now: float, *, command: bool) -> Arriving:
    """What a message does that its author sent at `said_at`, in a life that began at `started_at`.

    Commands mean what is now: they are not held.
    """
    if said_at is None:
        return Arriving.NOW
    if backlog.age_s and now - said_at > backlog.age_s:
        return Arriving.EXPIRE
    if command or backlog.policy == Policy.ALL or said_at >= started_at - GRACE_S:
        return Arriving.NOW
    return Arriving.HOLD


def settle(policy: str, held: int) -> Settled:
    """What becomes of the messages of one conversation when no more come."""
    match policy:
        case Policy.NEWEST:
            return Settled(expire=max(0, held - 1))
        case Policy.DIGEST:
            return Settled(together=held > 1)
        case Policy.ASK:
            return Settled(ask=held > 0)
        case _:
            return Settled()
