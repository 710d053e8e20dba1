"""Pairing codes: their form and stored hash, the limits on access requests, and the lock after wrong codes."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

ALPHABET = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"  # nothing that is read as something else
CODE_CHARS = 8
VALID_S = 3600.0
EACH_S = 600.0  # one access request of a person in this time
MOST_OPEN = 3  # codes that are out at a time, for each platform
MOST_WRONG = 5
LOCKED_S = 3600.0


class PairingOffer(StrEnum):
    """What a stranger who requests access gets."""

    CODE = "code"
    FULL = "full"  # a notice that there is no code now
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class PairingState:
    """Open requests, notices and lock of a platform when a stranger writes."""

    theirs_at: float | None  # when this person last asked
    open: int  # codes that are out on this platform
    full_notices: int  # strangers who got a notice within EACH_S that there is none
    locked_until: float


def offer(asked: PairingState, now: float) -> PairingOffer:
    """Whether a stranger gets a code. A flood of them costs a bounded number of rows and messages."""
    if asked.theirs_at is not None and 0 <= now - asked.theirs_at < EACH_S:
        return PairingOffer.NOTHING
    if asked.open < MOST_OPEN and now >= asked.locked_until:
        return PairingOffer.CODE
    return PairingOffer.FULL if asked.full_notices < MOST_OPEN else PairingOffer.NOTHING


def make_code(choice: Callable[[str], str]) -> str:
    """A code; `choice` draws one letter by cryptographic chance."""
    return "".join(choice(ALPHABET) for _ in range(CODE_CHARS))


def clean_code(text: str) -> str:
    """A code as a person typed it, without spaces and hyphens, in upper case."""
    return "".join(text.split()).replace("-", "").upper()


def hashed(code: str, salt: str) -> str:
    """The salted hash of a code, which is all that is stored of it."""
    return hashlib.sha256(f"{salt}:{code}".encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class PairingRequest:
    """A stored access request."""

    id: int
    salt: str
    hash: str


def matching(code: str, kept: Sequence[PairingRequest]) -> int | None:
    """The id of the request with this code. Every one is compared, each in constant time."""
    found = [each.id for each in kept if hmac.compare_digest(hashed(code, each.salt), each.hash)]
    return found[0] if found else None


def lock_after(wrong: int, now: float) -> float:
    """Until when nothing is issued or approved by code after so many wrong codes in a row; 0.0: it is not locked."""
    return now + LOCKED_S if wrong >= MOST_WRONG else 0.0
