"""Rows of instances, and of what is forgotten in time."""

from __future__ import annotations

from dataclasses import dataclass

from everturn.ids import oldest_id
from everturn.inbox.rows.inbox import move_cursor
from everturn.model import SessionEntry
from everturn.people.rows.pairing import forget_pairings
from everturn.sessions.rows.boundaries import end_session
from everturn.sessions.rows.entries import COLUMNS, entry_of, lock_entry
from everturn.sessions.rules.keys import is_single_call
from everturn.store.interface import Op, Rows, sql
from everturn.turns.rows.turns import forget_outputs


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceRow:
    """An instance, with what liveness and recovery need."""

    number: int
    heartbeat_at: float
    drain_kind: str | None
    alive_at: float | None = None  # its last heartbeat by the database's clock: clocks of several machines differ


@dataclass(frozen=True, slots=True, kw_only=True)
class Others:
    """All other instances, in one view of the database."""

    open: list[InstanceRow]  # without a recorded end
    left: list[InstanceRow]  # ended, and still the owner of running turns or of replies that are being sent
    ended: int  # how many have ended: a larger number than before means that work became free


INSTANCE = "SELECT number, heartbeat_at, drain_kind, alive_at FROM instance WHERE locked=1 AND number<>$1 AND "
OPEN = INSTANCE + "ended_at IS NULL ORDER BY number"
LEFT = (
    INSTANCE
    + "ended_at IS NOT NULL AND (number IN (SELECT instance FROM turn WHERE ended_at IS NULL AND state='running')"
    " OR number IN (SELECT instance FROM outbox WHERE ended_at IS NULL AND state='sending')) ORDER BY number"
)


def join(token: str, host: str, pid: int, at: float) -> Op[int]:
    """Insert a new instance; its number is larger than every earlier one."""
    yield sql(
        "INSERT INTO instance (number, token, host, pid, started_at, heartbeat_at)"
        " SELECT coalesce(max(number), 0) + 1, $1, $2, $3, $4, $4 FROM instance WHERE true"
        " ON CONFLICT DO NOTHING",
        token,
        host,
        pid,
        at,
    )
    rows = yield sql("SELECT number FROM instance WHERE token=$1", token)
    return int(rows[0][0]) if rows else 0


def newest_id() -> Op[int]:
    """The largest id given so far: an instance that joins after the clock was set back continues behind it."""
    rows = yield sql("SELECT (SELECT max(id) FROM inbox), (SELECT max(id) FROM turn), (SELECT max(id) FROM outbox)")
    return max(number or 0 for number in rows[0])


def record_lock(number: int, alive_at: float) -> Op[None]:
    """Store that the instance holds its lock. From now on others check whether it is alive; before that it owns nothing."""
    yield sql("UPDATE instance SET locked=1, alive_at=$2 WHERE number=$1", number, alive_at)


def heartbeat(number: int, at: float, alive_at: float) -> Op[bool]:
    """Record that the instance is alive, by its own clock and by the database's. False when the instance was closed."""
    rows = yield sql(
        "UPDATE instance SET heartbeat_at=$2, alive_at=$3 WHERE number=$1 AND ended_at IS NULL RETURNING number",
        number,
        at,
        alive_at,
    )
    return bool(rows)


def open_instances(but: int) -> Op[list[InstanceRow]]:
    """Every other instance without a recorded end: dead, unless its process holds its lock."""
    return _instances((yield sql(OPEN, but)))


def find_others(but: int) -> Op[Others]:
    """All other instances that may have left work, in one view of the database."""
    open_ = _instances((yield sql(OPEN, but)))
    left = _instances((yield sql(LEFT, but)))
    ended = yield sql("SELECT count(*) FROM instance WHERE ended_at IS NOT NULL")
    return Others(open=open_, left=left, ended=ended[0][0])


def _instances(rows: Rows) -> list[InstanceRow]:
    return [InstanceRow(number=row[0], heartbeat_at=row[1], drain_kind=row[2], alive_at=row[3]) for row in rows]


def found_unclean(number: int) -> Op[None]:
    """Store that this start found an instance without a recorded end."""
    yield sql("UPDATE instance SET found_unclean=1 WHERE number=$1", number)


def unclean_boots(since: float) -> Op[list[float]]:
    """The times of starts that found an instance without a recorded end."""
    rows = yield sql("SELECT started_at FROM instance WHERE found_unclean=1 AND started_at>=$1 ORDER BY number", since)
    return [row[0] for row in rows]


