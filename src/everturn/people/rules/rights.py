"""Who may use which command: owners, and per platform and scope (dm, group) admins and what the others may use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from everturn.commands.rules.registry import REGISTRY, Declared, Right, canonical
from everturn.model import SessionSource

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
