"""The parameters and results of the operations of a turn, and its fence: every write of a running turn locks the entry's row
under the fence first, so a late writer is refused by the database and by no earlier check.
"""

from __future__ import annotations

import msgspec

from everturn.errors import FenceLost
from everturn.model import Attachment, Event, Message, Reply, SessionSource, SettledFiles
from everturn.outbox.rules.delivery import Delivery
from everturn.people.rules.access import Admission, person_of
from everturn.sessions.rules.keys import Isolation
from everturn.sessions.rules.notes import Note
from everturn.sessions.rules.reset_policy import ResetPolicy
from everturn.store.interface import Op, sql


class Start(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The values that starting a turn may need; every id is made by the caller."""

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
    counts: bool = False  # the agent's code gets control with this commit: a crash from now on is an interruption
    isolation: Isolation = Isolation()
    burst_s: float = 0.0  # messages of one author this close together begin one turn
    collect_s: float = 0.0  # how long it must be quiet before collected messages begin their turn
    admission: Admission | None = None  # who may speak; None: they showed a key, a token or a cookie


class QueuedMessage(msgspec.Struct, frozen=True, gc=False):
    """An inbox row that a turn takes up."""

    id: int
    text: str
    source: SessionSource
    raw_source: str
    accepted_at: float
    stored: bool = True  # False: this very operation inserts it, already claimed
    busy: str | None = None  # what it does to a running turn
    extras: tuple[Message, ...] = ()  # rows that the transcript has before its text
    attachments: tuple[Attachment, ...] = ()  # files that came with it
    album: str | None = None  # it is a part of one


class Carried(msgspec.Struct, frozen=True, kw_only=True):
    """A message with files; `settled` once they were fetched, or could not be."""

    inbox: int
    seq: int  # the transcript's row with its text
    text: str  # as it was said
    platform: str
    attachments: tuple[Attachment, ...]
    settled: SettledFiles | None = None


class StartedTurn(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A turn that this process has claimed and runs."""

    turn: int
    key: str
    session_id: str
    attempt: int
    fence: int
    seq: int  # the last transcript row that is stored
    first_seq: int  # the turn's first own row
    inbox: tuple[int, ...]
    texts: tuple[str, ...]
    source: SessionSource
    authors: tuple[str | None, ...] = ()  # of its messages (people/rules/access.person_of), each once
    note: Note | None = None
    unclean_ends: int = 0
    model: str | None = None  # what /model chose for the session
    events: tuple[Event, ...] = ()
    spoke: bool = False  # a notice is pending as well
    also: tuple[str, ...] = ()  # the platform's ids of its messages but the last, which is its source
    waiting: int = 0  # how many messages and commands are queued behind it
    carried: tuple[Carried, ...] = ()  # its messages that came with files
    called: bool = False  # a crash is an interruption from the beginning

    @property
    def person(self) -> str | None:
        """The person who began the turn, whoever wrote last."""
        return self.authors[0] if self.authors else person_of(self.source)


class NotYet(msgspec.Struct, frozen=True):
    """The key is a suspect: its turn begins when no other suspect is unproven."""

    key: str


class BehindApproval(msgspec.Struct, frozen=True):
    """The key's turn awaits approval and messages are queued behind it: their sender needs a notice."""

    key: str


class Later(msgspec.Struct, frozen=True):
    """Messages are being collected: their turn begins when it has been quiet, not before `at`."""

    key: str
    at: float


class Streamed(msgspec.Struct, frozen=True, kw_only=True):
    """The streamed text of a running turn's answer: the only copy is in the process that runs it."""

    turn: int
    session_id: str
    after: int  # the last transcript row when it was streamed: with a later one of the agent it is a part of that
    text: str
    shown: str = ""  # what its streaming message says by now, text from before tools were used included


class Finished(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The result of finishing a turn: the reply to send at once, and whether the key has more work."""

    events: tuple[Event, ...]
    reply: Reply | None
    more: bool


# An instance that was closed takes no more work, though its process may not know yet: it stood still, and others took it for dead.
NOT_CLOSED = "NOT EXISTS (SELECT 1 FROM instance i WHERE i.number=$2 AND i.ended_at IS NOT NULL)"
FENCED = "SELECT waiting FROM entry WHERE key=$1 AND fence=$2 AND turn=$3/*lock*/"


OWNED = (
    "SELECT 1 FROM entry e JOIN turn t ON t.id=e.turn"
    " WHERE e.key=$1 AND e.turn=$2 AND t.attempt=$3 AND t.state='running'/*lock*/"
)


def fenced(begun: StartedTurn) -> Op[int]:
    """Lock the entry under the turn's fence; returns how many messages and commands are queued behind the turn."""
    rows = yield sql(FENCED, begun.key, begun.fence, begun.turn)
    if not rows:
        raise fence_lost(begun.key, begun.turn)
    return int(rows[0][0])


def owned(key: str, turn: int, attempt: int) -> Op[None]:
    """Check that the turn still owns its key, for what a tool writes: refused when the key has another turn, or the turn
    another attempt.
    """
    if not (yield sql(OWNED, key, turn, attempt)):
        raise fence_lost(key, turn)


def fence_lost(key: str, turn: int) -> FenceLost:
    """The error of a write that came too late."""
    return FenceLost(f"{key}: the turn {turn} no longer owns its conversation")
