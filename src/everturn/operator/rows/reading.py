"""Rows that an operator reads: explained messages, transcripts, and who may speak."""

from __future__ import annotations

import math
from dataclasses import dataclass

import msgspec

from everturn.model import Json
from everturn.operator.rows.actions import DONE_BEFORE, KEEP, Impossible, actions_of, why_turn_was_suspended
from everturn.operator.rules import operator_texts
from everturn.outbox.rows.outbox import tries_of
from everturn.people.rows.access import StoppedKey, approve_person, revoke
from everturn.people.rows.pairing import Approval, Paired, PairingOutcome, approve_code, approve_request
from everturn.people.rules import people_texts
from everturn.store.interface import Op, Row, sql
from everturn.turns.rows.recovery import THE_GATEWAY_ENDED
from everturn.turns.rows.spending import USED

FOUND_AT_MOST = 20


def explain(message_id: str) -> Op[list[Json]]:
    """The timelines of the messages with this id (an adapter may add where it came from after an `@`)."""
    rows = yield sql(
        "SELECT id, ext_id, platform, account, key, kind, state, turn, why, accepted_at, ended_at, edited_at, backlog,"
        " body FROM inbox"
        " WHERE ext_id=$1 OR (ext_id>=$2 AND ext_id<$3) ORDER BY id LIMIT $4",
        message_id,
        message_id + "@",
        message_id + "A",
        FOUND_AT_MOST,
    )
    timelines = []
    for row in rows:
        timelines.append((yield from _timeline(row)))  # noqa: PERF401  a comprehension cannot yield
    return timelines


def _timeline(row: Row) -> Op[Json]:
    number, ext_id, platform, account, key, kind, state, turn, why, accepted_at, ended_at, edited_at, backlog = row[:13]
    about = (yield from _turn(turn)) if turn else None
    suspended_why = None
    if about and about["state"] == "suspended":
        suspended_why, _ = yield from why_turn_was_suspended(turn, row[13])
    return {
        "id": ext_id, "platform": platform, "account": account, "key": key, "kind": kind, "state": state, "why": why,
        "received_at": accepted_at, "ended_at": ended_at, "edited_at": edited_at, "backlog": backlog,
        "suspended_why": suspended_why, "turn": about, "replies": (yield from _replies(turn or number)),
        "actions": (yield from actions_of(number, key, accepted_at, about)),
    }  # fmt: skip


def _turn(turn: int) -> Op[Json | None]:
    rows = yield sql(
        "SELECT session_id, state, attempt, instance, note, reason, started_at, attempt_at, ended_at, why,"
        f" {USED} FROM turn"
        " WHERE id=$1",
        turn,
    )
    if not rows:
        return None
    session_id, state, attempt, instance, note, reason, started_at, attempt_at, ended_at, why, *used = rows[0]
    attempts = yield from _attempts(turn)
    if not attempts or attempts[-1]["attempt"] != attempt:  # what was cut off is among the earlier ones already
        names = ("attempt", "instance", "note", "started_at", "ended_at", "why")
        values = (attempt, instance, note, attempt_at, ended_at, why or state)
        attempts.append(dict(zip(names, values, strict=True)))
    return {
        "id": str(turn), "session_id": session_id, "state": state, "reason": reason, "why": why, "note": note,
        "started_at": started_at, "ended_at": ended_at, "attempts": attempts,
        "steps": (yield from _steps(session_id, turn)), "effects": (yield from _effects(turn)),
        "usage": dict(zip(USED.split(", "), used, strict=True)),
        "failures": (yield from _failures(turn)), "approvals": (yield from _approvals(turn)),
    }  # fmt: skip


def _attempts(turn: int) -> Op[list[Json]]:
    rows = yield sql(
        "SELECT attempt, instance, note, started_at, ended_at, why FROM attempt WHERE turn=$1 ORDER BY attempt", turn
    )
    names = ("attempt", "instance", "note", "started_at", "ended_at", "why")
    # An unclean end is dated by the last heartbeat, which may lie before the attempt.
    return [{**dict(zip(names, row, strict=True)), "ended_at": max(row[3], row[4])} for row in rows]


