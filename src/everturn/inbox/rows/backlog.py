"""Rows of messages that wait or take over: the backlog of an outage, and a newer message that interrupts or takes back a turn."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from everturn.commands.rows.values import CommandCall
from everturn.inbox.rules import (
    BACKLOG_REQUEST,
    BACKLOG_REQUEST_OF_ONE,
    QUIET_S,
    TAKES_OVER,
    BusyMode,
    before_newest,
    count,
    settle,
)
from everturn.model import InboxState, SessionEntry, SessionSource
from everturn.outbox.rows.replies import Fact, fact, queue_notice, queue_reply
from everturn.outbox.rules.delivery import Delivery
from everturn.people.rules import people_texts
from everturn.sessions.rows.boundaries import acknowledge_tail, end_open_turn, release
from everturn.sessions.rows.entries import REVISED, calls_of, lock_entry, source_of
from everturn.sessions.rules.notes import Undone
from everturn.store.interface import Op, Row, sql
from everturn.turns.rows.turn_values import Streamed

COLLECTING = "collecting"  # it waits until the whole backlog is there
ASKED = "asked"  # its sender was asked
NEWEST = "newest"  # the argument of /answer
EXPIRED = "backlog"  # why it ended
TOO_OLD = "too_old"
ROWS = (
    "SELECT id, source, accepted_at, album FROM inbox WHERE key=$1 AND backlog=$2 AND ended_at IS NULL AND state='queued'"
    " ORDER BY place"
)
END: dict[str, str] = {
    state: f"UPDATE inbox SET state='{state}', ended_at=$2, why=$3, backlog=NULL WHERE id=$1 AND state='queued' RETURNING id"
    for state in (InboxState.EXPIRED, InboxState.WITHDRAWN)
}


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
        kind, text = (BACKLOG_REQUEST if came > 1 else BACKLOG_REQUEST_OF_ONE), people_texts.answer_them(came)
        yield from queue_reply(notice, key, None, kind, source, text, at, Delivery(by_event=False), instance)
        return Backlogged(spoke=True)
    if settled.newest:
        yield from end_backlog(key, rows[: before_newest(albums)], "expired", EXPIRED, at)
        spoke = yield from notify_once(key, outage_id, notice, source, people_texts.only_newest(), at)
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
        ended += len((yield sql(END[state], row[0], at, why)))
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
        text = people_texts.not_asked_for(count([row[3] for row in rows]))
        yield from queue_notice(notice, key, source, text, EXPIRED, at, Delivery(by_event=False))
    return (yield from end_backlog(key, rows, "expired", EXPIRED, at))


def answer(asked: CommandCall) -> Op[str]:
    """/answer: answer the backlog, one by one; or only the newest message, and the others are withdrawn."""
    word = asked.command.argument.strip().casefold()
    if word not in {"", NEWEST}:
        return people_texts.newest_only()
    rows = yield sql(ROWS, asked.key, ASKED)
    if word == NEWEST:
        left = before_newest([row[3] for row in rows])
        yield from end_backlog(asked.key, rows[:left], "withdrawn", f"/answer {NEWEST}", asked.at)
        rows = rows[left:]
    yield sql("UPDATE inbox SET backlog=NULL WHERE key=$1 AND backlog=$2 AND ended_at IS NULL", asked.key, ASKED)
    return people_texts.answering(count([row[3] for row in rows]))


def skip(asked: CommandCall) -> Op[str]:
    """/skip: withdraw the backlog, by its sender."""
    rows = yield sql(ROWS, asked.key, ASKED)
    yield from end_backlog(asked.key, rows, "withdrawn", "/skip", asked.at)
    return people_texts.skipped(count([row[3] for row in rows]))


# Takeover: a newer message ends the open turn of its key (interrupt or rollback), in the transaction that stores it.


# A turn's rows stand at the end of its session; in a copy of them (a branch, a compaction) they may stand anywhere.
HIDE = (
    "UPDATE message SET hidden=1 WHERE session_id=$1 AND turn=$2 AND hidden=0"
    " AND seq>=coalesce((SELECT t.first_seq FROM turn t WHERE t.id=$2 AND t.session_id=$1), 1)"
)
REMEMBERED = 5  # turns rolled back in a row whose effects the next one sees
_encode = msgspec.json.Encoder().encode


def take_over(entry: SessionEntry, busy: BusyMode, at: float, by: int, streamed: Streamed | None = None) -> Op[Fact]:
    """End the key's open turn and release the key; late writers lose their fence. Returns the fact for watchers. `by` is the
    message, or the next turn, that ends it.
    """
    state = "rolled_back" if busy is BusyMode.ROLLBACK else "stopped"
    why = "rolled back" if busy is BusyMode.ROLLBACK else "interrupted"
    yield from end_open_turn(entry, state, "withdrawn", why, at, streamed=streamed, by=by)
    if busy is BusyMode.ROLLBACK:
        yield from take_back(entry, [entry.turn or 0])
        yield from release(entry)
        yield sql(
            "UPDATE entry SET state='active', reason=NULL, marked_at=NULL WHERE key=$1 AND state<>'suspended'",
            entry.key,
        )
    else:
        yield from release(entry)
        yield from acknowledge_tail(entry, at)
    return fact("turn", at, turn=str(entry.turn), state=state, why=why)


def take_back(entry: SessionEntry, turns: Sequence[int]) -> Op[int]:
    """Hide the rows of rolled-back turns; what their tools did stays known until a turn has answered. Returns how many calls
    happened, or may have.
    """
    effects, remembered = 0, entry.rolled_back
    for turn in turns:
        yield sql(HIDE, entry.session_id, turn)
        rows = yield sql("SELECT count(*) FROM effect WHERE turn=$1", turn)
        effects += int(rows[0][0])
        remembered = (*remembered, turn) if rows[0][0] else remembered
    yield sql(REVISED, entry.session_id)
    if effects:
        kept = _encode(remembered[-REMEMBERED:]).decode()
        yield sql("UPDATE entry SET rolled_back=$2 WHERE key=$1", entry.key, kept)
    return effects


def pop_takeover(key: str) -> Op[BusyMode | None]:
    """Take the busy mode of a queued message that ends the turn which would resume now; it is returned once."""
    rows = yield sql(
        "SELECT id, busy FROM inbox WHERE key=$1 AND ended_at IS NULL AND state='queued'"
        " AND busy IN ('interrupt','rollback') ORDER BY place LIMIT 1",
        key,
    )
    if not rows:
        return None
    yield sql(
        "UPDATE inbox SET busy='steer' WHERE key=$1 AND ended_at IS NULL AND busy IN ('interrupt','rollback')", key
    )
    busy = BusyMode(rows[0][1])
    return busy if busy in TAKES_OVER else None


def undone(entry: SessionEntry) -> Op[list[Undone]]:
    """The tool calls of the rolled-back turns: they did happen."""
    found: list[Undone] = []
    for turn in entry.rolled_back:
        effects = yield sql("SELECT call_id, name, state FROM effect WHERE turn=$1 ORDER BY begun_at, call_id", turn)
        rows = yield sql(
            "SELECT m.calls FROM turn t JOIN message m ON m.session_id=t.session_id AND m.seq>=t.first_seq"
            " AND m.turn=t.id WHERE t.id=$1 AND m.calls IS NOT NULL ORDER BY m.seq",
            turn,
        )
        arguments = {call.id: call.arguments for row in rows for call in calls_of(row[0])}
        found += [Undone(name, arguments.get(call, ""), known=state == "done") for call, name, state in effects]
    return found


def ended_by(key: str, number: int) -> Op[int | None]:
    """For an operation that runs twice: the turn its first run ended wrote the last row of the session it left."""
    rows = yield sql(
        "SELECT t.id FROM entry e JOIN turn t ON t.state IN ('stopped','rolled_back') AND t.ended_by=$2 AND t.id IN"
        " ((SELECT m.turn FROM message m WHERE m.session_id=e.session_id ORDER BY m.seq DESC LIMIT 1),"
        "  (SELECT m.turn FROM message m WHERE m.session_id=e.previous_session_id ORDER BY m.seq DESC LIMIT 1))"
        " WHERE e.key=$1",
        key,
        number,
    )
    return int(rows[0][0]) if rows else None