def record_drain(number: int, kind: str, reason: str, at: float) -> Op[None]:
    """Store that a planned stop begins; a crash during it counts as that stop."""
    yield sql(
        "UPDATE instance SET drain_kind=$2, drain_reason=$3, drain_at=$4 WHERE number=$1 AND drain_at IS NULL",
        number,
        kind,
        reason,
        at,
    )


def record_end(number: int, ended: str, at: float) -> Op[None]:
    """Store how an instance ended."""
    yield sql("UPDATE instance SET ended_at=$3, ended=$2 WHERE number=$1 AND ended_at IS NULL", number, ended, at)


def last_end(but: int) -> Op[tuple[str, float, str | None] | None]:
    """How the latest other instance ended, when, and who asked for it."""
    rows = yield sql(
        "SELECT ended, ended_at, drain_reason FROM instance WHERE number<>$1 AND ended_at IS NOT NULL"
        " ORDER BY number DESC LIMIT 1",
        but,
    )
    return (rows[0][0], rows[0][1], rows[0][2]) if rows else None


# Upkeep in the database: end expired sessions, and delete rows that were kept long enough.


DAY_S = 86_400.0
EVENTS_KEPT_S = 7 * DAY_S
IDS_KEPT_S = 37 * DAY_S  # a message's id outlives its body by 30 days
BODIES_KEPT_S = 7 * DAY_S  # those of dead letters go with their id: somebody may run them again
RECOVERIES_KEPT_S = 365 * DAY_S
STEP_S = DAY_S  # how far one run follows the clock
DESCRIPTIONS_KEPT_S = 365 * DAY_S  # a sticker that is seen again then is described again
BATCH = 500
FORGOTTEN = "body='', extras=NULL, attachments=NULL, fetched=NULL"  # what people wrote and sent
CALLS = 50  # whose histories go with one batch of ids
OLD_IDS = "SELECT id, key FROM inbox WHERE id<$1 AND ended_at<$3 ORDER BY id LIMIT $2"
FORGET_IDS = "DELETE FROM inbox WHERE id<=$1 AND ended_at<$2 RETURNING 1"
OF_A_TURN = ("attempt", "effect", "failure", "approval", "output")
FORGET_REPLIES = (
    "DELETE FROM outbox WHERE id IN (SELECT id FROM outbox WHERE id<$1"
    " AND (state='sent' OR (state='dead' AND dead_at IS NULL)) ORDER BY id LIMIT $2) RETURNING id"
)
# The tries of replies that are gone; those of a turn itself (positive numbers) stay with it.
FORGET_TRIES = (
    "DELETE FROM failure WHERE turn BETWEEN $1 AND $2 AND number<0"
    " AND NOT EXISTS (SELECT 1 FROM outbox o WHERE o.id=failure.turn)"
)
FORGET_DESCRIPTIONS = "DELETE FROM description WHERE (platform, id) IN (SELECT platform, id FROM description WHERE at<$1 LIMIT $2) RETURNING 1"


def idle_entries(after: str, limit: int) -> Op[list[SessionEntry]]:
    """Entries with a session and no turn, a page at a time, for the expiry watcher."""
    rows = yield sql(
        f"SELECT {COLUMNS} FROM entry WHERE key>$1 AND session_id IS NOT NULL AND turn IS NULL AND expired IS NULL"
        " ORDER BY key LIMIT $2",
        after,
        limit,
    )
    return [entry_of(row) for row in rows]


def expire(key: str, fence: int, reason: str, at: float) -> Op[bool]:
    """End an expired session without waiting for a message; refused when anything changed since it was read."""
    entry = yield from lock_entry(key)
    if entry is None or entry.session_id is None or entry.turn is not None:
        return False
    if entry.expired or entry.fence != fence:
        return False
    if (yield sql("SELECT 1 FROM inbox WHERE key=$1 AND ended_at IS NULL LIMIT 1", key)):
        return False
    yield sql("UPDATE entry SET expired=$2 WHERE key=$1", key, reason)
    yield from end_session(entry.session_id, reason, entry.seq, at)
    return True