@dataclass(frozen=True, slots=True)
class CutOffAttempt:
    """An attempt that was cut off by the end of its gateway."""

    attempt: int
    started_at: float
    ended_at: float


def attempt_cut_off(turn: int, attempt: int) -> Op[CutOffAttempt | None]:
    """This attempt, if the end of its gateway cut it off."""
    rows = yield sql(
        "SELECT attempt, started_at, ended_at FROM attempt WHERE turn=$1 AND attempt=$2 AND why=$3",
        turn,
        attempt,
        THE_GATEWAY_ENDED,
    )
    return CutOffAttempt(rows[0][0], rows[0][1], max(rows[0][1], rows[0][2])) if rows else None


def _steps(session_id: str, turn: int) -> Op[list[Json]]:
    """Found through the session's index: a turn's rows stand together at the end of the transcript it was written to."""
    rows = yield sql(
        "SELECT seq, role, attempt, at FROM message WHERE session_id=$1 AND turn=$2"
        " AND seq>=(SELECT first_seq FROM turn WHERE id=$2) ORDER BY seq",
        session_id,
        turn,
    )
    return [dict(zip(("seq", "role", "attempt", "at"), row, strict=True)) for row in rows]


def _effects(turn: int) -> Op[list[Json]]:
    rows = yield sql(
        "SELECT call_id, name, effect, state, attempt, begun_at, done_at FROM effect WHERE turn=$1 ORDER BY begun_at",
        turn,
    )
    names = ("call_id", "name", "class", "state", "attempt", "begun_at", "done_at")
    return [dict(zip(names, row, strict=True)) for row in rows]


def _failures(turn: int) -> Op[list[Json]]:
    rows = yield sql(
        "SELECT attempt, kind, why, wait_s, at FROM failure WHERE turn=$1 AND number>0 ORDER BY number", turn
    )
    return [dict(zip(("attempt", "kind", "why", "wait_s", "at"), row, strict=True)) for row in rows]


def _approvals(turn: int) -> Op[list[Json]]:
    rows = yield sql(
        "SELECT id, call_id, tool, request, state, asked_at, answered_at, answered_by FROM approval"
        " WHERE turn=$1 ORDER BY id",
        turn,
    )
    names = ("id", "call_id", "tool", "request", "state", "asked_at", "answered_at", "answered_by")
    return [{**dict(zip(names, row, strict=True)), "id": str(row[0])} for row in rows]


def _replies(number: int) -> Op[list[Json]]:
    """A turn's reply has the turn's number, a command's answer the command's."""
    rows = yield sql(
        "SELECT id, kind, state, attempts, parts, marked, error, created_at, ended_at FROM outbox WHERE id=$1", number
    )
    names = ("id", "kind", "state", "attempts", "parts", "marked", "error", "created_at", "ended_at")
    tries = yield from tries_of(number)
    return [
        {**dict(zip(names, row, strict=True)), "id": str(row[0]), "marked": bool(row[5]), "tries": tries}
        for row in rows
    ]


@dataclass(frozen=True, slots=True)
class OpenWork:
    """Counts of open work by state, and the time of the oldest; None when nothing is open."""

    turns: dict[str, int]
    inbox: dict[str, int]
    inbox_since: float | None
    outbox: dict[str, int]
    outbox_since: float | None


