"""Who may speak to the agent on a chat platform: only people whom the owner named or approved by pairing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from everturn.model import SessionSource
from everturn.settings.names import is_name

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
