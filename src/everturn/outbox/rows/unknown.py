"""Replies with unknown delivery, where the policy is to ask: their chat gets one delivery request, and answers it."""

from __future__ import annotations

from everturn.commands.rows.values import CommandCall
from everturn.outbox.rows.notices import queue_reply, stored_source
from everturn.outbox.rows.outbox import DELIVERY_REQUEST, MARK_SENT, SEND_AGAIN
from everturn.outbox.rules import unknown_texts
from everturn.outbox.rules.delivery import Delivery
from everturn.store.interface import Op, sql

UNKNOWN = "SELECT id, platform, source, asked_at FROM outbox WHERE key=$1 AND ended_at IS NULL AND state='unknown' ORDER BY id/*lock*/"
# A request counts as left unanswered only if it was sent that long ago.
LEFT = (
    "SELECT id FROM outbox WHERE ended_at IS NULL AND state='unknown' AND asked_at<$1 AND EXISTS (SELECT 1 FROM outbox q"
    " WHERE q.turn=outbox.id AND q.kind='delivery_request' AND q.state='sent' AND q.created_at>=outbox.asked_at AND q.ended_at<$1)"
    " ORDER BY id LIMIT 500/*lock*/"
)


def ask_about_delivery(key: str, number: int, at: float) -> Op[bool]:
    """Queue a delivery request for the chat's oldest unknown reply without one; False when there is none."""
    if (yield sql("SELECT 1 FROM outbox WHERE id=$1", number)):
        return True  # this operation ran before
    rows = [row for row in (yield sql(UNKNOWN, key)) if row[3] is None]
    if not rows:
        return False
    reply, platform, source, _ = rows[0]
    yield sql("UPDATE outbox SET asked_at=$2 WHERE id=$1", reply, at)
    to, text = stored_source(source, platform), unknown_texts.request(reply)
    yield from queue_reply(number, key, reply, DELIVERY_REQUEST, to, text, at, Delivery(by_event=False), 0)
    return True


def expire_unknown_deliveries(before: float, at: float) -> Op[int]:
    """Mark as sent the replies whose delivery request was left unanswered: the request says so. Returns how many."""
    rows = yield sql(LEFT, before)
    for (reply,) in rows:
        yield sql(MARK_SENT, reply, at)
    return len(rows)


def resend(asked: CommandCall) -> Op[str]:
    """/resend: send a reply of this chat again that may not have arrived, or leave it."""
    named, arrived = unknown_texts.answer_of(asked.command.argument)
    rows = [row[0] for row in (yield sql(UNKNOWN, asked.key)) if named in {None, row[0]}]
    if not rows:
        return unknown_texts.NOT_OPEN if named else unknown_texts.NOTHING
    yield sql(MARK_SENT if arrived else SEND_AGAIN, rows[0], asked.at)
    return unknown_texts.LEFT if arrived else unknown_texts.SENT_AGAIN
