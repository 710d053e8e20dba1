"""Pairing: a stranger requests access, the owner approves. Stored, so it holds across adapters, replicas and crashes."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from everturn.model import Json, SessionSource
from everturn.outbox.rows.outbox import end_unsent
from everturn.outbox.rows.replies import queue_reply, stored_source
from everturn.outbox.rules.delivery import Delivery
from everturn.people.rows.access import approve_person
from everturn.people.rules import people_texts
from everturn.people.rules.access import (
    EACH_S,
    VALID_S,
    PairingOffer,
    PairingRequest,
    PairingState,
    hashed,
    ids_of,
    lock_after,
    matching,
    offer,
)
from everturn.sessions.rows.entries import write_source
from everturn.store.interface import Op, Row, sql

KIND = "pairing"  # of the message with the code in the outbox: its text is erased once it is sent
LOCKS = "SELECT platform, wrong, tried, locked_until FROM pairing_lock"
ADD = (
    "INSERT INTO pairing (id, platform, person, alias, name, key, source, salt, hash, asked_at, expires_at, ended_at, ended)"
    " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)"
)
# Open, or approved by this very try: its notice is stored with the same commit.
APPROVABLE = (
    "hash<>'' AND expires_at>$2 AND (ended_at IS NULL OR"
    " (ended='approved' AND EXISTS (SELECT 1 FROM outbox o WHERE o.id=$3 AND o.key=pairing.key)))"
)
STALE = (
    "SELECT id FROM outbox WHERE ended_at IS NULL AND kind=$1 AND state IN ('pending','unknown') AND created_at<=$2"
    " ORDER BY id"
)
KEPT_S = 7 * 86_400.0


class AccessRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A stranger's access request, with the code and the id that it will have."""

    id: int
    key: str
    source: SessionSource
    code: str
    salt: str
    at: float


class PairingOutcome(StrEnum):
    """The outcome of an approval."""

    APPROVED = "approved"
    WRONG = "wrong"
    LOCKED = "locked"


