"""What the outbox does after a failed or uncertain send."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from everturn.errors import PlatformError, Refused, TryLater

LONGEST_BACKOFF_S = 300.0
LONGEST_DELAY_S = 86_400.0  # a platform that asks for more than a day is not believed
MAY_REPEAT = "(Sent again after an interruption: you may see this twice.)"


@dataclass(frozen=True, slots=True)
class Retry:
    """Send it again, not before `at`."""

    at: float


@dataclass(frozen=True, slots=True)
class GiveUp:
    """It becomes a dead letter; `why` is for people."""

    why: str


@dataclass(frozen=True, slots=True)
class Doubt:
    """It may be out already; `when_uncertain` says what follows."""


class Surety(StrEnum):
    """What a platform lets us know about a send whose answer was lost."""

    KEYED = "A"  # it knows our key: a repetition appears once
    READ_BACK = "B"  # its history can be read
    NEITHER = "C"


class Doubtful(StrEnum):
    """What is done with a reply that may or may not be out."""

    REPEAT = "repeat"
    LOOK = "look"
    MARK = "mark"
    ASK = "ask"
    DROP = "drop"


_BY_POLICY = {"mark": Doubtful.MARK, "ask": Doubtful.ASK, "drop": Doubtful.DROP}


def after_failure(
    error: PlatformError, attempts: int, now: float, *, valid_until: float | None, max_attempts: int = 8
) -> Retry | GiveUp:
    """Say when to try again after `attempts` failed sends, or why not to. Nothing may be repeated without its key."""
    if isinstance(error, Refused):
        return GiveUp(f"the platform refused it: {error}")
    if attempts >= max_attempts:
        return GiveUp(f"gave up after {attempts} attempts: {error}")
    retry = Retry(now + _wait_s(error, attempts))
    if valid_until is not None and retry.at > valid_until:
        return GiveUp(f"it could not be sent while it was still of use: {error}")
    return retry


def when_uncertain(surety: Surety, policy: str) -> Doubtful:
    """Say what to do with a send whose outcome is unknown; the owner's policy matters only where nothing helps."""
    if surety is Surety.KEYED:
        return Doubtful.REPEAT
    return Doubtful.LOOK if surety is Surety.READ_BACK else _BY_POLICY[policy]


def marked(text: str) -> str:
    """The text with the visible mark that it may be a repetition."""
    return text if text.endswith(MAY_REPEAT) else f"{text}\n\n{MAY_REPEAT}"


def _wait_s(error: PlatformError, attempts: int) -> float:
    backoff_s = min(LONGEST_BACKOFF_S, 2.0 ** min(max(attempts - 1, 0), 10))
    asked_s = min(error.delay_s, LONGEST_DELAY_S) if isinstance(error, TryLater) else 0.0
    return max(backoff_s, asked_s)
