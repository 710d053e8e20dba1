"""Rows of the outbox: messages of tools enter it, a reply is claimed, sent, tried again or dead, and every attempt is counted."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

import msgspec
from msgspec.structs import replace

from everturn.errors import FenceLost
from everturn.inbox.rows.attachments import file_of
from everturn.model import Bubble, Event, Json, OutboxState, Reply, SessionEntry, SessionSource, StoredFile
from everturn.outbox.rows.replies import events_of, fact, queue_reply, report, stored_source
from everturn.outbox.rules.delivery import Delivery, UnknownAction
from everturn.outbox.rules.streaming import unsettled
from everturn.people.rules.people_texts import FORGOTTEN
from everturn.sessions.rows.entries import lock_entry
from everturn.store.interface import Op, Row, sql
from everturn.turns.rows.turn_values import NOT_CLOSED, owned

DELIVERY_REQUEST = "delivery_request"  # asks the chat whether another reply arrived
REQUEST = "SELECT 1 FROM outbox WHERE id=$1 AND kind IN ('delivery_request','approval_request','backlog','backlog_one')"
MINOR = "SELECT 1 FROM outbox WHERE id=$1 AND kind IN ('progress','pairing')"
SILENCE = "silence"  # an answer that was not sent, because it only says that there is nothing to say
COLUMNS = (
    "id, key, kind, platform, source, text, attempts, parts, marked, valid_until, look, bubble, file, turn, failures,"
    " claim"
)
# What is being sent comes first: nothing overtakes it. Then what was queued first: an answer has the number of its turn, which
# is lower than that of a notice, a request or a command's answer from while the turn ran.
NEXT = (
    f"SELECT {COLUMNS}, due_at, state FROM outbox WHERE key=$1 AND ended_at IS NULL AND state NOT IN ('unknown','open')"
    " ORDER BY CASE state WHEN 'sending' THEN 0 ELSE 1 END, created_at, id LIMIT 1/*lock*/"
)
# The claim stays in the row when it has ended, so that an operation that is run twice knows its own.
CLAIM = (
    "UPDATE outbox SET state='sending', instance=$2, claim=$3, attempts=attempts+1, due_at=$4,"
    f" failures=CASE attempts WHEN 0 THEN 0 ELSE failures END WHERE id=$1 AND state='pending' AND {NOT_CLOSED}/*did*/"
)
# A reply that leaves with the finish of its turn was not claimed: its attempt is counted when it ends.
COUNTED = "attempts=CASE attempts WHEN 0 THEN 1 ELSE attempts END"
# What was never claimed begins to count anew.
FAILED = "failures=CASE attempts WHEN 0 THEN 0 ELSE failures END+"
# A pairing code is no longer needed in clear when it is out, or will never be.
READABLE = f"CASE kind WHEN 'pairing' THEN '{FORGOTTEN}' ELSE text END"
SCRUBBED = f"text={READABLE}"
OURS_WITH = "WHERE id=$1 AND claim=$2 AND state='sending'"
OURS = f"{OURS_WITH}/*did*/"
SENT = f"UPDATE outbox SET state='sent', ended_at=$3, parts=$4, error=NULL, {COUNTED}, {SCRUBBED} {OURS}"
_DEAD = (
    "state='dead', ended_at=$3, error=$4,"
    f" dead_at=CASE WHEN kind IN ('progress','pairing') THEN NULL ELSE CAST($3 AS FLOAT8) END, {SCRUBBED}"
)
DEAD = f"UPDATE outbox SET {_DEAD} {OURS}"
DEAD_UNSENT = f"UPDATE outbox SET {_DEAD}, claim=$2 WHERE id=$1 AND state IN ('pending','sending','unknown')"
UNKNOWN_OR_AGAIN = {
    state: f"UPDATE outbox SET state='{state}', marked=CASE WHEN $3=1 THEN 1 ELSE marked END, look=$4, error=$5, due_at=$6,"
    f" asked_at=NULL, instance=NULL, {FAILED}$7, {COUNTED} {OURS}"
    for state in (OutboxState.UNKNOWN, OutboxState.PENDING)
}
# Whoever opened it shows nothing more, should it run after all. What is being sent loses its claim when that is recovered.
UNSETTLE = "UPDATE outbox SET bubble=$2, claim=CASE state WHEN 'open' THEN NULL ELSE claim END WHERE id=$1"
UNDELIVERED = "state IN ('pending','unknown','dead')"  # what people may send again or drop
SEND_AGAIN = (
    "UPDATE outbox SET state='pending', ended_at=NULL, dead_at=NULL, due_at=$2, attempts=0, error=NULL, instance=NULL,"
    " valid_until=NULL, marked=CASE state WHEN 'unknown' THEN 1 ELSE marked END"
    f" WHERE id=$1 AND {UNDELIVERED}"
)
MARK_SENT = f"UPDATE outbox SET state='sent', ended_at=$2, error=NULL, {SCRUBBED} WHERE id=$1 AND state='unknown'"
MORE = "SELECT 1 FROM outbox WHERE key=$1 AND ended_at IS NULL AND state='pending' LIMIT 1"
_parts = msgspec.json.Decoder(tuple[str, ...]).decode
_bubble = msgspec.json.Decoder(Bubble).decode
_encode = msgspec.json.Encoder().encode


def bubble_of(text: str | None) -> Bubble | None:
    """The stored bubble of a row."""
    return _bubble(text) if text else None


def parts_of(text: str) -> tuple[str, ...]:
    """The platform's ids of the sent parts."""
    return _parts(text)


