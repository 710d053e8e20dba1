"""Values that commands are given and return."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from everturn.commands.rules.registry import Command
from everturn.inbox.rules import BusyMode
from everturn.model import Event, SessionEntry, SessionSource
from everturn.outbox.rows.replies import Fact
from everturn.people.rules.access import Admission
from everturn.people.rules.rights import NO_RIGHTS, Rights
from everturn.turns.rows.turn_values import Streamed


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """What commands may need of the settings and of this process; every id is made by the caller."""

    rights: Rights = NO_RIGHTS
    instance: int = 0
    message: int = 0  # the id of the inbox row that /retry makes
    models: tuple[str, ...] = ()  # those /model may choose; none named: any of the providers
    providers: tuple[str, ...] = ()  # whose models /model may choose; none named: any name
    context_tokens: int = 0  # the model's window; 0: not known
    busy: str = BusyMode.STEER  # what a message does while a turn runs, where /busy chose nothing
    approvers: tuple[str, ...] = ()  # who alone allows tool calls; none named: whose turn it is
    streamed: Streamed | None = None  # what the turn that runs here has streamed: a command that ends it commits it
    admission: Admission | None = None  # who may speak; None: they showed a key, a token or a cookie


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandCall:
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
    """What a command did: the turn it stopped, if any, another key that may go on, and whether to restart."""

    key: str
    stopped: int | None
    events: tuple[Event, ...]
    wakes: str | None = None
    restart: bool = False


class CommandResult(NamedTuple):
    """A command's answer, and the events for watchers beside it."""

    text: str
    facts: tuple[Fact, ...] = ()
