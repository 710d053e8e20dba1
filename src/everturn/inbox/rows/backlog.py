"""Backlog rows: messages sent while the gateway was disconnected. They wait until all are there, then the policy applies."""

from __future__ import annotations

import msgspec

from everturn.commands.rows.values import CommandCall
from everturn.inbox.rules.backlog import BACKLOG_REQUEST, BACKLOG_REQUEST_OF_ONE, QUIET_S, before_newest, count, settle
from everturn.inbox.rules.busy import BusyMode
from everturn.model import SessionSource
from everturn.outbox.rows.notices import queue_notice, queue_reply
from everturn.outbox.rules.delivery import Delivery
from everturn.people.rules import admission_texts
from everturn.sessions.rows.entries import lock_entry, source_of
from everturn.store.interface import Op, Row, sql

COLLECTING = "collecting"  # it waits until the whole backlog is there
ASKED = "asked"  # its sender was asked
NEWEST = "newest"  # the argument of /answer
EXPIRED = "backlog"  # why it ended
TOO_OLD = "too_old"
ROWS = (
    "SELECT id, source, accepted_at, album FROM inbox WHERE key=$1 AND backlog=$2 AND ended_at IS NULL AND state='queued'"
    " ORDER BY place"
)
END = "UPDATE inbox SET state=$2, ended_at=$3, why=$4, backlog=NULL WHERE id=$1 AND state='queued' RETURNING id"


class Backlogged(msgspec.Struct, frozen=True):
    """The result of settling a backlog: when to try again, and whether a reply is pending."""

    later: float | None = None
    spoke: bool = False


def notify_once(key: str, outage_id: int, notice: int, source: SessionSource, text: str, at: float) -> Op[bool]:
    """Queue one notice per outage that not everything here is answered. The entry is locked."""
    first = yield sql(
        "UPDATE entry SET backlog_notice=$2 WHERE key=$1 AND (backlog_notice IS NULL OR backlog_notice<>$2) RETURNING key",
        key, outage_id,
    )  # fmt: skip
    if first:
        yield from queue_notice(notice, key, source, text, EXPIRED, at, Delivery(by_event=False))
    return bool(first)


def settle_backlog(key: str, policy: str, instance: int, outage_id: int, notice: int, at: float) -> Op[Backlogged]:
    """Apply the policy to a backlog once no more messages come: answer, expire, or ask the sender."""
    entry = yield from lock_entry(key)
    rows = yield sql(ROWS, key, COLLECTING)
    if entry is None or not rows:
        return Backlogged(spoke=bool((yield sql("SELECT 1 FROM outbox WHERE id=$1", notice))))  # it ran before
    quiet = rows[-1][2] + QUIET_S
    if at < quiet <= at + QUIET_S:  # a clock that was set back makes nobody wait longer
        return Backlogged(later=quiet)
    source = source_of(rows[-1][1]) or entry.origin or SessionSource(platform="")
    came = count(albums := [row[3] for row in rows])
    settled, spoke = settle(policy, came), False
    if settled.ask:
        yield sql(
            "UPDATE inbox SET backlog=$2 WHERE key=$1 AND backlog=$3 AND ended_at IS NULL", key, ASKED, COLLECTING
        )
        kind, text = (BACKLOG_REQUEST if came > 1 else BACKLOG_REQUEST_OF_ONE), admission_texts.answer_them(came)
        yield from queue_reply(notice, key, None, kind, source, text, at, Delivery(by_event=False), instance)
        return Backlogged(spoke=True)
    if settled.newest:
        yield from end_backlog(key, rows[: before_newest(albums)], "expired", EXPIRED, at)
        spoke = yield from notify_once(key, outage_id, notice, source, admission_texts.only_newest(), at)
    busy = BusyMode.COLLECT.value if settled.together else None
    yield sql(
        "UPDATE inbox SET backlog=NULL, busy=coalesce($2, busy) WHERE key=$1 AND backlog=$3 AND ended_at IS NULL",
        key,
        busy,
        COLLECTING,
    )
    return Backlogged(spoke=spoke)


def end_backlog(key: str, rows: list[Row], state: str, why: str, at: float) -> Op[int]:
    """End backlog messages unanswered. The entry is locked."""
    ended = 0
    for row in rows:
        ended += len((yield sql(END, row[0], state, at, why)))
    if ended:
        yield sql("UPDATE entry SET waiting=waiting-$2 WHERE key=$1", key, ended)
    return ended


def collecting_keys() -> Op[list[str]]:
    """The keys whose backlog is being collected."""
    rows = yield sql("SELECT DISTINCT key FROM inbox WHERE backlog='collecting' AND ended_at IS NULL")
    return [row[0] for row in rows]


def asked_before(time: float) -> Op[list[str]]:
    """The keys with an open backlog request and messages from before a time."""
    rows = yield sql(
        "SELECT DISTINCT key FROM inbox WHERE backlog IS NOT NULL AND backlog='asked' AND ended_at IS NULL AND accepted_at<$1",
        time,
    )
    return [row[0] for row in rows]


def expire_asked(key: str, before: float, notice: int, at: float) -> Op[int]:
    """Expire messages whose backlog request nobody answered, and queue a notice for their sender."""
    yield from lock_entry(key)
    rows = [row for row in (yield sql(ROWS, key, ASKED)) if row[2] < before]
    source = source_of(rows[-1][1]) if rows else None
    if source is not None:
        text = admission_texts.not_asked_for(count([row[3] for row in rows]))
        yield from queue_notice(notice, key, source, text, EXPIRED, at, Delivery(by_event=False))
    return (yield from end_backlog(key, rows, "expired", EXPIRED, at))


def answer(asked: CommandCall) -> Op[str]:
    """/answer: answer the backlog, one by one; or only the newest message, and the others are withdrawn."""
    word = asked.command.argument.strip().casefold()
    if word not in {"", NEWEST}:
        return admission_texts.newest_only()
    rows = yield sql(ROWS, asked.key, ASKED)
    if word == NEWEST:
        left = before_newest([row[3] for row in rows])
        yield from end_backlog(asked.key, rows[:left], "withdrawn", f"/answer {NEWEST}", asked.at)
        rows = rows[left:]
    yield sql("UPDATE inbox SET backlog=NULL WHERE key=$1 AND backlog=$2 AND ended_at IS NULL", asked.key, ASKED)
    return admission_texts.answering(count([row[3] for row in rows]))


def skip(asked: CommandCall) -> Op[str]:
    """/skip: withdraw the backlog, by its sender."""
    rows = yield sql(ROWS, asked.key, ASKED)
    yield from end_backlog(asked.key, rows, "withdrawn", "/skip", asked.at)
    return admission_texts.skipped(count([row[3] for row in rows]))
