"""Rows of a streaming message: what it shows, where, and how it becomes the answer."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from everturn.model import OUTBOX_MOVES, Bubble, OutboxState, Reply, may_become, sources_of
from everturn.outbox.rows.outbox import COLUMNS, bubble_of, parts_of, reply_of, written
from everturn.outbox.rows.replies import give_own_send_keys, name_of, queue_reply
from everturn.outbox.rules import outbox_texts
from everturn.outbox.rules.delivery import Delivery, UnknownAction
from everturn.outbox.rules.streaming import may_be_seen, resolved, unsettled, with_resend_mark
from everturn.sessions.rows.entries import write_source
from everturn.store.interface import Op, sql
from everturn.turns.rows.turn_values import StartedTurn, fenced

REPLY = "reply"
BROKEN_OFF = "broken_off"  # its turn ended without an answer: the row's text stands beneath what was shown
PAUSED = "paused"  # its turn was interrupted: it streams again, or is broken off
ROW = "SELECT state, kind, parts, bubble FROM outbox WHERE id=$1/*lock*/"
# A process that is just sending it finds another text when it records the send, and goes on with that.
SAY = (
    "UPDATE outbox SET kind=$2, text=$3, due_at=$4, attempts=0, ended_at=NULL, dead_at=NULL,"
    " instance=CASE state WHEN 'sending' THEN instance ELSE NULL END,"
    " state=CASE state WHEN 'sending' THEN 'sending' ELSE 'pending' END"
    f" WHERE id=$1 AND {may_become(OUTBOX_MOVES, OutboxState.PENDING, or_is=True)}"
)
OTHERS = "SELECT 1 FROM outbox WHERE key=$1 AND ended_at IS NULL AND state<>'open' AND id<>$2 LIMIT 1"
TAKEN_FROM = sources_of(OUTBOX_MOVES, OutboxState.SENDING)
# The claim under which this process opened the bubble goes on: what it is just sending is recorded under it.
TAKE = (
    "UPDATE outbox SET kind='reply', text=$2, state='sending', claim=CASE WHEN state='open' AND instance=$3 THEN claim ELSE id END,"
    " instance=$3, due_at=$4, valid_until=$5, attempts=0, ended_at=NULL, dead_at=NULL, look=0"
    f" WHERE id=$1 AND {may_become(OUTBOX_MOVES, OutboxState.SENDING)}"
)
END_HELD = {
    state: f"UPDATE outbox SET state='{state}', kind='reply', text=$2, ended_at=$3, dead_at=$3, instance=NULL, bubble=$4,"
    " asked_at=NULL, error='its first part may have been sent when the gateway ended'"
    f" WHERE id=$1 AND {may_become(OUTBOX_MOVES, state, or_is=True)}/*did*/"
    for state in (OutboxState.UNKNOWN, OutboxState.DEAD)
}


def queue_answer(
    begun: StartedTurn, text: str, at: float, delivery: Delivery, instance: int, *, grew: bool
) -> Op[Reply | None]:
    """Queue an answer, in the turn's bubble if it has one. Returns the reply if this process is to send it at once.

    Not `grew`: nothing of the turn was ever shown, so that it has no bubble.
    """
    # Also where nothing streams at present: an earlier process may have streamed on a platform that is off by now.
    rows = (yield sql(ROW, begun.turn)) if grew and not delivery.by_event else []
    if not rows:
        reply = yield from queue_reply(
            begun.turn, begun.key, begun.turn, REPLY, begun.source, text, at, delivery, instance
        )
        if not grew or not delivery.streams:
            return reply
        bubble = yield from give_own_send_keys(begun.turn)
        return replace(reply, bubble=bubble) if reply is not None and bubble is not None else reply
    state, parts, bubble = rows[0][0], rows[0][2], bubble_of(rows[0][3])
    if bubble is not None and bubble.hold and (yield from _end_held(begun.turn, text, parts, bubble, at)):
        return None
    valid_until = at + delivery.valid_s if delivery.valid_s else None
    if not delivery.send_now or state not in TAKEN_FROM or (yield sql(OTHERS, begun.key, begun.turn)):
        yield sql(SAY, begun.turn, REPLY, text, at)
        left = rows[0][3]
        if bubble is not None and state == "open":  # an edit of its writer may be in flight
            left = written(replace(bubble, unsettled=bubble.opening))
        yield sql("UPDATE outbox SET valid_until=$2, bubble=$3 WHERE id=$1", begun.turn, valid_until, left)
        return None
    yield sql(TAKE, begun.turn, text, instance, at, valid_until)
    return reply_of((yield sql(f"SELECT {COLUMNS} FROM outbox WHERE id=$1", begun.turn))[0])


def _end_held(turn: int, text: str, parts: str, bubble: Bubble, at: float) -> Op[bool]:
    """Keep an answer whose first text may be out and must not be repeated by policy: delivery unknown, or dead letter. False
    where this is no move of its row: its next delivery then comes to the same.
    """
    state = OutboxState.UNKNOWN if bubble.hold == UnknownAction.ASK else OutboxState.DEAD
    kept = written(with_resend_mark(bubble, parts_of(parts)))
    return bool((yield sql(END_HELD[state], turn, text, at if state is OutboxState.DEAD else None, kept)))


def on_screen(turn: int | None) -> Op[str]:
    """The text of the turn's streaming message as of its last commit; empty where nothing of it may be out."""
    rows = yield sql(ROW, turn)
    bubble = bubble_of(rows[0][3]) if rows else None
    return bubble.said if bubble is not None and may_be_seen(bubble, parts_of(rows[0][2])) else ""


