"""Store the instances (gateway processes): join, heartbeat, drain, end."""

from __future__ import annotations

from dataclasses import dataclass

from everturn.store.interface import Op, Rows, sql


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
