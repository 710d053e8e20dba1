"""Replies on their way out: claim, record, try again, give up; and what a death while sending left behind.

Every write of a sender names the claim under which the reply is its own: a number made for that one attempt of that one
process. After recovery or another claim it is refused (FenceLost), whoever sends the row now.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from everturn.decide.admission_words import FORGOTTEN
from everturn.decide.delivery import Doubtful
from everturn.errors import FenceLost
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
    "id, key, kind, platform, source, text, attempts, parts, marked, valid_until, look, bubble, file, turn, failures,"
    " claim"
)
# What is being sent comes first: nothing overtakes it. Then what was owed first: an answer has the number of its turn, which is
# lower than that of a notice, a question or a command's answer from while the turn ran.
NEXT = (
    f"SELECT {COLUMNS}, due_at, state FROM outbox WHERE key=$1 AND ended_at IS NULL AND state NOT IN ('doubtful','open')"
    " ORDER BY CASE state WHEN 'sending' THEN 0 ELSE 1 END, created_at, id LIMIT 1/*lock*/"
)
# The claim stays in the row when it has ended, so that an operation that is run twice knows its own.
CLAIM = (
    "UPDATE outbox SET state='sending', instance=$2, claim=$3, attempts=attempts+1, due_at=$4,"
    " failures=CASE attempts WHEN 0 THEN 0 ELSE failures END WHERE id=$1 AND state='owed'"
    "/*did*/"
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
DEAD = (
    "UPDATE outbox SET state='dead', ended_at=$3, error=$4,"
    f" dead_at=CASE WHEN kind IN ('progress','pairing') THEN NULL ELSE CAST($3 AS FLOAT8) END, {SCRUBBED}"
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
        claim=row[15] or 0,
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


class Damaged(msgspec.Struct, frozen=True):
    """A row that cannot be read: a dead letter from now on, so that what follows it leaves."""

    id: int
    why: str


def claim_next(key: str, instance: int, claim: int, now: float) -> Op[Reply | float | Damaged | None]:
    """The key's oldest open reply, now ours to send under this new number; a time when it is not due yet; None when there is
    none to send.
    """
    rows = yield sql(NEXT, key)
    try:
        while rows and rows[0][2] == "progress" and rows[0][17] == "owed" and (yield from _outlived(rows[0])):
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


def _end_damaged(reply: int, why: str, now: float) -> Op[Damaged | None]:
    """What it said is kept; what of it was out nobody knows any more, so that who sends it again marks it. None while another
    one sends it.
    """
    ended = yield sql(
        "UPDATE outbox SET state='dead', ended_at=$2, dead_at=$2, error=$3, marked=1, parts='[]', bubble=NULL, file=NULL"
        " WHERE id=$1 AND state='owed'/*did*/",
        reply, now, why,
    )  # fmt: skip
    return Damaged(reply, why) if ended else None


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
    """For a finish that runs twice: the reply that its first run made ours to send, under its own number, or under the claim
    that its streaming message was opened with.
    """
    rows = yield sql(f"SELECT {COLUMNS} FROM outbox WHERE id=$1 AND state='sending' AND instance=$2", number, instance)
    reply = reply_of(rows[0]) if rows else None
    if reply is None or reply.claim in {number, reply.bubble.opening if reply.bubble is not None else number}:
        return reply
    return None


def _ran_before(reply: Reply) -> Op[None]:
    """After a write under a claim found nothing to change: its first run moved the row on, or the claim is lost. Only a
    claim and those who overrule it (recovery, an owner who revokes) take the number away.
    """
    if not (yield sql("SELECT 1 FROM outbox WHERE id=$1 AND claim=$2 AND state<>'sending'", reply.id, reply.claim)):
        raise _lost(reply.id)


def _lost(reply: int) -> FenceLost:
    return FenceLost(f"the reply {reply} is no longer ours to send")


def record_part(reply: Reply, parts: tuple[str, ...]) -> Op[None]:
    """One part is out: what remains goes on after it."""
    if not (yield sql(f"UPDATE outbox SET parts=$3 {OURS}", reply.id, reply.claim, written(parts))):
        raise _lost(reply.id)


def parts_out(reply: int) -> Op[tuple[str, ...]]:
    """The platform's ids of the parts that are out by now."""
    rows = yield sql("SELECT parts FROM outbox WHERE id=$1", reply)
    return _parts(rows[0][0]) if rows else ()


def record_sent(reply: Reply, parts: tuple[str, ...], now: float) -> Op[bool]:
    """The platform confirmed it; True when the key has more to send."""
    if not (yield sql(SENT, reply.id, reply.claim, now, _encode(parts).decode())):
        yield from _ran_before(reply)
    return bool((yield sql(MORE, reply.key)))


def record_progress(reply: Reply, parts: tuple[str, ...], now: float) -> Op[bool]:
    """A progress notice is out; when it says something else by now it is owed again. True when there is more to send."""
    out = written(parts)
    said = yield sql(
        f"UPDATE outbox SET parts=$3, error=NULL, state='sent', ended_at=$4 {OURS_WITH} AND text=$5/*did*/",
        reply.id, reply.claim, out, now, reply.text,
    )  # fmt: skip
    again = f"UPDATE outbox SET parts=$3, error=NULL, state='owed', attempts=0 {OURS}"
    if not said and not (yield sql(again, reply.id, reply.claim, out)):
        yield from _ran_before(reply)
    return bool((yield sql(MORE, reply.key)))


def record_bubble(reply: int, claim: int, parts: tuple[str, ...], bubble: Bubble) -> Op[None]:
    """What is on the screen by now, by the growing answer or by its last step."""
    kept = yield sql(
        "UPDATE outbox SET parts=$3, bubble=$4 WHERE id=$1 AND claim=$2 AND state IN ('open','owed','sending')/*did*/",
        reply, claim, written(parts), written(bubble),
    )  # fmt: skip
    if not kept:
        raise _lost(reply)


