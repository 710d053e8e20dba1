"""What the operations of a turn are given and say."""

from __future__ import annotations

import msgspec

from everturn.decide.admission import Admission
from everturn.decide.approvals import person_of
from everturn.decide.keys import Isolation
from everturn.decide.notes import Note
from everturn.decide.session import ResetPolicy
from everturn.model import Attachment, Event, Message, Reply, SessionSource, Settled
from everturn.store.operations.telling import Delivery


class Start(msgspec.Struct, frozen=True, kw_only=True, gc=False):
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
    counts: bool = False  # the agent's code gets control with this commit: a death from now on is an interruption
    isolation: Isolation = Isolation()
    burst_s: float = 0.0  # messages of one author this close together begin one turn
    collect_s: float = 0.0  # how long it must be quiet before collected messages begin their turn
    admission: Admission | None = None  # who may speak; None: they showed a key, a token or a cookie


class Waiting(msgspec.Struct, frozen=True, gc=False):
    """An inbox row that a turn takes up."""

    id: int
    text: str
    source: SessionSource
    raw_source: str
    accepted_at: float
    stored: bool = True  # False: this very operation inserts it, already claimed
    busy: str | None = None  # what it does to a running turn
    brought: tuple[Message, ...] = ()  # rows that the transcript has before its words
    attachments: tuple[Attachment, ...] = ()  # files that came with it
    album: str | None = None  # it is a part of one

    @property
    def speaks(self) -> bool:
        """Whether it has words; one that only brings rows has none."""
        return bool(self.text) or not self.brought


class Carried(msgspec.Struct, frozen=True, kw_only=True):
    """A message of a turn that came with files; `settled` once they were fetched, or could not be."""

    inbox: int
    seq: int  # the transcript's row with its words
    text: str  # as it was said
    platform: str
    attachments: tuple[Attachment, ...]
    settled: Settled | None = None


class Begun(msgspec.Struct, frozen=True, kw_only=True, gc=False):
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
    authors: tuple[str | None, ...] = ()  # whose words it answers (decide/approvals.person_of), each once
    note: Note | None = None
    unclean_ends: int = 0
    model: str | None = None  # what /model chose for the session
    events: tuple[Event, ...] = ()
    spoke: bool = False  # a notice is owed as well
    also: tuple[str, ...] = ()  # the platform's ids of its messages but the last, which is its source
    waiting: int = 0  # how many messages and commands wait behind it
    carried: tuple[Carried, ...] = ()  # its messages that came with files
    called: bool = False  # a death is an interruption from the beginning

    @property
    def person(self) -> str | None:
        """Whose turn it is: who began it, whoever spoke last."""
        return self.authors[0] if self.authors else person_of(self.source)


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


class Streamed(msgspec.Struct, frozen=True, kw_only=True):
    """What a running turn has streamed of its answer: the only copy is in the process that runs it."""

    turn: int
    session_id: str
    after: int  # the last transcript row when it was streamed: with a later one of the agent it is a part of that
    text: str
    shown: str = ""  # what its streaming message says by now, text from before tools were used included


class Finished(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What came of finishing: the reply that is ours to send at once, and whether the key has more to do."""

    events: tuple[Event, ...]
    reply: Reply | None
    more: bool
