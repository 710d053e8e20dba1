"""Replies on their way out: claim, record, try again, give up; and what a death while sending left behind."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from everturn.decide.admission_words import FORGOTTEN
from everturn.decide.delivery import Doubtful
from everturn.model import Bubble, Reply
from everturn.store.interface import Op, Row, sql
from everturn.store.operations.attachments import file_of
from everturn.store.operations.telling import stored_source
from everturn.store.operations.tries import GIVEN_UP, IN_DOUBT, LATER, note_try

DOUBT = "doubt"  # the question whether another one arrived
ASKS = "SELECT 1 FROM outbox WHERE id=$1 AND kind IN ('doubt','question','backlog','backlog_one')"
SMALL = "SELECT 1 FROM outbox WHERE id=$1 AND kind IN ('progress','pairing')"
SILENCE = "silence"  # an answer that was not sent, because it only says that there is nothing to say
COLUMNS = (
    "id, key, kind, platform, source, text, attempts, parts, marked, valid_until, look, bubble, file, turn, failures"
)
# What is being sent comes first: nothing overtakes it. Then what was owed first: an answer has the number of its turn, which is
# lower than that of a notice, a question or a command's answer from while the turn ran.
NEXT = (
    f"SELECT {COLUMNS}, due_at, state, instance FROM outbox WHERE key=$1 AND ended_at IS NULL AND state NOT IN ('doubtful','open')"
    " ORDER BY CASE state WHEN 'sending' THEN 0 ELSE 1 END, created_at, id LIMIT 1/*lock*/"
)
# The claim's time stays in the row, so that a claim that is run twice knows its own.
CLAIM = (
    "UPDATE outbox SET state='sending', instance=$2, attempts=attempts+1, due_at=$3,"
    " failures=CASE attempts WHEN 0 THEN 0 ELSE failures END WHERE id=$1 AND state='owed'"
    " RETURNING id"
)
# A reply that leaves with the finish of its turn was not claimed: its attempt is counted when it ends.
COUNTED = "attempts=CASE attempts WHEN 0 THEN 1 ELSE attempts END"
# What was never claimed begins to count anew.
FAILED = "failures=CASE attempts WHEN 0 THEN 0 ELSE failures END+"
# A pairing code is no longer needed in clear when it is out, or will never be.
READABLE = f"CASE kind WHEN 'pairing' THEN '{FORGOTTEN}' ELSE text END"
SCRUBBED = f"text={READABLE}"
SENT = (
    f"UPDATE outbox SET state='sent', ended_at=$2, parts=$3, error=NULL, {COUNTED}, {SCRUBBED}"
    " WHERE id=$1 AND state='sending'"
)
SEND_AGAIN = (
    "UPDATE outbox SET state='owed', ended_at=NULL, dead_at=NULL, due_at=$2, attempts=0, error=NULL, instance=NULL,"
    " valid_until=NULL, marked=CASE state WHEN 'doubtful' THEN 1 ELSE marked END WHERE id=$1"
)
MARK_SENT = f"UPDATE outbox SET state='sent', ended_at=$2, error=NULL, {SCRUBBED} WHERE id=$1"
MORE = "SELECT 1 FROM outbox WHERE key=$1 AND ended_at IS NULL AND state='owed' LIMIT 1"
_parts = msgspec.json.Decoder(tuple[str, ...]).decode
_bubble = msgspec.json.Decoder(Bubble).decode
_encode = msgspec.json.Encoder().encode


def bubble_of(text: str | None) -> Bubble | None:
    """What is known of a row's screen."""
    return _bubble(text) if text else None


def parts_of(text: str) -> tuple[str, ...]:
    """The platform's ids of what is out."""
    return _parts(text)


def written(value: object) -> str:
    """As a row keeps it."""
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
        attempts=attempts,
        failures=row[14] if attempts else 0,
        sent_parts=_parts(parts),
        marked=bool(marked),
        valid_until=valid_until,
        look=bool(look),
        bubble=bubble_of(bubble),
        file=file_of(file),
        turn=turn,
    )