def record_silence(reply: Reply, now: float) -> Op[bool]:
    """The answer only said that there is nothing to say: it is done, and was not sent. True when there is more to send."""
    silent = f"UPDATE outbox SET kind=$4, state='sent', ended_at=$3, error=NULL, {COUNTED} {OURS}"
    if not (yield sql(silent, reply.id, reply.claim, now, SILENCE)):
        yield from _ran_before(reply)
    return bool((yield sql(MORE, reply.key)))


def record_shown(reply: Reply, kind: str, parts: tuple[str, ...], bubble: Bubble, now: float) -> Op[bool]:
    """A bubble has the shape it was to have, which may be none (`kind`); when it is to have another by now, it is owed
    again. True when there is more to send.
    """
    shown = yield sql(
        f"UPDATE outbox SET parts=$3, bubble=$4, state='sent', ended_at=$5, error=NULL, kind=$8, {COUNTED}"
        f" {OURS_WITH} AND text=$6 AND kind=$7/*did*/",
        reply.id, reply.claim, written(parts), written(bubble), now, reply.text, reply.kind, kind,
    )  # fmt: skip
    again = f"UPDATE outbox SET parts=$3, bubble=$4, state='owed', error=NULL, attempts=0, instance=NULL {OURS}"
    if not shown and not (yield sql(again, reply.id, reply.claim, written(parts), written(bubble))):
        yield from _ran_before(reply)
    return bool((yield sql(MORE, reply.key)))


def try_later(reply: Reply, due_at: float, error: str, *, failed: bool = True) -> Op[None]:
    """Nothing went out, or its repetition is harmless: send it again when it is due. Not `failed`: we were told to wait."""
    yield from note_try(reply.id, LATER, error, reply.claim)
    later = f"UPDATE outbox SET state='owed', due_at=$3, error=$4, instance=NULL, {FAILED}$5, {COUNTED} {OURS}"
    if not (yield sql(later, reply.id, reply.claim, due_at, error, int(failed))):
        yield from _ran_before(reply)


def give_up(reply: Reply, now: float, error: str) -> Op[None]:
    """A dead letter: visible, and kept until somebody sends it again or drops it."""
    if not (yield from _give_up(reply.id, reply.claim, now, error)):
        yield from _ran_before(reply)


def _give_up(reply: int, claim: int, now: float, error: str) -> Op[bool]:
    yield from note_try(reply, GIVEN_UP, error, claim)
    return bool((yield sql(f"{DEAD} {OURS}", reply, claim, now, error)))


def end_unsent(reply: int, now: float, error: str) -> Op[None]:
    """Make a reply a dead letter whoever is sending it: its owner revoked, or it is of no use. The sender loses its claim."""
    yield from note_try(reply, GIVEN_UP, error)
    yield sql(f"{DEAD}, claim=$2 WHERE id=$1 AND state IN ('owed','sending','doubtful')", reply, None, now, error)


def doubt(reply: Reply, action: Doubtful, now: float, error: str, *, failed: bool = True) -> Op[None]:
    """It may have been sent: what happens next follows the platform's class and the owner's policy. A question is sent again
    whatever that says: a turn waits for its answer, and who sees it twice answers once. Nobody is asked whether a code or a
    sign of progress arrived. Not `failed`: it was our own death.
    """
    if not (yield from _doubt(reply.id, reply.claim, action, now, error, failed=failed)):
        yield from _ran_before(reply)


def _doubt(reply: int, claim: int, action: Doubtful, now: float, error: str, *, failed: bool) -> Op[bool]:
    held = action in {Doubtful.ASK, Doubtful.DROP}
    if held and ((yield sql(ASKS, reply)) or (action is Doubtful.ASK and (yield sql(SMALL, reply)))):
        action = Doubtful.MARK
    if action is Doubtful.DROP:
        yield sql(f"UPDATE outbox SET marked=1 {OURS}", reply, claim)  # if somebody sends it after all
        return (yield from _give_up(reply, claim, now, error))
    yield from note_try(reply, IN_DOUBT, error, claim)
    state = "doubtful" if action is Doubtful.ASK else "owed"
    moved = yield sql(
        "UPDATE outbox SET state=$3, marked=CASE WHEN $4=1 THEN 1 ELSE marked END, look=$5, error=$6, due_at=$7, asked_at=NULL,"
        f" instance=NULL, {FAILED}$8, {COUNTED} {OURS}",
        reply, claim, state, int(action is Doubtful.MARK), int(action is Doubtful.LOOK), error, now, int(failed),
    )  # fmt: skip
    return bool(moved)


def recover_sending(instance: int, actions: Mapping[str, Doubtful], now: float) -> Op[int]:
    """Replies that a dead instance was sending. Should it live after all, its claims are lost."""
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
        # What is in doubt of a bubble stands in its row, and is decided by who goes on with it.
        action = actions.get(platform, Doubtful.MARK) if bubble is None else Doubtful.REPEAT
        yield from _doubt(number, claim, action, now, "the gateway ended while this was being sent", failed=False)
        yield sql("UPDATE outbox SET claim=NULL WHERE id=$1 AND claim=$2 AND state<>'sending'", number, claim)
    return len(rows)


def keys_with_replies() -> Op[list[str]]:
    """The keys that owe somebody a reply, or may have to ask whether one arrived."""
    rows = yield sql(
        "SELECT key, min(id) FROM outbox WHERE ended_at IS NULL AND (state='owed' OR (state='doubtful' AND asked_at IS NULL))"
        " GROUP BY key ORDER BY 2"
    )
    return [row[0] for row in rows]
