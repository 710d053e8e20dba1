"""Rules of rights: what a key may do over HTTP, and which commands a person may use."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from urllib.parse import urlsplit

from everturn.commands.rules.registry import REGISTRY, Declared, Right, canonical
from everturn.model import SessionSource


class KeyScope(StrEnum):
    """The scopes of keys and of the owner."""

    CHAT = "chat"
    READ = "read"
    OPS = "ops"
    ADMIN = "admin"
    OWNER = "owner"  # the home's token and the owner's browser; no key has it


GRANTABLE = (KeyScope.CHAT, KeyScope.READ, KeyScope.OPS, KeyScope.ADMIN)
MEANINGS = {
    KeyScope.CHAT: "send messages and read the chats of the api platform",
    KeyScope.READ: "read: status, sessions, the timeline of a message, transcripts, metrics",
    KeyScope.OPS: "read, and act on the gateway: stop, restart, sessions, dead letters",
    KeyScope.ADMIN: "everything, keys and pairing included; not the owner's page",
}
OWNER = frozenset(KeyScope)
NOBODY: frozenset[KeyScope] = frozenset()
_INCLUDED = {
    KeyScope.OPS: frozenset({KeyScope.READ}),
    KeyScope.ADMIN: frozenset({KeyScope.CHAT, KeyScope.READ, KeyScope.OPS}),
}
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
OPEN_ALWAYS = frozenset({"/health", "/ready"})
OPEN_PAGES = frozenset({"/", "/ops", "/login", "/offline.js", "/favicon.ico"})
_OPEN_BELOW = re.compile(r"/assets/(?:ops/)?[^/]*")
# The first rule whose path begins like the request's: who may look, and who may act there.
_RULES: tuple[tuple[str, frozenset[KeyScope], frozenset[KeyScope]], ...] = (
    ("/api/chats/", frozenset({KeyScope.CHAT, KeyScope.READ}), frozenset({KeyScope.CHAT})),
    ("/v1/", frozenset({KeyScope.CHAT}), frozenset({KeyScope.CHAT})),
    ("/metrics", frozenset({KeyScope.READ}), NOBODY),
    ("/openapi.json", frozenset({KeyScope.CHAT, KeyScope.READ}), NOBODY),
    ("/ops/api/people", frozenset({KeyScope.ADMIN}), frozenset({KeyScope.ADMIN})),
    ("/ops/api/", frozenset({KeyScope.READ}), frozenset({KeyScope.OPS})),
    ("/control/keys", frozenset({KeyScope.ADMIN}), frozenset({KeyScope.ADMIN})),
    ("/control/login", frozenset({KeyScope.ADMIN}), frozenset({KeyScope.ADMIN})),
    ("/control/logout", frozenset({KeyScope.ADMIN}), frozenset({KeyScope.ADMIN})),
    ("/logout", frozenset({KeyScope.OWNER}), frozenset({KeyScope.ADMIN})),  # a browser with an admin's key, too
    ("/control/pair", frozenset({KeyScope.ADMIN}), frozenset({KeyScope.ADMIN})),
    ("/control/", frozenset({KeyScope.READ}), frozenset({KeyScope.OPS})),
)
HOOKS = "/hooks/"  # webhook endpoints of platforms; each shows a secret of its own
_FORWARDED = frozenset({"same-origin", "none"})
_LOOPBACK = re.compile(r"(?:[a-z0-9-]+\.)*localhost", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class GatewayAddress:
    """The gateway's address: the name it listens on, and the address people are given, if any."""

    host: str = "127.0.0.1"
    public_url: str = ""

    @property
    def secure(self) -> bool:
        """Whether people reach us through https."""
        return self.public_url.startswith("https://")

    @property
    def exposed(self) -> bool:
        """Whether other machines may reach us, and nobody says that a proxy encrypts what they send."""
        return not self.secure and not _is_loopback(self.host)

    @property
    def origin(self) -> str:
        """The origin of the public address, as browsers write it."""
        parts = urlsplit(self.public_url)
        return f"{parts.scheme}://{parts.netloc}".lower() if parts.netloc else ""


def _is_loopback(host: str) -> bool:
    if _LOOPBACK.fullmatch(host):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False  # a name of this machine that others may know


def is_open(path: str) -> bool:
    """Whether a path is answered to everybody: it shows nothing private, or checks a secret of its own."""
    return path in OPEN_ALWAYS or is_page(path) or path.startswith(HOOKS)


def is_page(path: str) -> bool:
    """Whether a path is a part of a page itself, or the login. What a page shows is asked for elsewhere."""
    return path in OPEN_PAGES or _OPEN_BELOW.fullmatch(path) is not None


