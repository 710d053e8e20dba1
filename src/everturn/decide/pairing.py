"""Pairing: how a stranger's code looks, how it is kept, how often one may ask, and how many guesses there are."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

ALPHABET = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"  # nothing that is read as something else
CODE_CHARS = 8
VALID_S = 3600.0
EACH_S = 600.0  # one question of a person in this time
MOST_OPEN = 3  # codes that are out at a time, for each platform
MOST_WRONG = 5
LOCKED_S = 3600.0


class Offer(StrEnum):
    """What somebody unknown gets."""

    CODE = "code"
    FULL = "full"  # they are told that there is no code now
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is known when a stranger writes."""

    theirs_at: float | None  # when this person last asked
    open: int  # codes that are out on this platform
    told_full: int  # strangers who were told within EACH_S that there is none
    locked_until: float


def offer(asked: Asked, now: float) -> Offer:
    """Whether a stranger gets a code. A flood of them costs a bounded number of rows and messages."""
    if asked.theirs_at is not None and 0 <= now - asked.theirs_at < EACH_S:
        return Offer.NOTHING
    if asked.open < MOST_OPEN and now >= asked.locked_until:
        return Offer.CODE
    return Offer.FULL if asked.told_full < MOST_OPEN else Offer.NOTHING


def make_code(choice: Callable[[str], str]) -> str:
    """A code; `choice` draws one letter by cryptographic chance."""
    return "".join(choice(ALPHABET) for _ in range(CODE_CHARS))


def clean_code(text: str) -> str:
    """What a person typed, as codes are written."""
    return "".join(text.split()).replace("-", "").upper()


def hashed(code: str, salt: str) -> str:
    """What is kept of a code."""
    return hashlib.sha256(f"{salt}:{code}".encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Kept:
    """A question as it is kept."""

    id: int
    salt: str
    hash: str


def matching(code: str, kept: Sequence[Kept]) -> int | None:
    """The question that this code answers. Every one is compared, each in constant time."""
    found = [each.id for each in kept if hmac.compare_digest(hashed(code, each.salt), each.hash)]
    return found[0] if found else None


def lock_after(wrong: int, now: float) -> float:
    """Until when nothing is issued or approved by code after so many wrong codes in a row; 0.0: it is not locked."""
    return now + LOCKED_S if wrong >= MOST_WRONG else 0.0