def follow_clock(now: float) -> Op[float]:
    """The time by which this run deletes. It is stored in a row and follows the clock by a day a run, ahead or back: one run with a
    wrong clock deletes things a day early at most. It never is later than the clock.
    """
    rows = yield sql("SELECT value, at FROM cursor WHERE platform='upkeep' AND account='clock'/*lock*/")
    before = float(rows[0][0]) if rows else now - IDS_KEPT_S  # what the first run begins with
    if not rows or rows[0][1] != now:  # else this run has moved it already
        before = min(max(now, before - STEP_S), before + STEP_S)
        yield from move_cursor("upkeep", "clock", repr(before), now)
    return min(now, before)


def forget(now: float) -> Op[int]:
    """Delete one bounded batch of rows that were kept long enough; returns how many, 0 when nothing is left."""
    gone = yield sql(
        "DELETE FROM event WHERE id IN (SELECT id FROM (SELECT id, at FROM event ORDER BY id LIMIT $2) AS oldest"
        " WHERE at<$1) RETURNING 1",
        now - EVENTS_KEPT_S,
        BATCH,
    )
    ids = yield from _forget_ids(now)
    replies = yield from _forget_replies(now)
    bodies = yield from _forget_bodies(now)
    described = yield sql(FORGET_DESCRIPTIONS, now - DESCRIPTIONS_KEPT_S, BATCH)
    outputs = yield from forget_outputs(now)
    yield sql("DELETE FROM action WHERE at<$1", now - IDS_KEPT_S)
    yield sql("DELETE FROM recovery WHERE found_at<$1", now - RECOVERIES_KEPT_S)
    asked = yield from forget_pairings(now)
    return len(gone) + ids + replies + bodies + len(described) + outputs + asked


def _forget_ids(now: float) -> Op[int]:
    """Delete ids of old messages, and the whole conversation of a single call with its last id: nobody can name it now."""
    rows = yield sql(OLD_IDS, oldest_id(now - IDS_KEPT_S), BATCH, now - IDS_KEPT_S)
    calls: dict[str, None] = {}
    last = 0
    for number, key in rows:
        if is_single_call(key):
            if len(calls) == CALLS:
                break
            calls[key] = None
        last = number
    if not rows:
        return 0
    gone = yield sql(FORGET_IDS, last, now - IDS_KEPT_S)
    for key in calls:
        yield from _forget_call(key, now - IDS_KEPT_S)
    return len(gone)


def _forget_call(key: str, before: float) -> Op[None]:
    """Delete the conversation of a single call, unless it went on since."""
    entry = yield from lock_entry(key)
    if entry is None or entry.turn is not None or entry.active_at >= before:
        return
    if (yield sql("SELECT 1 FROM inbox WHERE key=$1 AND ended_at IS NULL LIMIT 1", key)):
        return
    for (session_id,) in (yield sql("SELECT session_id FROM session WHERE key=$1", key)):
        turns = yield sql("SELECT DISTINCT turn FROM message WHERE session_id=$1 AND turn IS NOT NULL", session_id)
        for (turn,) in turns:
            for table in OF_A_TURN:
                yield sql(f"DELETE FROM {table} WHERE turn=$1", turn)
            yield sql("DELETE FROM turn WHERE id=$1", turn)
        yield sql("DELETE FROM message WHERE session_id=$1", session_id)
    yield sql("DELETE FROM session WHERE key=$1", key)
    yield sql("DELETE FROM entry WHERE key=$1", key)


def _forget_replies(now: float) -> Op[int]:
    """Delete old replies, with their failed tries."""
    rows = yield sql(FORGET_REPLIES, oldest_id(now - IDS_KEPT_S), BATCH)
    numbers = [row[0] for row in rows]
    if numbers:
        yield sql(FORGET_TRIES, min(numbers), max(numbers))
    return len(numbers)


def _forget_bodies(now: float) -> Op[int]:
    """Clear the texts of old messages, before the ids by which late repetitions are recognised; a cursor stores the place."""
    place = yield sql("SELECT value FROM cursor WHERE platform='upkeep' AND account='bodies'")
    after = int(place[0][0]) if place else 0
    rows = yield sql(
        f"UPDATE inbox SET {FORGOTTEN} WHERE id IN (SELECT id FROM inbox WHERE id>$1 AND id<$2 AND ended_at IS NOT NULL"
        " AND dead_at IS NULL ORDER BY id LIMIT $3) RETURNING id",
        after,
        oldest_id(now - BODIES_KEPT_S),
        BATCH,
    )
    if rows:
        yield from move_cursor("upkeep", "bodies", str(max(row[0] for row in rows)), now)
    return len(rows)