def break_off(turn: int | None, text: str, at: float, shown: str = "", *, whole: bool = False) -> Op[None]:
    """End the bubble of a turn that ends without an answer with this text; `whole`: in place of what was shown. `shown` is
    newer than the row's text: the delivery, in this process or the next, shows the same.
    """
    rows = yield sql(ROW, turn)
    if not rows:
        return
    state, kind, parts, bubble = rows[0][0], rows[0][1], parts_of(rows[0][2]), bubble_of(rows[0][3])
    if bubble is None or not (state == "open" or (kind == PAUSED and state in {"pending", "sending", "sent", "dead"})):
        return
    if not may_be_seen(bubble, parts):
        yield sql("DELETE FROM outbox WHERE id=$1", turn)  # nothing of it is out
    elif not bubble.hold or not (yield from _end_held(turn or 0, text, rows[0][2], bubble, at)):
        yield sql(SAY, turn, REPLY if whole else BROKEN_OFF, text, at)
        ended = replace(unsettled(bubble) if state == "open" else bubble, said=shown or bubble.said)
        if ended != bubble:
            yield sql("UPDATE outbox SET bubble=$2 WHERE id=$1", turn, written(ended))


def pause(turn: int, at: float) -> Op[None]:
    """Show in the bubble that the turn is interrupted, until it streams again."""
    rows = yield sql(ROW, turn)
    bubble = bubble_of(rows[0][3]) if rows and rows[0][0] == "open" and parts_of(rows[0][2]) else None
    if bubble is not None:
        yield sql(SAY, turn, PAUSED, outbox_texts.PAUSED, at)
        yield sql("UPDATE outbox SET bubble=$2 WHERE id=$1", turn, written(unsettled(bubble)))


def is_being_sent(turn: int) -> Op[bool]:
    """Whether a process is just sending the 'interrupted' line of the bubble; a moment later it can be detached."""
    rows = yield sql(ROW, turn)
    return bool(rows) and rows[0][0] == "sending"


def detach_bubble(begun: StartedTurn, number: int, said: str, at: float) -> Op[None]:
    """Detach the bubble from its turn before an approval request: it stays as it is, under a number of its own, and the
    answer gets another one. Text that is not shown yet is queued before the request.
    """
    rows = yield sql(ROW, begun.turn)
    bubble = bubble_of(rows[0][3]) if rows and (rows[0][1] == PAUSED or rows[0][0] == "open") else None
    if bubble is not None and may_be_seen(bubble, parts_of(rows[0][2])):
        kept = written(replace(unsettled(bubble) if rows[0][0] == "open" else bubble, said=said or bubble.said))
        yield sql("UPDATE outbox SET id=$2, bubble=$3 WHERE id=$1", begun.turn, number, kept)
        yield sql(SAY, number, BROKEN_OFF, "", at)
        return
    if bubble is not None:
        yield sql("DELETE FROM outbox WHERE id=$1", begun.turn)
    if said.strip():
        yield from queue_reply(
            number, begun.key, begun.turn, REPLY, begun.source, said, at, Delivery(by_event=False), 0
        )


# Opening a streaming message: its outbox row is stored before the first text is sent, and the message id after it.


OPEN = (
    "INSERT INTO outbox (id, key, turn, kind, platform, source, text, state, due_at, instance, created_at, bubble, claim)"
    " VALUES ($1, $2, $1, 'reply', $3, $4, '', 'open', $5, $6, $5, $7, $8) ON CONFLICT (id) DO NOTHING"
)
OPEN_AGAIN = (
    "UPDATE outbox SET state='open', kind='reply', text='', instance=$2, ended_at=NULL, error=NULL, bubble=$3, claim=$4"
    f" WHERE id=$1 AND {may_become(OUTBOX_MOVES, OutboxState.OPEN, or_is=True)}"
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
    sending = None if parts or bubble.hold else 0
    bubble = replace(bubble, opening=opening.number, sending=sending, shown=())  # only its writer knows what it shows
    yield sql(OPEN_AGAIN, begun.turn, opening.instance, written(bubble), opening.number)
    return Closed(for_good=True) if bubble.hold is not None else Opened(parts=parts, bubble=bubble)


def still_ours(begun: StartedTurn, opening: int) -> Op[bool]:
    """Whether this attempt still owns the bubble: checked before each change that is sent."""
    return bool((yield sql(STILL_OURS, begun.turn, opening, begun.fence)))


def asked_calls(turn: int) -> Op[frozenset[str]]:
    """The tool calls with an approval request: the text until then stands above the request."""
    rows = yield sql("SELECT call_id FROM approval WHERE turn=$1", turn)
    return frozenset(row[0] for row in rows)