def written(value: object) -> str:
    """A value as JSON for a row."""
    return _encode(value).decode()


def reply_of(row: Row) -> Reply:
    """An outbox row as the sender needs it."""
    number, key, kind, platform, source, text, attempts, parts, marked, valid_until, look, bubble, file, turn = row[:14]
    return Reply(
        id=number,
        key=key,
        kind=kind,
        source=stored_source(source, platform),
        text=text,
        claim=row[15] or 0,
        attempts=attempts,
        failures=row[14] if attempts else 0,
        sent_parts=_parts(parts),
        marked=bool(marked),
        valid_until=valid_until,
        look=bool(look),
        bubble=_bubble(bubble) if bubble else None,
        file=file_of(file) if file else None,
        turn=turn,
    )


class DamagedReply(msgspec.Struct, frozen=True):
    """A row that cannot be read: a dead letter from now on, so that what follows it leaves."""

    id: int
    why: str


def claim_next(key: str, instance: int, claim: int, now: float) -> Op[Reply | float | DamagedReply | None]:
    """Claim the key's oldest open reply under this new number; returns a time when it is not due yet, None when there is
    none to send.
    """
    rows = yield sql(NEXT, key)
    try:
        while rows and rows[0][2] == "progress" and rows[0][17] == "pending" and (yield from _outlived(rows[0])):
            yield from _drop(rows[0], now)
            rows = yield sql(NEXT, key)
        if not rows:
            return None
        reply = reply_of(rows[0])
    except msgspec.MsgspecError as error:
        return (yield from _end_damaged(rows[0][0], f"its row is damaged ({error})", now))
    due_at, state = rows[0][16:18]
    if state == "sending":
        return replace(reply, attempts=max(0, reply.attempts - 1)) if reply.claim == claim else None
    if due_at > now and reply.attempts > 0:  # a first attempt is due at once, though the clock may have been set back
        return float(due_at)
    claimed = yield sql(CLAIM, reply.id, instance, claim, now)
    return replace(reply, claim=claim) if claimed else None


def _end_damaged(reply: int, why: str, now: float) -> Op[DamagedReply | None]:
    """Make a damaged row a dead letter: its text is kept. Which parts were sent is lost, so that sending it again marks it.
    None while another process sends it.
    """
    ended = yield sql(
        "UPDATE outbox SET state='dead', ended_at=$2, dead_at=$2, error=$3, marked=1, parts='[]', bubble=NULL, file=NULL"
        " WHERE id=$1 AND state='pending'/*did*/",
        reply, now, why,
    )  # fmt: skip
    return DamagedReply(reply, why) if ended else None


def _outlived(row: Row) -> Op[bool]:
    """Whether the turn that a progress notice speaks of has ended."""
    return not (yield sql("SELECT 1 FROM turn WHERE id=$1 AND ended_at IS NULL", row[13]))


def _drop(row: Row, now: float) -> Op[None]:
    """Drop an outdated progress notice unsent; one that was sent before stays as it is."""
    if _parts(row[7]):
        yield sql("UPDATE outbox SET state='sent', ended_at=$2 WHERE id=$1 AND state='pending'", row[0], now)
    else:
        yield sql("DELETE FROM outbox WHERE id=$1 AND state='pending'", row[0])