class Paired(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an approval; `key` is the session key with a pending notice."""

    outcome: PairingOutcome
    person: str = ""  # "platform:user"
    name: str | None = None
    key: str | None = None
    locked_until: float = 0.0


class Approval(msgspec.Struct, frozen=True, kw_only=True):
    """The owner approves somebody; `notice` is the id of the notice to them, and the number of this try."""

    at: float
    notice: int
    owner: bool = False


def request_access(access_request: AccessRequest) -> Op[bool]:
    """Queue a pairing code, once; True when a message to the stranger is pending. Nothing of their text is stored."""
    if (yield sql("SELECT 1 FROM pairing WHERE id=$1", access_request.id)):
        return True  # this operation ran before
    platform, at = access_request.source.platform, access_request.at
    if (yield from _asked_at(access_request)) is not None:
        return False  # the common case of somebody who goes on writing costs no lock
    yield sql("INSERT INTO pairing_lock (platform) VALUES ($1) ON CONFLICT (platform) DO NOTHING", platform)
    lock = yield sql(f"{LOCKS} WHERE platform=$1/*lock*/", platform)
    rows = yield sql(
        "SELECT coalesce(sum(CASE WHEN ended_at IS NULL AND expires_at>$2 THEN 1 ELSE 0 END), 0),"
        " coalesce(sum(CASE WHEN ended='full' AND asked_at>$3 THEN 1 ELSE 0 END), 0)"
        " FROM pairing WHERE platform=$1 AND asked_at>$4",
        platform, at, at - EACH_S, at - VALID_S,
    )  # fmt: skip
    asked = PairingState(
        theirs_at=(yield from _asked_at(access_request)), open=int(rows[0][0]), full_notices=int(rows[0][1]),
        locked_until=lock[0][3],
    )  # fmt: skip
    given = offer(asked, at)
    if given is PairingOffer.NOTHING:
        return False
    yield from _answer(access_request, given)
    return True


def _asked_at(access_request: AccessRequest) -> Op[float | None]:
    """When this person last requested access, if that was within EACH_S."""
    people = ids_of(access_request.source)
    rows = yield sql(
        "SELECT max(asked_at) FROM pairing WHERE platform=$1 AND asked_at>$2 AND asked_at<=$3"
        " AND (person IN ($4, $5) OR alias IN ($4, $5))",
        access_request.source.platform, access_request.at - EACH_S, access_request.at, people[0], people[-1],
    )  # fmt: skip
    return None if rows[0][0] is None else float(rows[0][0])


def _answer(access_request: AccessRequest, given: PairingOffer) -> Op[None]:
    source, at = access_request.source, access_request.at
    person, *others = ids_of(source)
    full = given is PairingOffer.FULL
    yield sql(
        ADD, access_request.id, source.platform, person, others[0] if others else None, source.user_name, access_request.key,
        write_source(source).decode(), access_request.salt, "" if full else hashed(access_request.code, access_request.salt), at,
        at + VALID_S, at if full else None, PairingOffer.FULL.value if full else None,
    )  # fmt: skip
    text = people_texts.no_code() if full else people_texts.code(access_request.code, person)
    yield from queue_reply(
        access_request.id,
        access_request.key,
        None,
        KIND,
        source,
        text,
        at,
        Delivery(by_event=False, valid_s=VALID_S),
        0,
    )


def approve_code(code: str, platform: str | None, approval: Approval) -> Op[Paired]:
    """Approve the request with this code, on this platform or on any. A wrong code is counted; too many lock."""
    where = " WHERE platform=$1" if platform is not None else ""
    locks = yield sql(f"{LOCKS}{where} ORDER BY platform/*lock*/", *([platform] if platform is not None else []))
    unlocked = [row for row in locks if approval.at >= row[3] or row[2] == approval.notice]
    if locks and not unlocked:
        return Paired(outcome=PairingOutcome.LOCKED, locked_until=max(row[3] for row in locks))
    rows: list[Row] = []
    for lock in unlocked:
        rows += yield sql(
            f"SELECT id, salt, hash, platform FROM pairing WHERE platform=$1 AND asked_at>$4 AND {APPROVABLE}",
            lock[0], approval.at, approval.notice, approval.at - VALID_S,
        )  # fmt: skip
    number = matching(code, [PairingRequest(*row[:3]) for row in rows])
    if number is None:
        asked = {row[3] for row in rows} | ({platform} if platform is not None else set())
        return (yield from _wrong([row for row in unlocked if row[0] in asked], approval))
    return (yield from _approve(number, approval))


def _wrong(locks: list[Row], approval: Approval) -> Op[Paired]:
    """Count a wrong code on platforms with open requests; once, however often this runs."""
    until = 0.0
    for platform, wrong, tried, locked_until in locks:
        if tried == approval.notice:
            until = max(until, locked_until)
            continue
        lock = lock_after(wrong + 1, approval.at)
        yield sql(
            "UPDATE pairing_lock SET wrong=$2, wrong_at=$3, locked_until=$4, tried=$5 WHERE platform=$1",
            platform, 0 if lock else wrong + 1, approval.at, lock, approval.notice,
        )  # fmt: skip
        until = max(until, lock)
    return Paired(outcome=PairingOutcome.WRONG, locked_until=until)


def approve_request(number: int, approval: Approval) -> Op[Paired]:
    """Approve the request with this number: its caller may read the list, so no lock holds and a miss is not counted."""
    rows = yield sql(f"SELECT id FROM pairing WHERE id=$1 AND {APPROVABLE}", number, approval.at, approval.notice)
    return (yield from _approve(number, approval)) if rows else Paired(outcome=PairingOutcome.WRONG)


def _approve(number: int, approval: Approval) -> Op[Paired]:
    rows = yield sql(
        "SELECT platform, person, alias, name, key, source, ended_at FROM pairing WHERE id=$1/*lock*/", number
    )
    platform, person, alias, name, key, raw, ended_at = rows[0]
    paired = Paired(outcome=PairingOutcome.APPROVED, person=f"{platform}:{person}", name=name, key=key)
    if ended_at is not None:  # this operation ran before, or somebody else was faster
        told = yield sql("SELECT 1 FROM outbox WHERE id=$1", approval.notice)
        return paired if told else Paired(outcome=PairingOutcome.WRONG)
    yield sql("UPDATE pairing SET ended_at=$2, ended='approved' WHERE id=$1", number, approval.at)
    yield sql("UPDATE pairing_lock SET wrong=0, locked_until=0 WHERE platform=$1", platform)
    people = [each for each in (person, alias) if each]
    yield from approve_person(platform, people, name, approval.at, owner=approval.owner)
    source = stored_source(raw, platform)
    yield from queue_reply(
        approval.notice, key, None, "notice", source, people_texts.approved(), approval.at,
        Delivery(by_event=False), 0,
    )  # fmt: skip
    return paired


def list_pairings(now: float) -> Op[list[Json]]:
    """Open access requests, oldest first; no code can be read from them."""
    rows = yield sql(
        "SELECT id, platform, person, name, asked_at, expires_at FROM pairing"
        " WHERE ended_at IS NULL AND expires_at>$1 ORDER BY id LIMIT 1000",
        now,
    )
    names = ("request", "platform", "person", "name", "asked_at", "expires_at")
    return [{**dict(zip(names, row, strict=True)), "request": str(row[0])} for row in rows]


def forget_pairings(now: float) -> Op[int]:
    """Delete old requests; an approved person has a row of their own. A code that was not delivered within its hour is not
    kept in clear.
    """
    stale = yield sql(STALE, KIND, now - VALID_S)
    for row in stale:
        yield from end_unsent(row[0], now, "the pairing code expired")
    gone = yield sql("DELETE FROM pairing WHERE asked_at<$1 RETURNING 1", now - KEPT_S)
    return len(gone) + len(stale)