def claim_next(key: str, instance: int, now: float) -> Op[Reply | float | None]:
    """The key's oldest open reply, now ours to send; a time when it is not due yet; None when there is none to send."""
    rows = yield sql(NEXT, key)
    while rows and rows[0][2] == "progress" and rows[0][16] == "owed" and (yield from _outlived(rows[0])):
        yield from _drop(rows[0], now)
        rows = yield sql(NEXT, key)
    if not rows:
        return None
    reply = reply_of(rows[0])
    due_at, state, sender = rows[0][15:18]
    if state == "sending":
        ours = sender == instance and due_at == now and reply.attempts > 0
        return replace(reply, attempts=reply.attempts - 1) if ours else None
    if due_at > now and reply.attempts > 0:  # a first attempt is due at once, though the clock may have been set back
        return float(due_at)
    return reply if (yield sql(CLAIM, reply.id, instance, now)) else None


def _outlived(row: Row) -> Op[bool]:
    """Whether the turn that a progress notice speaks of has ended."""
    return not (yield sql("SELECT 1 FROM turn WHERE id=$1 AND ended_at IS NULL", row[13]))


def _drop(row: Row, now: float) -> Op[None]:
    """A notice that nobody needs any more is not sent; what is on the screen stays as it is."""
    if _parts(row[7]):
        yield sql("UPDATE outbox SET state='sent', ended_at=$2 WHERE id=$1 AND state='owed'", row[0], now)
    else:
        yield sql("DELETE FROM outbox WHERE id=$1 AND state='owed'", row[0])


def sent_at_once(number: int, instance: int) -> Op[Reply | None]:
    """For a finish that runs twice: the reply that its first run made ours to send."""
    rows = yield sql(
        f"SELECT {COLUMNS} FROM outbox WHERE id=$1 AND state='sending' AND instance=$2 AND attempts=0", number, instance
    )
    return reply_of(rows[0]) if rows else None


def record_part(reply: int, parts: tuple[str, ...]) -> Op[None]:
    """One part is out: what remains goes on after it."""
    yield sql("UPDATE outbox SET parts=$2 WHERE id=$1 AND state='sending'", reply, _encode(parts).decode())


def parts_out(reply: int) -> Op[tuple[str, ...]]:
    """The platform's ids of the parts that are out by now."""
    rows = yield sql("SELECT parts FROM outbox WHERE id=$1", reply)
    return _parts(rows[0][0]) if rows else ()


def record_sent(reply: int, parts: tuple[str, ...], now: float, key: str) -> Op[bool]:
    """The platform confirmed it; True when the key has more to send."""
    yield sql(SENT, reply, now, _encode(parts).decode())
    return bool((yield sql(MORE, key)))


def record_progress(reply: Reply, parts: tuple[str, ...], now: float) -> Op[bool]:
    """A progress notice is out; when it says something else by now it is owed again. True when there is more to send."""
    out = _encode(parts).decode()
    yield sql(
        "UPDATE outbox SET parts=$2, error=NULL, state='sent', ended_at=$3 WHERE id=$1 AND state='sending' AND text=$4",
        reply.id,
        out,
        now,
        reply.text,
    )
    yield sql(
        "UPDATE outbox SET parts=$2, error=NULL, state='owed', attempts=0 WHERE id=$1 AND state='sending'",
        reply.id,
        out,
    )
    return bool((yield sql(MORE, reply.key)))


def record_bubble(reply: int, parts: tuple[str, ...], bubble: Bubble) -> Op[None]:
    """What is on the screen by now, whoever shows it: the growing answer, or its last step."""
    yield sql(
        "UPDATE outbox SET parts=$2, bubble=$3 WHERE id=$1 AND state IN ('open','owed','sending')",
        reply,
        written(parts),
        written(bubble),
    )


def record_silence(reply: Reply, now: float) -> Op[bool]:
    """The answer only said that there is nothing to say: it is done, and was not sent. True when there is more to send."""
    yield sql(
        f"UPDATE outbox SET kind=$3, state='sent', ended_at=$2, error=NULL, {COUNTED} WHERE id=$1 AND state='sending'",
        reply.id, now, SILENCE,
    )  # fmt: skip
    return bool((yield sql(MORE, reply.key)))


