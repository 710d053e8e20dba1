"""What a command is given when it is applied, and what it says it did."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from everturn.decide.commands import Command
from everturn.decide.rights import NO_RIGHTS, Rights
from everturn.model import Event, SessionEntry, SessionSource


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """What commands may need of the settings and of this life; every id is made by the caller."""

    rights: Rights = NO_RIGHTS
    instance: int = 0
    message: int = 0  # the id of the inbox row that /retry makes
    models: tuple[str, ...] = ()  # those /model may choose; none named: any
    context_tokens: int = 0  # the model's window; 0: not known


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One command about to be applied; the entry is locked."""

    command: Command
    entry: SessionEntry
    number: int
    session_id: str  # for the session it may open
    at: float
    source: SessionSource
    raw_source: str
    accepted_at: float
    terms: Terms

    @property
    def key(self) -> str:
        """The session key."""
        return self.entry.key


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """What a command did: the turn it stopped, if any, and whether the gateway is to restart."""

    key: str
    stopped: int | None
    events: tuple[Event, ...]
    restart: bool = False