def sent_at_once(number: int, instance: int) -> Op[Reply | None]:
    """For a finish that runs twice: the reply that its first run claimed for this process, under its own number, or under
    the claim that its streaming message was opened with.
    """
    rows = yield sql(f"SELECT {COLUMNS} FROM outbox WHERE id=$1 AND state='sending' AND instance=$2", number, instance)
    reply = reply_of(rows[0]) if rows else None
    if reply is None or reply.claim in {number, reply.bubble.opening if reply.bubble is not None else number}:
        return reply
    return None


def _ran_before(reply: Reply) -> Op[None]:
    """Raise FenceLost if the claim is lost, after a write under it changed nothing; else its first run changed the row.
    Only another claim, recovery, or an owner who revokes takes the number away.
    """
    if not (yield sql("SELECT 1 FROM outbox WHERE id=$1 AND claim=$2 AND state<>'sending'", reply.id, reply.claim)):
        raise _lost(reply.id)


def _lost(reply: int) -> FenceLost:
    return FenceLost(f"the reply {reply} is no longer ours to send")


def record_part(reply: Reply, parts: tuple[str, ...]) -> Op[None]:
    """Record a sent part: a retry goes on after it."""
    if not (yield sql(f"UPDATE outbox SET parts=$3 {OURS}", reply.id, reply.claim, written(parts))):
        raise _lost(reply.id)


def parts_out(reply: int) -> Op[tuple[str, ...]]:
    """The platform's ids of the parts that were sent by now."""
    rows = yield sql("SELECT parts FROM outbox WHERE id=$1", reply)
    return _parts(rows[0][0]) if rows else ()


def record_sent(reply: Reply, parts: tuple[str, ...], now: float) -> Op[bool]:
    """Record that the platform confirmed the reply; True when the key has more to send."""
    if not (yield sql(SENT, reply.id, reply.claim, now, _encode(parts).decode())):
        yield from _ran_before(reply)
    return bool((yield sql(MORE, reply.key)))


def record_progress(reply: Reply, parts: tuple[str, ...], now: float) -> Op[bool]:
    """Record a sent progress notice; if its text has changed since, it is pending again. True when there is more to send."""
    out = written(parts)
    said = yield sql(
        f"UPDATE outbox SET parts=$3, error=NULL, state='sent', ended_at=$4 {OURS_WITH} AND text=$5/*did*/",
        reply.id, reply.claim, out, now, reply.text,
    )  # fmt: skip
    again = f"UPDATE outbox SET parts=$3, error=NULL, state='pending', attempts=0 {OURS}"
    if not said and not (yield sql(again, reply.id, reply.claim, out)):
        yield from _ran_before(reply)
    return bool((yield sql(MORE, reply.key)))


def record_bubble(reply: int, claim: int, parts: tuple[str, ...], bubble: Bubble) -> Op[None]:
    """Record the state of a bubble, by a preview or by the final delivery."""
    kept = yield sql(
        "UPDATE outbox SET parts=$3, bubble=$4 WHERE id=$1 AND claim=$2 AND state IN ('open','pending','sending')/*did*/",
        reply, claim, written(parts), written(bubble),
    )  # fmt: skip
    if not kept:
        raise _lost(reply)


def record_silence(reply: Reply, now: float) -> Op[bool]:
    """Record as done, unsent, an answer that only says that there is nothing to say. True when there is more to send."""
    silent = f"UPDATE outbox SET kind=$4, state='sent', ended_at=$3, error=NULL, {COUNTED} {OURS}"
    if not (yield sql(silent, reply.id, reply.claim, now, SILENCE)):
        yield from _ran_before(reply)
    return bool((yield sql(MORE, reply.key)))


def record_shown(reply: Reply, kind: str, parts: tuple[str, ...], bubble: Bubble, now: float) -> Op[bool]:
    """Record that a bubble shows its final text, or was removed (`kind`); if the text has changed since, it is pending
    again. True when there is more to send.
    """
    shown = yield sql(
        f"UPDATE outbox SET parts=$3, bubble=$4, state='sent', ended_at=$5, error=NULL, kind=$8, {COUNTED}"
        f" {OURS_WITH} AND text=$6 AND kind=$7/*did*/",
        reply.id, reply.claim, written(parts), written(bubble), now, reply.text, reply.kind, kind,
    )  # fmt: skip
    again = f"UPDATE outbox SET parts=$3, bubble=$4, state='pending', error=NULL, attempts=0, instance=NULL {OURS}"
    if not shown and not (yield sql(again, reply.id, reply.claim, written(parts), written(bubble))):
        yield from _ran_before(reply)
    return bool((yield sql(MORE, reply.key)))