def record_shown(reply: Reply, kind: str, parts: tuple[str, ...], bubble: Bubble, now: float) -> Op[bool]:
    """A bubble has the shape it was to have, which may be none (`kind`); when it is to have another by now, it is owed
    again. True when there is more to send.
    """
    yield sql(
        f"UPDATE outbox SET parts=$2, bubble=$3, state='sent', ended_at=$4, error=NULL, kind=$7, {COUNTED}"
        " WHERE id=$1 AND state='sending' AND text=$5 AND kind=$6",
        reply.id, written(parts), written(bubble), now, reply.text, reply.kind, kind,
    )  # fmt: skip
    yield sql(
        "UPDATE outbox SET parts=$2, bubble=$3, state='owed', error=NULL, attempts=0, instance=NULL"
        " WHERE id=$1 AND state='sending'",
        reply.id, written(parts), written(bubble),
    )  # fmt: skip
    return bool((yield sql(MORE, reply.key)))


def try_later(reply: int, due_at: float, error: str, *, failed: bool = True) -> Op[None]:
    """Nothing went out, or its repetition is harmless: send it again when it is due. Not `failed`: we were told to wait."""
    yield from note_try(reply, LATER, error)
    yield sql(
        f"UPDATE outbox SET state='owed', due_at=$2, error=$3, instance=NULL, {FAILED}$4, {COUNTED}"
        " WHERE id=$1 AND state='sending'",
        reply, due_at, error, int(failed),
    )  # fmt: skip


def give_up(reply: int, now: float, error: str) -> Op[None]:
    """A dead letter: visible, and kept until somebody sends it again or drops it."""
    yield from note_try(reply, GIVEN_UP, error)
    yield sql(
        "UPDATE outbox SET state='dead', ended_at=$2, error=$3, dead_at=CASE WHEN kind IN ('progress','pairing') THEN NULL ELSE CAST($2 AS FLOAT8) END,"
        f" {SCRUBBED} WHERE id=$1 AND state IN ('owed','sending','doubtful')",
        reply,
        now,
        error,
    )


def doubt(reply: int, action: Doubtful, now: float, error: str, *, failed: bool = True) -> Op[None]:
    """It may have been sent: what happens next follows the platform's class and the owner's policy. A question is sent again
    whatever that says: a turn waits for its answer, and who sees it twice answers once. Nobody is asked whether a code or a
    sign of progress arrived. Not `failed`: it was our own death.
    """
    held = action in {Doubtful.ASK, Doubtful.DROP}
    if held and ((yield sql(ASKS, reply)) or (action is Doubtful.ASK and (yield sql(SMALL, reply)))):
        action = Doubtful.MARK
    if action is Doubtful.DROP:
        yield sql("UPDATE outbox SET marked=1 WHERE id=$1 AND state='sending'", reply)  # if somebody sends it after all
        yield from give_up(reply, now, error)
        return
    yield from note_try(reply, IN_DOUBT, error)
    state = "doubtful" if action is Doubtful.ASK else "owed"
    yield sql(
        "UPDATE outbox SET state=$2, marked=CASE WHEN $3=1 THEN 1 ELSE marked END, look=$4, error=$5, due_at=$6, asked_at=NULL,"
        f" instance=NULL, {FAILED}$7, {COUNTED} WHERE id=$1 AND state='sending'",
        reply, state, int(action is Doubtful.MARK), int(action is Doubtful.LOOK), error, now, int(failed),
    )  # fmt: skip


def recover_sending(instance: int, actions: Mapping[str, Doubtful], now: float) -> Op[int]:
    """Replies that a dead instance was sending."""
    rows = yield sql(
        "SELECT id, platform, bubble FROM outbox WHERE ended_at IS NULL AND state='sending' AND instance=$1", instance
    )
    for number, platform, bubble in rows:
        # What is in doubt of a bubble stands in its row, and is decided by who goes on with it.
        action = actions.get(platform, Doubtful.MARK) if bubble is None else Doubtful.REPEAT
        yield from doubt(number, action, now, "the gateway ended while this was being sent", failed=False)
    return len(rows)


def keys_with_replies() -> Op[list[str]]:
    """The keys that owe somebody a reply, or may have to ask whether one arrived."""
    rows = yield sql(
        "SELECT key, min(id) FROM outbox WHERE ended_at IS NULL AND (state='owed' OR (state='doubtful' AND asked_at IS NULL))"
        " GROUP BY key ORDER BY 2"
    )
    return [row[0] for row in rows]
