"""Failed tries to deliver a reply: each is kept as long as the reply, also when it is sent again later."""

from __future__ import annotations

from everturn.model import Json
from everturn.store.interface import Op, sql

LATER, DEAD_LETTER, UNKNOWN = "later", "dead", "unknown"
MOST_LATER = 50
# A claim leaves its time in `due_at`. What leaves with the finish of its turn was not claimed, and is due since then.
BEING_SENT = (
    "SELECT attempts, due_at FROM outbox WHERE id=$1 AND state='sending' AND claim=coalesce($2, claim)"
    " AND kind<>'progress'/*lock*/"
)
# A reply has the number of its turn: its tries count down from -1, the turn's own failures have positive numbers that grow.
KEEP = (
    "INSERT INTO failure (turn, number, attempt, kind, why, wait_s, at)"
    " VALUES ($1, (SELECT -count(*)-1 FROM failure WHERE turn=$1), $2, $3, $4, 0, $5)"
)
ATTEMPTS_COUNTED = (
    "(SELECT count(*) FROM failure f WHERE f.turn=outbox.id AND f.number<0),"
    " (SELECT max(f.at) FROM failure f WHERE f.turn=outbox.id AND f.number<0),"
    f" (SELECT count(*) FROM failure f WHERE f.turn=outbox.id AND f.number<0 AND f.kind='{DEAD_LETTER}')"
)


def note_try(reply: int, kind: str, why: str, claim: int | None = None) -> Op[None]:
    """Record a failed try before the reply leaves the state 'sending'. A second run finds the state changed. Without a
    claim: whichever process sends it.
    """
    if not why:  # it was claimed and never sent
        return
    for attempts, at in (yield sql(BEING_SENT, reply, claim)):
        if kind == LATER and attempts > MOST_LATER:  # a platform may ask to wait for hours: what is kept is bounded
            return
        yield sql(KEEP, reply, max(1, attempts), kind, why, at)


def tries_of(reply: int) -> Op[list[Json]]:
    """The failed tries of a reply, in order."""
    rows = yield sql("SELECT kind, why, at FROM failure WHERE turn=$1 AND number<0 ORDER BY number DESC", reply)
    return [dict(zip(("kind", "why", "at"), row, strict=True)) for row in rows]
