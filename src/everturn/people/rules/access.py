"""Rules of access: who may speak, under which name they are stored, and pairing codes."""

from __future__ import annotations

import hashlib
import hmac
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from everturn.model import SessionSource
from everturn.sessions.rules.keys import Isolation, is_shared
from everturn.settings.rules import is_name

BY_HTTP = frozenset({"api", "web", "v1"})  # clients there had to show a key, a token or a cookie
EVERYBODY = "*"
PAIR = "pair"
IGNORE = "ignore"
AUTO = "auto"  # pair until somebody is named in a list: who keeps a list does not want to hear from strangers


class AccessVerdict(StrEnum):
    """What becomes of a message because of its author."""

    ALLOWED = "allowed"
    PAIR = "pair"  # unknown, in a direct chat: they may request access
    SILENT = "silent"  # nothing of it is kept, nobody is answered


class Standing(StrEnum):
    """A person's stored standing."""

    UNKNOWN = "unknown"
    GRANTED = "granted"
    OWNER = "owner"  # granted, and this gateway is theirs
    REVOKED = "revoked"  # beats every list


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessPolicy:
    """Who may speak on one platform, as its settings say. By default nobody, and strangers get nothing."""

    allow: tuple[str, ...] = ()
    chats: tuple[str, ...] = ()  # groups in which everybody may speak
    unknown: str = IGNORE

    @property
    def for_strangers(self) -> str:
        """What a stranger gets in a direct chat, PAIR or IGNORE."""
        if self.unknown == AUTO:
            return IGNORE if self.allow or self.chats else PAIR
        return self.unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """The policies by platform, and the owners ("platform:user"). A platform without a policy admits nobody."""

    policies: Mapping[str, AccessPolicy] = field(default_factory=dict)
    owners: tuple[str, ...] = ()

    def governs(self, platform: str) -> bool:
        """Whether admission applies to this platform: not where keys, tokens and cookies are checked."""
        return platform not in BY_HTTP

    def of(self, platform: str) -> AccessPolicy:
        """The policy of a platform."""
        return self.policies.get(platform, NOBODY)


NOBODY = AccessPolicy()
OPEN = AccessPolicy(allow=(EVERYBODY,))
CLOSED = Admission()


def ids_of(source: SessionSource) -> tuple[str, ...]:
    """The ids under which the author of a message is known."""
    one, other = source.user_id, source.user_id_alt
    if one and other and one != other:
        return one, other
    return (one or other or "",) if one or other else ()


def verdict(admission: Admission, source: SessionSource, standing: Standing) -> AccessVerdict:
    """Whether the author of a message may speak where it was written."""
    if not admission.governs(source.platform):
        return AccessVerdict.ALLOWED
    if standing is Standing.REVOKED:
        return AccessVerdict.SILENT
    policy, people, direct = admission.of(source.platform), ids_of(source), source.chat_type == "dm"
    if EVERYBODY in policy.allow or (not direct and _in_allowed_chat(policy, source)):
        return AccessVerdict.ALLOWED
    if not people:
        return AccessVerdict.SILENT
    owner = any(f"{source.platform}:{each}" in admission.owners for each in people)
    if owner or standing is not Standing.UNKNOWN or any(each in policy.allow for each in people):
        return AccessVerdict.ALLOWED
    return AccessVerdict.PAIR if direct and policy.for_strangers == PAIR else AccessVerdict.SILENT


def is_person(platform: str, user: str) -> bool:
    """Whether somebody can be approved or revoked under this name. Another form names somebody else, or a client with a key,
    and it must not seem that it was done.
    """
    if not platform or not user or not user.isprintable() or platform in BY_HTTP:
        return False
    return is_name(platform, user)


def standing_of(rows: Iterable[tuple[str, bool]]) -> Standing:
    """The standing of one person by all their rows of (state, owner): to be revoked under one id is to be revoked."""
    found = {
        Standing.REVOKED if state != "granted" else Standing.OWNER if owner else Standing.GRANTED
        for state, owner in rows
    }
    order = (Standing.REVOKED, Standing.OWNER, Standing.GRANTED)
    return next((each for each in order if each in found), Standing.UNKNOWN)


def _in_allowed_chat(policy: AccessPolicy, source: SessionSource) -> bool:
    return any(each in policy.chats for each in (source.chat_id, source.parent_chat_id, source.chat_id_alt) if each)


# Names, topics and other short texts that strangers chose: one line, bounded, without anything that steers a reader.


NAME_LIMIT = 64
TEXT_LIMIT = 240
_REPLACED = {"Cc": " ", "Zl": " ", "Zp": " ", "Cf": "", "Cs": "", "Co": "", "Cn": ""}
_BRACKETS = str.maketrans("[]", "()")
_LIKE_A_BRACKET = frozenset("[\u2045\u2772\u27e6\u27ec\u298b\u298d\u298f\u3010\u3014\u3016\u3018\u301a")


def clean_text(text: str | None, limit: int = TEXT_LIMIT) -> str:
    """One line of at most `limit` characters; control, format and unassigned characters are gone."""
    # Only the front is looked at: what a stranger sends may be very long, and the rest is cut off anyway.
    seen = (text or "")[: limit * 8]
    if not seen.isprintable():  # nearly all are, and thousands are looked at to find one
        seen = "".join(_REPLACED.get(unicodedata.category(character), character) for character in seen)
    line = " ".join(seen.split())
    return line if len(line) <= limit else f"{line[: limit - 1].rstrip()}…"


def clean_name(name: str | None, limit: int = NAME_LIMIT) -> str:
    """A person's or a chat's name as one short line that cannot close the brackets it stands in."""
    return clean_text(name, limit).translate(_BRACKETS)


def authored(author: str | None, text: str) -> str:
    """The text with its author in front, as the model sees it where several people speak. A line that begins with a bracket,
    and so looks as if somebody else said it, has the author in front, too. All other lines stay as they are.
    """
    name = clean_name(author)
    if not name:
        return text
    first, *lines = text.splitlines(keepends=True) or [""]
    return f"[{name}] {first}" + "".join(f"[{name}] {line}" if _names_somebody(line) else line for line in lines)


def _names_somebody(line: str) -> bool:
    """Whether a line looks as if it began with a name in brackets: what cannot be seen before it does not count."""
    seen = next((each for each in line if unicodedata.category(each)[0] not in "CZM"), "")
    return seen in _LIKE_A_BRACKET or unicodedata.normalize("NFKC", seen)[:1] == "["


def person_of(source: SessionSource) -> str | None:
    """The sender of a message, as the settings name people; None where the platform knows nobody."""
    return f"{source.platform}:{source.user_id}" if source.user_id else None


def author_of(source: SessionSource, isolation: Isolation) -> str | None:
    """The author's name where several people speak in the lane; None where one person does."""
    if not is_shared(source, isolation):
        return None
    return clean_text(source.user_name) or clean_text(source.user_id) or None


# Pairing codes: their form and stored hash, the limits on access requests, and the lock after wrong codes.


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
