"""The bubble of a turn: one outbox row for what is shown while the answer grows and for the answer itself. Its number is
the turn's. How it ends is a part of the transaction that ends the turn, under the same fence.
"""

from __future__ import annotations

from msgspec.structs import replace

from everturn.decide import bubble_words
from everturn.decide.delivery import Doubtful
from everturn.decide.streaming import given_up
from everturn.model import Bubble, Reply
from everturn.store.interface import Op, sql
from everturn.store.operations.outbox import COLUMNS, bubble_of, parts_of, reply_of, written
from everturn.store.operations.telling import Delivery, owe
from everturn.store.operations.turn_values import Begun

REPLY = "reply"
BROKEN_OFF = "broken_off"  # its turn ended without an answer: its text stands beneath what was said
PAUSED = "paused"  # its turn was interrupted: it grows again, or is broken off
ROW = "SELECT state, kind, parts, bubble FROM outbox WHERE id=$1/*lock*/"
# A sender that has it in hand finds other words when it records what it did, and goes on with them.
SAY = (
    "UPDATE outbox SET kind=$2, text=$3, due_at=$4, attempts=0, ended_at=NULL, dead_at=NULL,"
    " instance=CASE state WHEN 'sending' THEN instance ELSE NULL END,"
    " state=CASE state WHEN 'sending' THEN 'sending' ELSE 'owed' END WHERE id=$1"
)
OTHERS = "SELECT 1 FROM outbox WHERE key=$1 AND ended_at IS NULL AND state<>'open' AND id<>$2 LIMIT 1"
# The claim under which this process opened the bubble goes on: what it is just sending is recorded under it.
TAKE = (
    "UPDATE outbox SET kind='reply', text=$2, state='sending', claim=CASE WHEN state='open' AND instance=$3 THEN claim ELSE id END,"
    " instance=$3, due_at=$4, valid_until=$5, attempts=0, ended_at=NULL, dead_at=NULL, look=0 WHERE id=$1"
)


def name_of(turn: int) -> Op[str]:
    """What the send keys of the turn's next bubble begin with: each question to a person begins a new one beneath it."""
    rows = yield sql("SELECT count(*) FROM approval WHERE turn=$1", turn)
    return f"{turn}.{rows[0][0]}" if rows[0][0] else str(turn)


def owe_answer(
    begun: Begun, text: str, at: float, delivery: Delivery, instance: int, *, grew: bool
) -> Op[Reply | None]:
    """The obligation to deliver an answer: in the turn's bubble if it has one. The reply when it is ours to send at once.

    Not `grew`: nothing of the turn was ever shown, so that it has no bubble.
    """
    # Also where nothing grows at present: an earlier life may have shown first words on a platform that is off by now.
    rows = (yield sql(ROW, begun.turn)) if grew and not delivery.by_event else []
    if not rows:
        reply = yield from owe(begun.turn, begun.key, begun.turn, REPLY, begun.source, text, at, delivery, instance)
        return (yield from _named(begun.turn, reply)) if grew and delivery.streams else reply
    state, bubble = rows[0][0], bubble_of(rows[0][3])
    if bubble is not None and bubble.hold is not None:
        yield from _in_doubt(begun.turn, text, rows[0][2], bubble, at)
        return None
    valid_until = at + delivery.valid_s if delivery.valid_s else None
    if state == "sending" or not delivery.send_now or (yield sql(OTHERS, begun.key, begun.turn)):
        yield sql(SAY, begun.turn, REPLY, text, at)
        yield sql("UPDATE outbox SET valid_until=$2 WHERE id=$1", begun.turn, valid_until)
        return None
    yield sql(TAKE, begun.turn, text, instance, at, valid_until)
    return reply_of((yield sql(f"SELECT {COLUMNS} FROM outbox WHERE id=$1", begun.turn))[0])


