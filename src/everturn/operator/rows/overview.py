"""The operator's overview: open work and its age, instances, recoveries, accounts. Every count is read through an index of
what is open, so that it costs nothing on a large home.
"""

from __future__ import annotations

from everturn.ids import made_at, made_by
from everturn.lifecycle.rows.instances import record_end
from everturn.model import Json
from everturn.sessions.rules.keys import account_of
from everturn.store.interface import Op, Row, sql

COUNTED = 10_000  # conversations are counted this far
SHOWN_INSTANCES = 10
RECOVERIES = 20
INSTANCE = (
    "SELECT number, host, pid, started_at, heartbeat_at, ended_at, ended, drain_kind, drain_reason FROM instance WHERE "
)
INSTANCE_NAMES = (
    "number", "host", "pid", "started_at", "heartbeat_at", "ended_at", "ended", "drain_kind", "drain_reason",
)  # fmt: skip
RECOVERY_NAMES = (
    "instance", "previous_exit", "died_at", "by", "at", "ready_at", "continued", "suspended", "returned",
)  # fmt: skip


def counts(now: float) -> Op[Json]:
    """Count open work by kind, with the oldest of it; how many access requests are open."""
    turns: dict[str, int] = dict((yield sql("SELECT state, count(*) FROM turn WHERE ended_at IS NULL GROUP BY state")))
    waiting = yield sql(
        "SELECT count(*), min(accepted_at) FROM inbox WHERE ended_at IS NULL AND state='queued' AND kind='message'"
    )
    replies = yield sql(
        "SELECT CASE state WHEN 'unknown' THEN 'unknown' ELSE 'pending' END, count(*), min(created_at)"
        " FROM outbox WHERE ended_at IS NULL GROUP BY 1"
    )
    out = {row[0]: (row[1], row[2]) for row in replies}
    # What only keeps a note for its next message has nothing to resume: it is as good as active.
    marked: dict[str, int] = dict(
        (
            yield sql(
                "SELECT state, count(*) FROM entry WHERE state<>'active' AND (state<>'resume_pending' OR turn IS NOT NULL)"
                " GROUP BY state"
            )
        )
    )
    return {
        "running": turns.get("running", 0),
        "awaiting_approval": turns.get("awaiting_approval", 0),
        "interrupted": turns.get("interrupted", 0),
        "inbox_queued": waiting[0][0],
        "inbox_oldest_at": waiting[0][1],
        "outbox_pending": out.get("pending", (0, None))[0],
        "outbox_oldest_at": out.get("pending", (0, None))[1],
        "outbox_unknown": out.get("unknown", (0, None))[0],
        "dead_replies": (yield sql("SELECT count(*) FROM outbox WHERE dead_at IS NOT NULL"))[0][0],
        "dead_messages": (yield sql("SELECT count(*) FROM inbox WHERE dead_at IS NOT NULL"))[0][0],
        "suspended": marked.get("suspended", 0),
        "resume_pending": marked.get("resume_pending", 0),
        "access_requests": (yield sql("SELECT count(*) FROM pairing WHERE ended_at IS NULL AND expires_at>$1", now))[0][
            0
        ],
        "sessions": (yield from _conversations()),
    }


def _conversations() -> Op[int]:
    rows = yield sql(
        "SELECT count(*) FROM (SELECT session_id FROM entry ORDER BY id LIMIT $1) AS e WHERE e.session_id IS NOT NULL",
        COUNTED,
    )
    return int(rows[0][0])


def instances() -> Op[list[Json]]:
    """The instances that have not ended, and the last ones whatever became of them, newest first."""
    rows = yield sql(INSTANCE + "ended_at IS NULL AND locked=1 ORDER BY number")
    rows += yield sql(INSTANCE + "locked=1 ORDER BY number DESC LIMIT $1", SHOWN_INSTANCES)
    by_number = {row[0]: dict(zip(INSTANCE_NAMES, row, strict=True)) for row in rows}
    return [by_number[number] for number in sorted(by_number, reverse=True)]


# -- accounts of platforms ---------------------------------------------------------------------------------------------


def note_contact(platform: str, account: str, received_at: float | None, sent_at: float | None) -> Op[None]:
    """Record when an account last received or sent something: proof that it works."""
    yield sql(
        "INSERT INTO contact (platform, account, received_at, sent_at) VALUES ($1, $2, $3, $4)"
        " ON CONFLICT (platform, account) DO UPDATE SET received_at=coalesce(excluded.received_at, contact.received_at),"
        " sent_at=coalesce(excluded.sent_at, contact.sent_at)",
        platform,
        account,
        received_at,
        sent_at,
    )


def knows_platform(platform: str) -> Op[bool]:
    """Whether something ever came from there, or went there, or somebody there is on the list."""
    rows = yield sql(
        "SELECT 1 WHERE EXISTS (SELECT 1 FROM contact WHERE platform=$1) OR EXISTS (SELECT 1 FROM person WHERE platform=$1)",
        platform,
    )
    return bool(rows)