def backlog() -> Op[OpenWork]:
    """Count open work and find the oldest, from the indexes of what is open."""
    turns = yield sql("SELECT state, count(*) FROM turn WHERE ended_at IS NULL GROUP BY state")
    inbox = yield sql("SELECT state, count(*), min(accepted_at) FROM inbox WHERE ended_at IS NULL GROUP BY state")
    outbox = yield sql("SELECT state, count(*), min(created_at) FROM outbox WHERE ended_at IS NULL GROUP BY state")
    return OpenWork(
        turns=dict(turns),
        inbox={state: count for state, count, _ in inbox},
        inbox_since=min((since for state, _, since in inbox if state == "queued"), default=None),
        outbox={state: count for state, count, _ in outbox},
        outbox_since=min((since for _, _, since in outbox), default=None),
    )


def count_open() -> Op[Json]:
    """Count open work by state, from the indexes of what is open: cheap on a large home."""
    inbox = yield sql("SELECT state, count(*) FROM inbox WHERE ended_at IS NULL GROUP BY state")
    turns = yield sql("SELECT state, count(*) FROM turn WHERE ended_at IS NULL GROUP BY state")
    outbox = yield sql("SELECT state, count(*) FROM outbox WHERE ended_at IS NULL GROUP BY state")
    return {"inbox": dict(inbox), "turns": dict(turns), "outbox": dict(outbox)}


# Operator actions on people: approving and revoking, once for each id that the client gave. A pairing code is not
# stored.


class PersonAct(msgspec.Struct, frozen=True, kw_only=True):
    """Approve by `code` or `request`, or `allow` or `revoke` a person; `notice` is made by the caller."""

    id: str
    action: str
    actor: str
    at: float
    notice: int
    code: str | None = None
    request: int | None = None
    platform: str | None = None
    person: tuple[str, str] | None = None  # platform and user
    owner: bool = False


class PersonActed(msgspec.Struct, frozen=True, kw_only=True):
    """An action that is done, or was before: its answer, the key with a pending notice, and the keys that were stopped."""

    said: str
    person: str  # "platform:user"
    key: str | None = None
    ended: tuple[StoppedKey, ...] = ()


def act_on_person(act: PersonAct) -> Op[PersonActed | Impossible]:
    """Do an action once; repeated with the same id it answers the same."""
    rows = yield sql(DONE_BEFORE, act.id)
    if rows:
        action, target, key, said, _ = rows[0]
        return PersonActed(said=said, person=target, key=key or None) if action == act.action else _conflict()
    done = yield from _approve(act) if act.person is None else _decide(act, *act.person)
    if isinstance(done, PersonActed):
        yield sql(KEEP, act.id, act.action, done.person, act.actor, done.key or "", done.said, None, act.at)
    return done


def _conflict() -> Impossible:
    return Impossible(operator_texts.CONFLICT)


def _approve(act: PersonAct) -> Op[PersonActed | Impossible]:
    approval = Approval(at=act.at, notice=act.notice, owner=act.owner)
    if act.request is not None:
        paired, why = (yield from approve_request(act.request, approval)), operator_texts.NO_REQUEST
    else:
        paired, why = (yield from approve_code(act.code or "", act.platform, approval)), operator_texts.WRONG_CODE
    return _paired(act, paired, why)


def _paired(act: PersonAct, paired: Paired, why: str) -> PersonActed | Impossible:
    if paired.outcome is PairingOutcome.APPROVED:
        return PersonActed(said=operator_texts.approved(owner=act.owner), person=paired.person, key=paired.key)
    if paired.locked_until > act.at:
        return Impossible(people_texts.pair_locked(math.ceil((paired.locked_until - act.at) / 60)))
    return Impossible(why)


def _decide(act: PersonAct, platform: str, user: str) -> Op[PersonActed | Impossible]:
    person = f"{platform}:{user}"
    if act.action == "allow":
        yield from approve_person(platform, [user], None, act.at, owner=act.owner)
        return PersonActed(said=operator_texts.approved(owner=act.owner), person=person)
    ended = yield from revoke(platform, user, act.at)
    stopped = sum(each.turn is not None for each in ended)
    return PersonActed(said=operator_texts.revoked(stopped), person=person, ended=tuple(ended))
