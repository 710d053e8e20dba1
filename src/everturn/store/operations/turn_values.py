"""What the operations of a turn are given and say."""

from __future__ import annotations

import msgspec

from everturn.decide.admission import Admission
from everturn.decide.keys import Isolation
from everturn.decide.notes import Note
from everturn.decide.session import ResetPolicy
from everturn.model import Event, Message, Reply, SessionSource
from everturn.store.operations.telling import Delivery


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """What the beginning of a turn may need; every id is made by the caller."""

    instance: int
    turn: int
    session_id: str
    notice: int
    at: float
    policy: ResetPolicy
    fresh_s: float
    resume: str
    delivery: Delivery
    stuck_after: int = 0
    suspects: bool = True  # whether a suspect may begin now
    isolation: Isolation = Isolation()
    burst_s: float = 0.0  # messages of one author this close together begin one turn
    collect_s: float = 0.0  # how long it must be quiet before collected messages begin their turn
    admission: Admission | None = None  # who may speak; None: they showed a key, a token or a cookie


class Waiting(msgspec.Struct, frozen=True):
    """An inbox row that a turn takes up."""

    id: int
    text: str
    source: SessionSource
    raw_source: str
    accepted_at: float
    stored: bool = True  # False: this very operation inserts it, already claimed
    busy: str | None = None  # what it does to a running turn
    brought: tuple[Message, ...] = ()  # rows that the transcript has before its words

    @property
    def speaks(self) -> bool:
        """Whether it has words; one that only brings rows has none."""
        return bool(self.text) or not self.brought


class Begun(msgspec.Struct, frozen=True, kw_only=True):
    """A turn that is ours to run."""

    turn: int
    key: str
    session_id: str
    attempt: int
    fence: int
    seq: int  # the last transcript row that is stored
    first_seq: int  # the turn's first own row
    inbox: tuple[int, ...]
    words: tuple[str, ...]
    source: SessionSource
    note: Note | None = None
    unclean_ends: int = 0
    model: str | None = None  # what /model chose for the session
    events: tuple[Event, ...] = ()
    spoke: bool = False  # a notice is owed as well
    also: tuple[str, ...] = ()  # the platform's ids of its messages but the last, which is its source
    waiting: int = 0  # how many messages and commands wait behind it


class NotYet(msgspec.Struct, frozen=True):
    """A suspect: its turn begins when no other suspect is unproven."""

    key: str


class Waits(msgspec.Struct, frozen=True):
    """Its turn waits for an answer and words came that must wait behind it: their sender is to be told."""

    key: str


class Later(msgspec.Struct, frozen=True):
    """Messages are being collected: their turn begins when it has been quiet, not before `at`."""

    key: str
    at: float


class Finished(msgspec.Struct, frozen=True, kw_only=True):
    """What came of finishing: the reply that is ours to send at once, and whether the key has more to do."""

    events: tuple[Event, ...]
    reply: Reply | None
    more: bool
