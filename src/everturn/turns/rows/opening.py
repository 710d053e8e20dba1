"""What an agent that asks a model wants to know of its turn before the first request, in one read."""

from __future__ import annotations

from collections.abc import Sequence

from everturn.inbox.rows.attachments import extras_of_messages
from everturn.model import HistoryPosition, TurnOpening
from everturn.sessions.rows.entries import rows_of_revision
from everturn.store.interface import Op, sql

SESSION = "SELECT s.revision, s.compact_wanted, f.text FROM session s LEFT JOIN frozen f ON f.hash=s.frozen WHERE s.session_id=$1"


def read_opening(known: HistoryPosition, inbox: Sequence[int]) -> Op[TurnOpening]:
    """Read the session's prompt, the rows behind a position, and the extras of these messages."""
    rows = yield sql(SESSION, known.session_id)
    revision, wanted, frozen = rows[0] if rows else (0, 0, None)
    extras = yield from extras_of_messages(inbox)
    return TurnOpening(frozen=frozen, extras=extras, history=(yield from rows_of_revision(known, revision, wanted)))
