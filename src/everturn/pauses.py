"""How long to wait before the next try, of whatever failed: a read, a send, a model call, a start of a process."""

from __future__ import annotations

from dataclasses import dataclass

from everturn.errors import TryLater

LONGEST_S = 60.0
LONGEST_ASKED_S = 600.0


def asked_s(error: Exception) -> float:
    """The delay that a platform asked for before the next read, bounded."""
    return min(error.delay_s, LONGEST_ASKED_S) if isinstance(error, TryLater) else 0.0


def grown_s(failures: int, first_s: float, most_s: float, by: float = 2.0) -> float:
    """A pause that grows: `first_s` after the first failure in a row, twice as long after each further one, at most `most_s`."""
    return min(most_s, first_s * by ** min(max(failures - 1, 0), 16))


def pause_s(failures: int, chance: float, asked_s: float = 0.0) -> float:
    """The retry delay: twice as long after each failure in a row, up to a minute, between half and all of it by chance (0 to 1),
    so that many clients of one server do not reconnect at one moment; never sooner than the platform asked.
    """
    return max(asked_s, grown_s(failures, 1.0, LONGEST_S) * (0.5 + chance / 2))


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long to wait before the next start of a process after an unclean end."""

    first_s: float = 0.2
    most_s: float = 30.0
    healthy_s: float = 60.0

    def next_delay_s(self, last_s: float, ran_s: float) -> float:
        """Twice the last pause; the first pause again after a process that ran long enough."""
        fresh = last_s == 0 or ran_s >= self.healthy_s
        return self.first_s if fresh else min(last_s * 2, self.most_s)