def try_later(reply: Reply, due_at: float, error: str, *, failed: bool = True) -> Op[None]:
    """Retry a reply when it is due: nothing was sent, or repeating is harmless. Not `failed`: the platform asked us to wait."""
    yield from note_try(reply.id, LATER, error, reply.claim)
    later = f"UPDATE outbox SET state='pending', due_at=$3, error=$4, instance=NULL, {FAILED}$5, {COUNTED} {OURS}"
    if not (yield sql(later, reply.id, reply.claim, due_at, error, int(failed))):
        yield from _ran_before(reply)


def make_dead_letter(reply: Reply, now: float, error: str) -> Op[None]:
    """Make a reply a dead letter: visible, and kept until somebody sends it again or drops it."""
    if not (yield from _make_dead_letter(reply.id, reply.claim, now, error)):
        yield from _ran_before(reply)


def _make_dead_letter(reply: int, claim: int, now: float, error: str) -> Op[bool]:
    yield from note_try(reply, DEAD_LETTER, error, claim)
    return bool((yield sql(DEAD, reply, claim, now, error)))


def end_unsent(reply: int, now: float, error: str) -> Op[None]:
    """Make a reply a dead letter, even while it is being sent: its owner revoked, or it is of no use. The claim is lost."""
    yield from note_try(reply, DEAD_LETTER, error)
    yield sql(DEAD_UNSENT, reply, None, now, error)


def mark_unknown(reply: Reply, action: UnknownAction, now: float, error: str, *, failed: bool = True) -> Op[None]:
    """Record that the delivery is unknown; what follows depends on the platform's class and the owner's policy. A request is
    always sent again: a turn waits for its answer, and somebody who sees it twice answers once. Nobody is asked whether a
    code or a progress notice arrived. Not `failed`: our own process crashed.
    """
    if not (yield from _mark_unknown(reply.id, reply.claim, action, now, error, failed=failed)):
        yield from _ran_before(reply)


def _mark_unknown(reply: int, claim: int, action: UnknownAction, now: float, error: str, *, failed: bool) -> Op[bool]:
    no_resend = action in {UnknownAction.ASK, UnknownAction.DROP}
    if no_resend and ((yield sql(REQUEST, reply)) or (action is UnknownAction.ASK and (yield sql(MINOR, reply)))):
        action = UnknownAction.MARK
    if action is UnknownAction.DROP:
        yield sql(f"UPDATE outbox SET marked=1 {OURS}", reply, claim)  # if somebody sends it after all
        return (yield from _make_dead_letter(reply, claim, now, error))
    yield from note_try(reply, UNKNOWN, error, claim)
    moved = yield sql(
        UNKNOWN_OR_AGAIN[OutboxState.UNKNOWN if action is UnknownAction.ASK else OutboxState.PENDING],
        reply, claim, int(action is UnknownAction.MARK), int(action is UnknownAction.LOOK), error, now, int(failed),
    )  # fmt: skip
    return bool(moved)


def still_claimed(reply: int, claim: int) -> Op[None]:
    """Raise FenceLost unless the reply, or the streaming message, is still ours to write."""
    if not (yield sql("SELECT 1 FROM outbox WHERE id=$1 AND claim=$2 AND state IN ('open','sending')", reply, claim)):
        raise _lost(reply)


def unsettle(instance: int) -> Op[None]:
    """Store in each streaming message that a dead instance showed that one of its edits may be in flight. A damaged row is left
    to its delivery.
    """
    rows = yield sql(
        "SELECT id, bubble FROM outbox WHERE ended_at IS NULL AND state IN ('open','sending') AND instance=$1"
        " AND bubble IS NOT NULL/*lock*/",
        instance,
    )
    for number, bubble in rows:
        with suppress(msgspec.MsgspecError):
            left = written(unsettled(_bubble(bubble)))
            yield sql(UNSETTLE, number, left)


def recover_sending(instance: int, actions: Mapping[str, UnknownAction], now: float) -> Op[int]:
    """Mark the replies that a dead instance was sending as unknown. Should it run after all, its claims are lost."""
    # A version that knew no claims may have sent beside us.
    yield sql(
        "UPDATE outbox SET claim=id WHERE ended_at IS NULL AND state='sending' AND instance=$1 AND claim IS NULL",
        instance,
    )
    rows = yield sql(
        "SELECT id, platform, bubble, claim FROM outbox WHERE ended_at IS NULL AND state='sending' AND instance=$1",
        instance,
    )
    for number, platform, bubble, claim in rows:
        # Which part of a bubble is unknown stands in its row; its next delivery decides about it.
        action = actions.get(platform, UnknownAction.MARK) if bubble is None else UnknownAction.REPEAT
        yield from _mark_unknown(
            number, claim, action, now, "the gateway ended while this was being sent", failed=False
        )
        yield sql("UPDATE outbox SET claim=NULL WHERE id=$1 AND claim=$2 AND state<>'sending'", number, claim)
    return len(rows)


