"""How long to wait before the next try: of a read, of a turn that could not be started, of a message that could not be stored.

Sends have their own rule (outbox/rules/delivery.py), and so have model calls (agent/rules.py).
"""

from __future__ import annotations

from everturn.errors import TryLater

LONGEST_S = 60.0
LONGEST_ASKED_S = 600.0


def asked_s(error: Exception) -> float:
    """The delay that a platform asked for before the next read, bounded."""
    return min(error.delay_s, LONGEST_ASKED_S) if isinstance(error, TryLater) else 0.0


def pause_s(failures: int, chance: float, asked_s: float = 0.0) -> float:
    """The retry delay: twice as long after each failure in a row, up to a minute, between half and all of it by chance (0 to 1),
    so that many clients of one server do not reconnect at one moment; never sooner than the platform asked.
    """
    whole = min(LONGEST_S, 2.0 ** min(max(failures - 1, 0), 10))
    return max(asked_s, whole * (0.5 + chance / 2))
