"""Replies that may or may not be out, where the owner wants people to decide: their chat is asked once, and answers."""

from __future__ import annotations

from everturn.decide import doubt_words
from everturn.store.interface import Op, sql
from everturn.store.operations.command_values import Asked
from everturn.store.operations.outbox import DOUBT, MARK_SENT, SEND_AGAIN
from everturn.store.operations.telling import Delivery, owe, stored_source

IN_DOUBT = "SELECT id, platform, source, asked_at FROM outbox WHERE key=$1 AND ended_at IS NULL AND state='doubtful' ORDER BY id/*lock*/"
# Only a question that has been on the screen for so long was left by those who saw it.
LEFT = (
    "SELECT id FROM outbox WHERE ended_at IS NULL AND state='doubtful' AND asked_at<$1 AND EXISTS (SELECT 1 FROM outbox q"
    " WHERE q.turn=outbox.id AND q.kind='doubt' AND q.state='sent' AND q.created_at>=outbox.asked_at AND q.ended_at<$1)"
    " ORDER BY id LIMIT 500/*lock*/"
)


def ask_about_doubt(key: str, number: int, at: float) -> Op[bool]:
    """Owe a chat the question about its oldest reply in doubt of which it was not asked; False when there is none."""
    if (yield sql("SELECT 1 FROM outbox WHERE id=$1", number)):
        return True  # this operation ran before
    rows = [row for row in (yield sql(IN_DOUBT, key)) if row[3] is None]
    if not rows:
        return False
    reply, platform, source, _ = rows[0]
    yield sql("UPDATE outbox SET asked_at=$2 WHERE id=$1", reply, at)
    to, text = stored_source(source, platform), doubt_words.question(reply)
    yield from owe(number, key, reply, DOUBT, to, text, at, Delivery(by_event=False), 0)
    return True


def expire_doubts(before: float, at: float) -> Op[int]:
    """The chats were told to leave what had arrived, and left these: they count as sent. Returns how many."""
    rows = yield sql(LEFT, before)
    for (reply,) in rows:
        yield sql(MARK_SENT, reply, at)
    return len(rows)


def resend(asked: Asked) -> Op[str]:
    """/resend: send a reply of this chat again that may not have arrived, or leave it."""
    named, arrived = doubt_words.answer_of(asked.command.argument)
    rows = [row[0] for row in (yield sql(IN_DOUBT, asked.key)) if named in {None, row[0]}]
    if not rows:
        return doubt_words.NOT_OPEN if named else doubt_words.NOTHING
    yield sql(MARK_SENT if arrived else SEND_AGAIN, rows[0], asked.at)
    return doubt_words.LEFT if arrived else doubt_words.SENT_AGAIN