def keys_with_replies() -> Op[list[str]]:
    """The keys that have pending replies, or may have to ask whether one arrived."""
    rows = yield sql(
        "SELECT key, min(id) FROM outbox WHERE ended_at IS NULL AND (state='pending' OR (state='unknown' AND asked_at IS NULL))"
        " GROUP BY key ORDER BY 2"
    )
    return [row[0] for row in rows]


# Failed tries to deliver a reply: each is kept as long as the reply, also when it is sent again later.


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


# Messages that a tool sends: queued once for each call, however often the call is repeated.


FILE = "file"


class ToolMessage(msgspec.Struct, frozen=True, kw_only=True):
    """What to send where, and the call that wants it; `number` is the outbox row's, made by the caller."""

    key: str
    turn: int
    attempt: int  # of the turn that wants it
    call_id: str
    number: int
    to_key: str
    to: SessionSource
    text: str
    at: float
    delivery: Delivery
    instance: int
    file: StoredFile | None = None  # what is sent; the text stands beneath it


class Posted(msgspec.Struct, frozen=True):
    """A queued tool message: the events for watchers of the target, and the reply if this process is to send it."""

    events: tuple[Event, ...] = ()
    reply: Reply | None = None


def post(message: ToolMessage) -> Op[Posted | None]:
    """Queue a message of a tool call; None when the target cannot be reached yet.

    The call's row keeps the number of what it sent: a repetition, in any process, finds it and sends nothing.
    """
    entries = yield from _lock(message)
    yield from owned(message.key, message.turn, message.attempt)
    target = entries.get(message.to_key)
    if message.delivery.by_event and target is None:
        return None  # where events are the delivery, there must be somebody whose events they are
    taken = yield sql(
        "UPDATE effect SET sent=$3 WHERE turn=$1 AND call_id=$2 AND sent IS NULL RETURNING 1",
        message.turn,
        message.call_id,
        message.number,
    )
    if not taken:
        return (yield from _posted_before(message))
    # Claimed with the same commit where it can be: what is being sent is not overtaken by the turn's answer.
    reply = yield from queue_reply(
        message.number, message.to_key, message.turn, FILE if message.file else "notice", message.to, message.text, message.at,
        message.delivery, message.instance, message.file,
    )  # fmt: skip
    facts = [fact("notice", message.at, text=message.text, reason="sent")] if message.delivery.by_event else []
    return Posted((yield from report(message.to_key, target.event_seq, facts, message.number)) if target else (), reply)


def was_posted(turn: int, call_id: str) -> Op[bool]:
    """Whether this call has queued its message, in any process."""
    rows = yield sql("SELECT sent FROM effect WHERE turn=$1 AND call_id=$2", turn, call_id)
    return bool(rows) and rows[0][0] is not None


def make_file_dead_letter(reply: Reply, at: float, why: str, notice: int, text: str) -> Op[None]:
    """Make a file that was not delivered as a whole a dead letter, and queue one notice for the chat. No notice is queued
    for a file with a lost claim (FenceLost): another process sends it, or the access of its receiver was revoked.
    """
    yield from make_dead_letter(reply, at, why)
    yield from queue_reply(notice, reply.key, None, "notice", reply.source, text, at, Delivery(by_event=False), 0)


def _posted_before(message: ToolMessage) -> Op[Posted]:
    """The result for a call that has its message: the first run's, or an earlier process queued it and recovery sends it."""
    events = yield from events_of(message.to_key, message.number)
    return Posted(events, (yield from sent_at_once(message.number, message.instance)))


def _lock(message: ToolMessage) -> Op[dict[str, SessionEntry | None]]:
    """Lock the entries that are written to, in the order of their keys, so that two turns do not deadlock."""
    keys = {message.key, message.to_key} if message.delivery.by_event else {message.key}
    entries: dict[str, SessionEntry | None] = {}
    for key in sorted(keys):
        entries[key] = yield from lock_entry(key)
    return entries
