"""Opening a streaming message: its outbox row is stored before the first text is sent, and the message id after it."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from everturn.model import Bubble
from everturn.outbox.rows.bubbles import ROW, name_of
from everturn.outbox.rows.outbox import bubble_of, parts_of, written
from everturn.outbox.rules.delivery import UnknownAction
from everturn.outbox.rules.streaming import resolved
from everturn.sessions.rows.entries import write_source
from everturn.store.interface import Op, sql
from everturn.turns.rows.turn_values import StartedTurn, fenced

OPEN = (
    "INSERT INTO outbox (id, key, turn, kind, platform, source, text, state, due_at, instance, created_at, bubble, claim)"
    " VALUES ($1, $2, $1, 'reply', $3, $4, '', 'open', $5, $6, $5, $7, $8) ON CONFLICT (id) DO NOTHING"
)
OPEN_AGAIN = (
    "UPDATE outbox SET state='open', kind='reply', text='', instance=$2, ended_at=NULL, error=NULL, bubble=$3, claim=$4"
    " WHERE id=$1"
)
# The lane of the outbox: what is pending for the chat leaves first, as it would before an answer that does not stream.
EARLIER = "SELECT 1 FROM outbox WHERE key=$1 AND ended_at IS NULL AND state IN ('pending','sending') AND id<>$2 LIMIT 1"

STILL_OURS = (
    "SELECT 1 FROM outbox o JOIN entry e ON e.key=o.key"
    " WHERE o.id=$1 AND o.state='open' AND o.claim=$2 AND e.turn=$1 AND e.fence=$3"
)


class Opening(msgspec.Struct, frozen=True, kw_only=True):
    """What opening a bubble needs; `number` is made by the caller, and is the claim under which the bubble is shown."""

    number: int
    instance: int
    at: float
    on_unknown: UnknownAction  # what the platform's class and the owner's policy say of a first part that may be out


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """A bubble that this attempt may show."""

    parts: tuple[str, ...]
    bubble: Bubble


class Closed(msgspec.Struct, frozen=True):
    """The bubble cannot be shown now; `for_good`: nor later in this attempt."""

    for_good: bool


def open_bubble(begun: StartedTurn, opening: Opening) -> Op[Opened | Closed]:
    """Open the turn's bubble, or continue the one that an earlier attempt left."""
    yield from fenced(begun)
    rows = yield sql(ROW, begun.turn)
    if not rows:
        if (yield sql(EARLIER, begun.key, begun.turn)):
            return Closed(for_good=False)
        bubble = Bubble(name=(yield from name_of(begun.turn)), opening=opening.number, sending=0)
        source = write_source(begun.source).decode()
        yield sql(
            OPEN, begun.turn, begun.key, begun.source.platform, source, opening.at, opening.instance, written(bubble),
            opening.number,
        )  # fmt: skip
        return Opened(parts=(), bubble=bubble)
    state, _, parts, left = rows[0][0], rows[0][1], parts_of(rows[0][2]), bubble_of(rows[0][3])
    if left is None or state not in {"open", "pending", "sent"}:
        return Closed(for_good=left is None or state != "sending")
    if left.opening == opening.number:  # this operation ran before
        return Closed(for_good=True) if left.hold is not None else Opened(parts=parts, bubble=left)
    if not parts and (yield sql(EARLIER, begun.key, begun.turn)):
        return Closed(for_good=False)
    return (yield from _open_again(begun, parts, left, opening))


def _open_again(begun: StartedTurn, parts: tuple[str, ...], left: Bubble, opening: Opening) -> Op[Opened | Closed]:
    """Decide about a part of the earlier attempt whose delivery is unknown; if no part is out, the first is sent next."""
    bubble = resolved(left, opening.on_unknown)
    bubble = replace(bubble, opening=opening.number, sending=None if parts or bubble.hold else 0)
    yield sql(OPEN_AGAIN, begun.turn, opening.instance, written(bubble), opening.number)
    return Closed(for_good=True) if bubble.hold is not None else Opened(parts=parts, bubble=bubble)


def still_ours(begun: StartedTurn, opening: int) -> Op[bool]:
    """Whether this attempt still owns the bubble: checked before each change that is sent."""
    return bool((yield sql(STILL_OURS, begun.turn, opening, begun.fence)))


def asked_calls(turn: int) -> Op[frozenset[str]]:
    """The tool calls with an approval request: the text until then stands above the request."""
    rows = yield sql("SELECT call_id FROM approval WHERE turn=$1", turn)
    return frozenset(row[0] for row in rows)