def accounts() -> Op[dict[tuple[str, str], Json]]:
    """What the rows know of each account: when it was proven to work, and what is open there."""
    found: dict[tuple[str, str], Json] = {}
    for platform, account, received_at, sent_at in (
        yield sql("SELECT platform, account, received_at, sent_at FROM contact")
    ):
        _account(found, platform, account).update(received_at=received_at, sent_at=sent_at)
    for platform, account, number in (
        yield sql(
            "SELECT platform, account, count(*) FROM inbox WHERE ended_at IS NULL AND state='queued'"
            " AND kind='message' GROUP BY platform, account"
        )
    ):
        _account(found, platform, account)["queued"] = number
    for row in (yield sql("SELECT key, platform, count(*) FROM outbox WHERE ended_at IS NULL GROUP BY key, platform")):
        _count_reply(found, row)
    return found


def _account(found: dict[tuple[str, str], Json], platform: str, account: str) -> Json:
    blank: Json = {"received_at": None, "sent_at": None, "queued": 0, "pending": 0}
    return found.setdefault((platform, account), blank)


def _count_reply(found: dict[tuple[str, str], Json], row: Row) -> None:
    key, platform, number = row
    about = _account(found, platform, account_of(key))
    about["pending"] = int(str(about["pending"])) + number


# -- recoveries --------------------------------------------------------------------------------------------------------


def close_dead(instance: int, found_by: int, at: float) -> Op[None]:
    """Record the unclean end of a dead instance, and with the same commit what became of its turns."""
    died_at = min(at, (yield from _last_sign(instance)))
    yield from record_end(instance, "unclean", at)
    yield from _note_recovery(instance, "unclean", died_at, found_by, at)


def note_planned(found_by: int, at: float) -> Op[bool]:
    """Record a start after a planned end, if that end cut turns off. Returns whether it did."""
    rows = yield sql(
        "SELECT number, ended, ended_at FROM instance WHERE number<$1 AND ended_at IS NOT NULL"
        " ORDER BY number DESC LIMIT 1",
        found_by,
    )
    if not rows or rows[0][1] == "unclean":
        return False
    number, ended, ended_at = rows[0]
    return (yield from _note_recovery(number, ended, ended_at, found_by, at))


def _last_sign(instance: int) -> Op[float]:
    """When a process last did anything we know of: its heartbeat, or the newest id if it made that."""
    rows = yield sql(
        "SELECT heartbeat_at, (SELECT max(id) FROM inbox), (SELECT max(id) FROM turn), (SELECT max(id) FROM outbox)"
        " FROM instance WHERE number=$1",
        instance,
    )
    beat, *newest = rows[0]
    return float(max([beat, *(made_at(number) for number in newest if number and made_by(number, instance))]))


def _note_recovery(instance: int, ended: str, died_at: float, found_by: int, found_at: float) -> Op[bool]:
    """Record what became of the turns of an instance, counted from their rows: a recovery that itself died and was repeated
    is recorded whole.
    """
    rows = yield sql(
        "SELECT count(*), count(CASE WHEN t.state='suspended' THEN 1 END),"
        " count(CASE WHEN t.state='interrupted' AND t.reason IS NULL THEN 1 END)"
        " FROM attempt a JOIN turn t ON t.id=a.turn"
        " WHERE a.instance=$1 AND a.why IN ('the gateway ended','restart_timeout','shutdown_timeout')",
        instance,
    )
    cut_off, suspended, returned = rows[0]
    if not cut_off and ended != "unclean":
        return False
    yield sql(
        "INSERT INTO recovery (instance, ended, died_at, found_by, found_at, continued, suspended, returned)"
        " VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (instance) DO NOTHING",
        instance, ended, died_at, found_by, found_at, cut_off - suspended - returned, suspended, returned,
    )  # fmt: skip
    return True


def note_ready(found_by: int, at: float) -> Op[None]:
    """Record when a recovering instance takes turns again."""
    yield sql("UPDATE recovery SET ready_at=$2 WHERE found_by=$1 AND ready_at IS NULL", found_by, at)


def recoveries(limit: int = RECOVERIES) -> Op[list[Json]]:
    """The recoveries of instances that ended, newest first."""
    rows = yield sql(
        "SELECT instance, ended, died_at, found_by, found_at, ready_at, continued, suspended, returned FROM recovery"
        " ORDER BY instance DESC LIMIT $1",
        limit,
    )
    return [_recovery(row) for row in rows]


def _recovery(row: Row) -> Json:
    told: Json = dict(zip(RECOVERY_NAMES, row, strict=True))
    died_at, ready_at = row[2], row[5]
    return {**told, "back_after_s": None if ready_at is None else max(0.0, ready_at - died_at)}
