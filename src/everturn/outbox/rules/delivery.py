"""Rules of delivery: the send key of a part, and what follows a failed send, or one whose delivery is unknown."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import msgspec

from everturn.errors import PlatformError, Refused, TryLater
from everturn.pauses import grown_s

LONGEST_BACKOFF_S = 60.0
IN_FLIGHT_S = 2.0  # so long a request to a platform may be in flight, whatever has become of its sender
LONGEST_DELAY_S = 86_400.0  # a platform that asks for more than a day is not believed
MOST_FAILURES = 8  # about two minutes
MOST_HARMLESS_FAILURES = 66  # about an hour: an upgrade of the other side is over by then
NO_USE = "it could not be sent before it was out of date"
MAY_REPEAT = "(Sent again after an interruption: you may see this twice.)"


@dataclass(frozen=True, slots=True)
class Retry:
    """Send the reply again, not before `at`."""

    at: float


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Make the reply a dead letter; `why` is for people."""

    why: str


class Surety(StrEnum):
    """What a platform lets us find out about a send whose response was lost."""

    KEYED = "A"  # it knows our key: a repetition appears once
    READ_BACK = "B"  # its history can be read
    NEITHER = "C"


class UnknownAction(StrEnum):
    """What is done with a reply whose delivery is unknown."""

    REPEAT = "repeat"
    LOOK = "look"
    MARK = "mark"
    ASK = "ask"
    DROP = "drop"


_BY_POLICY = {"mark": UnknownAction.MARK, "ask": UnknownAction.ASK, "drop": UnknownAction.DROP}


def after_failure(
    error: PlatformError,
    tries: int,
    failures: int,
    now: float,
    *,
    valid_until: float | None,
    harmless: bool = False,
) -> Retry | DeadLetter:
    """Decide when to retry after so many tries, of which so many failed, or why not to.

    A wait that the platform asked for is no failed try: only `valid_until` bounds it. Nor is a crash of ours, so the pause
    after a failure grows with the failures alone. `harmless`: a repetition can show nothing twice, so that a platform which
    is in trouble gets more tries.
    """
    if isinstance(error, Refused):
        return DeadLetter(f"the platform refused it: {error}")
    most = MOST_HARMLESS_FAILURES if harmless else MOST_FAILURES
    if failures >= most and not is_ordered(error):
        return DeadLetter(f"gave up after {failures} failed attempts: {error}")
    retry = Retry(now + _wait_s(error, tries if is_ordered(error) else failures))
    if valid_until is not None and retry.at > valid_until:
        return DeadLetter(f"{NO_USE}: {error}")
    return retry


def is_too_late(valid_until: float | None, now: float, *, seen: bool) -> bool:
    """Whether a reply is out of date. One that people may see a part of is completed whenever that is: a late text is better
    than half of it.
    """
    return valid_until is not None and valid_until < now and not seen


def unknown_action(surety: Surety, policy: str, *, readable: bool = False) -> UnknownAction:
    """What to do with a send whose delivery is unknown; the owner's policy matters only where nothing helps.

    Where a platform that knows our keys is `readable` as well, we look first: it may have forgotten the key since.
    """
    if surety is Surety.KEYED and not readable:
        return UnknownAction.REPEAT
    return UnknownAction.LOOK if surety is not Surety.NEITHER else _BY_POLICY[policy]


def marked(text: str) -> str:
    """The text with a visible mark that it may be a repetition."""
    return text if text.endswith(MAY_REPEAT) else f"{text}\n\n{MAY_REPEAT}"


def is_ordered(error: PlatformError) -> bool:
    """Whether the platform asked us to wait: nothing was sent, and nothing is wrong with what we send."""
    return isinstance(error, TryLater) and error.delay_s > 0


def _wait_s(error: PlatformError, times: int) -> float:
    asked_s = min(error.delay_s, LONGEST_DELAY_S) if isinstance(error, TryLater) else 0.0
    return max(grown_s(times, 1.0, LONGEST_BACKOFF_S), asked_s)


class Delivery(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How replies of one key are delivered: as an event, at once by this process, or by the outbox sender in order."""

    by_event: bool
    send_now: bool = False  # the platform can recognise a repetition, so claiming may be part of finishing
    valid_s: float | None = None
    edits: bool = False  # what was sent can be replaced in place
    streams: bool = False  # answers may be shown while they stream


def send_key(name: str | int, place: int, replaces: tuple[int, ...] = ()) -> str:
    """The key under which a part of a reply is sent, made from its row and its place: the same for every repetition, so that a
    platform that knows keys shows it once; another one for a part that replaces it.
    """
    times = replaces.count(place)
    return f"{name}-{place}-{times}" if times else f"{name}-{place}"