def needed(method: str, path: str) -> frozenset[KeyScope]:
    """The scopes of which any one is enough here."""
    for begin, look, act in _RULES:
        if path.startswith(begin):
            return look if method in SAFE else act
    return frozenset({KeyScope.OWNER})


def granted(scopes: Iterable[str]) -> frozenset[KeyScope]:
    """What a key with these scopes may do; a scope that is not known gives nothing."""
    own = frozenset(KeyScope(name) for name in scopes if name in GRANTABLE)
    return own.union(*(_INCLUDED.get(scope, NOBODY) for scope in own))


def own_host(header: str | None, place: GatewayAddress) -> bool:
    """Whether a Host header names us. A name that somebody else's DNS points here must not reach a browser's cookie.

    An address cannot be pointed elsewhere, so every literal one is ours.
    """
    host = _name_of(header or "")
    if host is None:
        return False
    if _LOOPBACK.fullmatch(host) or host == place.host.lower():
        return True
    if host == (urlsplit(place.public_url).hostname or "").lower() and host:
        return True
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def own_origin(origin: str | None, fetch_site: str | None, host: str | None, place: GatewayAddress) -> bool:
    """Whether a request that changes something comes from our own page, or from a program that is no browser."""
    if fetch_site is not None and fetch_site not in _FORWARDED:
        return False
    if origin is None:
        return True
    given = origin.lower()
    if place.origin and given == place.origin:
        return True
    try:
        parts = urlsplit(given)
    except ValueError:  # it is no address
        return False
    return parts.scheme in {"http", "https"} and bool(host) and parts.netloc == (host or "").lower()


def network_of(host: str) -> str:
    """What counts as one client's address: an IPv4 address, or the /64 of an IPv6 one, which a single client may use all of."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if address.version == 4:
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return f"{ipaddress.IPv6Address(int(address) >> 64 << 64)}/64"


def _name_of(header: str) -> str | None:
    """The host in a Host header, without its port; None when it is none."""
    try:
        parts = urlsplit(f"//{header}")
        _ = parts.port
    except ValueError:
        return None
    if parts.path or parts.query or parts.username is not None or parts.password is not None:
        return None
    return parts.hostname


# Who may use which command: owners, and per platform and scope (dm, group) admins and what the others may use.


# Who has the home's token, or has logged in at the page, is the owner; a program with a key of its own is known by its name.
HOME = {"api": None, "web": "owner"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRights:
    """The rights in the direct chats, or in the groups, of one platform. No admin named: everybody may use everything
    that is not the owner's.
    """

    admins: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()  # what others may use, beside /help and /whoami


OPEN = ChatRights()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rights:
    """`owners` are written "platform:user", scopes are found under "platform:dm" and "platform:group"."""

    owners: tuple[str, ...] = ()
    scopes: Mapping[str, ChatRights] = field(default_factory=dict)

    def scope(self, source: SessionSource) -> ChatRights:
        """The rights in the chat type where this message was written."""
        return self.scopes.get(scope_name(source), OPEN)


NO_RIGHTS = Rights()


def scope_name(source: SessionSource) -> str:
    """`telegram:dm`, `telegram:group`, ..."""
    return f"{source.platform}:{'dm' if source.chat_type == 'dm' else 'group'}"


def is_home(source: SessionSource) -> bool:
    """Whether a message came with the home's token or the page's login, and so from the owner."""
    return source.platform in HOME and source.user_id == HOME[source.platform]


def rank_of(rights: Rights, source: SessionSource) -> str:
    """owner, admin, or user."""
    if is_home(source) or any(f"{source.platform}:{each}" in rights.owners for each in _ids(source)):
        return "owner"
    admins = rights.scope(source).admins
    return "admin" if any(each in admins for each in _ids(source)) else "user"


def may(rights: Rights, source: SessionSource, command: Declared) -> bool:
    """Whether the author of a message may use the command where the message was written."""
    rank = rank_of(rights, source)
    if rank == "owner" or command.right is Right.ANYONE:
        return True
    if command.right is Right.OWNER:
        return False
    scope = rights.scope(source)
    return rank == "admin" or not scope.admins or command.name in {canonical(each) for each in scope.commands}


def with_owner(rights: Rights, source: SessionSource) -> Rights:
    """The rights with the author of a message among the owners: the rows say so."""
    return replace(rights, owners=(*rights.owners, *(f"{source.platform}:{each}" for each in _ids(source))))


def menu(rights: Rights, source: SessionSource) -> list[Declared]:
    """The commands to offer to the author of a message; for anybody in a chat, leave the user out of its source."""
    return [each for each in REGISTRY if may(rights, source, each)]


def _ids(source: SessionSource) -> tuple[str, ...]:
    return tuple(each for each in (source.user_id, source.user_id_alt) if each)