def _named(turn: int, reply: Reply | None) -> Op[Reply | None]:
    """Where an earlier bubble of the turn was left above a question, this answer has send keys of its own."""
    name = yield from name_of(turn)
    if name == str(turn):
        return reply
    bubble = Bubble(name=name)
    yield sql("UPDATE outbox SET bubble=$2 WHERE id=$1", turn, written(bubble))
    return None if reply is None else replace(reply, bubble=bubble)


def _in_doubt(turn: int, text: str, parts: str, bubble: Bubble, at: float) -> Op[None]:
    """Its first words may be out, and the owner's policy is not to send them again: the answer is kept, visibly."""
    asks = bubble.hold == Doubtful.ASK
    yield sql(
        "UPDATE outbox SET kind='reply', text=$2, state=$3, ended_at=$4, dead_at=$4, instance=NULL, bubble=$5, asked_at=NULL,"
        " error='its first words may have been sent when the gateway ended' WHERE id=$1",
        turn, text, "doubtful" if asks else "dead", None if asks else at, written(given_up(bubble, len(parts_of(parts)))),
    )  # fmt: skip


def on_screen(turn: int | None) -> Op[str]:
    """What the turn's streaming message says, as of its last commit; nothing where nothing of it may be out."""
    rows = yield sql(ROW, turn)
    bubble = bubble_of(rows[0][3]) if rows else None
    return bubble.said if bubble is not None and (parts_of(rows[0][2]) or bubble.sending is not None) else ""


def break_off(turn: int | None, words: str, at: float, shown: str = "", *, whole: bool = False) -> Op[None]:
    """The turn ends without an answer: what its bubble says at last. `whole`: in place of what was said. `shown` is newer
    than what the row knows of it: whoever delivers its last shape, in this process or the next, shows the same.
    """
    rows = yield sql(ROW, turn)
    if not rows:
        return
    state, kind, parts, bubble = rows[0][0], rows[0][1], parts_of(rows[0][2]), bubble_of(rows[0][3])
    if bubble is None or not (state == "open" or (kind == PAUSED and state in {"owed", "sending", "sent", "dead"})):
        return
    if not parts and bubble.sending is None:
        yield sql("DELETE FROM outbox WHERE id=$1", turn)  # nothing of it is out
    elif bubble.hold is not None:
        yield from _in_doubt(turn or 0, words, rows[0][2], bubble, at)
    else:
        yield sql(SAY, turn, REPLY if whole else BROKEN_OFF, words, at)
        if shown and shown != bubble.said:
            yield sql("UPDATE outbox SET bubble=$2 WHERE id=$1", turn, written(replace(bubble, said=shown)))


def pause(turn: int, at: float) -> Op[None]:
    """The turn is interrupted: what is on the screen says so until it grows again."""
    rows = yield sql(ROW, turn)
    if rows and rows[0][0] == "open" and parts_of(rows[0][2]):
        yield sql(SAY, turn, PAUSED, bubble_words.PAUSED, at)


def in_hand(turn: int) -> Op[bool]:
    """Whether somebody is just showing that the turn was interrupted: a moment later its bubble can be set aside."""
    rows = yield sql(ROW, turn)
    return bool(rows) and rows[0][0] == "sending"


def set_aside(begun: Begun, number: int, said: str, at: float) -> Op[None]:
    """A question follows: the bubble stays as it is, under a number of its own, and the answer gets another one. What was
    said and is not on the screen yet is owed before the question.
    """
    rows = yield sql(ROW, begun.turn)
    bubble = bubble_of(rows[0][3]) if rows and (rows[0][1] == PAUSED or rows[0][0] == "open") else None
    if bubble is not None and (parts_of(rows[0][2]) or bubble.sending is not None):
        kept = written(replace(bubble, said=said or bubble.said))
        yield sql("UPDATE outbox SET id=$2, bubble=$3 WHERE id=$1", begun.turn, number, kept)
        yield sql(SAY, number, BROKEN_OFF, "", at)
        return
    if bubble is not None:
        yield sql("DELETE FROM outbox WHERE id=$1", begun.turn)
    if said.strip():
        yield from owe(number, begun.key, begun.turn, REPLY, begun.source, said, at, Delivery(by_event=False), 0)
