"""Whether another instance is alive."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

STALE_S = 60.0


@dataclass(frozen=True, slots=True)
class Suspect:
    """An instance that may be dead, as one observer saw it first."""

    heartbeat_at: float
    since: float  # by the observer's monotonic clock


def is_stale(alive_at: float | None, database_now: float) -> bool:
    """Whether the last heartbeat is too old, both times being the database's. An instance of an older version has none."""
    return alive_at is not None and database_now - alive_at > STALE_S


def watch(before: Mapping[int, Suspect], heartbeats: Mapping[int, float], now: float) -> dict[int, Suspect]:
    """The suspects of this check. One whose heartbeat moved since it became a suspect is alive, and suspected anew."""
    return {number: _seen(before.get(number), beat, now) for number, beat in heartbeats.items()}


def is_dead(suspect: Suspect, now: float, grace_s: float) -> bool:
    """Whether a suspect has been one for the whole grace period: a lock may be free for a moment, or every heartbeat late."""
    return now - suspect.since >= grace_s


def _seen(before: Suspect | None, heartbeat_at: float, now: float) -> Suspect:
    return before if before is not None and before.heartbeat_at == heartbeat_at else Suspect(heartbeat_at, now)
