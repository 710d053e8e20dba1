"""Pairing: somebody unknown asks, the owner approves. Rows, so that it holds across adapters, replicas and deaths."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from everturn.decide import admission_words
from everturn.decide.admission import ids_of
from everturn.decide.pairing import EACH_S, VALID_S, Asked, Kept, Offer, hashed, lock_after, matching, offer
from everturn.model import Json, SessionSource
from everturn.store.interface import Op, Row, sql
from everturn.store.operations.admission import let_in
from everturn.store.operations.entries import write_source
from everturn.store.operations.outbox import end_unsent
from everturn.store.operations.telling import Delivery, owe, stored_source

KIND = "pairing"  # of the message with the code in the outbox: its text is forgotten when it is out
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
    "SELECT id FROM outbox WHERE ended_at IS NULL AND kind=$1 AND state IN ('owed','doubtful') AND created_at<=$2"
    " ORDER BY id"
)
KEPT_S = 7 * 86_400.0


class Knock(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody unknown at the door, with the code and the id that their question will have."""

    id: int
    key: str
    source: SessionSource
    code: str
    salt: str
    at: float


class Outcome(StrEnum):
    """What an approval did."""

    LET_IN = "let_in"
    WRONG = "wrong"
    LOCKED = "locked"


class Paired(msgspec.Struct, frozen=True, kw_only=True):
    """What an approval did; `key` is where a notice is owed now."""

    outcome: Outcome
    person: str = ""  # "platform:user"
    name: str | None = None
    key: str | None = None
    locked_until: float = 0.0


class Approval(msgspec.Struct, frozen=True, kw_only=True):
    """The owner lets somebody in; `notice` is the id of what they are told, and the number of this try."""

    at: float
    notice: int
    owner: bool = False


def knock(knocking: Knock) -> Op[bool]:
    """Give a code, once, through the outbox; True when something is owed to them. Nothing is kept of what they wrote."""
    if (yield sql("SELECT 1 FROM pairing WHERE id=$1", knocking.id)):
        return True  # this operation ran before
    platform, at = knocking.source.platform, knocking.at
    if (yield from _asked_at(knocking)) is not None:
        return False  # the common case of somebody who goes on writing costs no lock
    yield sql("INSERT INTO pairing_lock (platform) VALUES ($1) ON CONFLICT (platform) DO NOTHING", platform)
    lock = yield sql(f"{LOCKS} WHERE platform=$1/*lock*/", platform)
    rows = yield sql(
        "SELECT coalesce(sum(CASE WHEN ended_at IS NULL AND expires_at>$2 THEN 1 ELSE 0 END), 0),"
        " coalesce(sum(CASE WHEN ended='full' AND asked_at>$3 THEN 1 ELSE 0 END), 0)"
        " FROM pairing WHERE platform=$1 AND asked_at>$4",
        platform, at, at - EACH_S, at - VALID_S,
    )  # fmt: skip
    asked = Asked(
        theirs_at=(yield from _asked_at(knocking)), open=int(rows[0][0]), told_full=int(rows[0][1]),
        locked_until=lock[0][3],
    )  # fmt: skip
    given = offer(asked, at)
    if given is Offer.NOTHING:
        return False
    yield from _answer(knocking, given)
    return True


def _asked_at(knocking: Knock) -> Op[float | None]:
    """When this person last asked, if that was a moment ago."""
    people = ids_of(knocking.source)
    rows = yield sql(
        "SELECT max(asked_at) FROM pairing WHERE platform=$1 AND asked_at>$2 AND asked_at<=$3"
        " AND (person IN ($4, $5) OR alias IN ($4, $5))",
        knocking.source.platform, knocking.at - EACH_S, knocking.at, people[0], people[-1],
    )  # fmt: skip
    return None if rows[0][0] is None else float(rows[0][0])


def _answer(knocking: Knock, given: Offer) -> Op[None]:
    source, at = knocking.source, knocking.at
    person, *others = ids_of(source)
    full = given is Offer.FULL
    yield sql(
        ADD, knocking.id, source.platform, person, others[0] if others else None, source.user_name, knocking.key,
        write_source(source).decode(), knocking.salt, "" if full else hashed(knocking.code, knocking.salt), at,
        at + VALID_S, at if full else None, Offer.FULL.value if full else None,
    )  # fmt: skip
    text = admission_words.no_code() if full else admission_words.code(knocking.code, person)
    yield from owe(
        knocking.id, knocking.key, None, KIND, source, text, at, Delivery(by_event=False, valid_s=VALID_S), 0
    )


def approve_code(code: str, platform: str | None, approval: Approval) -> Op[Paired]:
    """Let in who was given this code, on this platform or on any. A wrong code is counted; too many lock."""
    where = " WHERE platform=$1" if platform is not None else ""
    locks = yield sql(f"{LOCKS}{where} ORDER BY platform/*lock*/", *([platform] if platform is not None else []))
    unlocked = [row for row in locks if approval.at >= row[3] or row[2] == approval.notice]
    if locks and not unlocked:
        return Paired(outcome=Outcome.LOCKED, locked_until=max(row[3] for row in locks))
    rows: list[Row] = []
    for lock in unlocked:
        rows += yield sql(
            f"SELECT id, salt, hash, platform FROM pairing WHERE platform=$1 AND asked_at>$4 AND {APPROVABLE}",
            lock[0], approval.at, approval.notice, approval.at - VALID_S,
        )  # fmt: skip
    number = matching(code, [Kept(*row[:3]) for row in rows])
    if number is None:
        asked = {row[3] for row in rows} | ({platform} if platform is not None else set())
        return (yield from _wrong([row for row in unlocked if row[0] in asked], approval))
    return (yield from _let_in(number, approval))


def _wrong(locks: list[Row], approval: Approval) -> Op[Paired]:
    """Counted where somebody waits for the right one; once, however often this runs."""
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
    return Paired(outcome=Outcome.WRONG, locked_until=until)


def approve_request(number: int, approval: Approval) -> Op[Paired]:
    """Let in who asked under this number: for who may look at the list, so no lock holds and a miss is not counted."""
    rows = yield sql(f"SELECT id FROM pairing WHERE id=$1 AND {APPROVABLE}", number, approval.at, approval.notice)
    return (yield from _let_in(number, approval)) if rows else Paired(outcome=Outcome.WRONG)


def _let_in(number: int, approval: Approval) -> Op[Paired]:
    rows = yield sql(
        "SELECT platform, person, alias, name, key, source, ended_at FROM pairing WHERE id=$1/*lock*/", number
    )
    platform, person, alias, name, key, raw, ended_at = rows[0]
    paired = Paired(outcome=Outcome.LET_IN, person=f"{platform}:{person}", name=name, key=key)
    if ended_at is not None:  # this operation ran before, or somebody else was faster
        told = yield sql("SELECT 1 FROM outbox WHERE id=$1", approval.notice)
        return paired if told else Paired(outcome=Outcome.WRONG)
    yield sql("UPDATE pairing SET ended_at=$2, ended='approved' WHERE id=$1", number, approval.at)
    yield sql("UPDATE pairing_lock SET wrong=0, locked_until=0 WHERE platform=$1", platform)
    people = [each for each in (person, alias) if each]
    yield from let_in(platform, people, name, approval.at, owner=approval.owner)
    source = stored_source(raw, platform)
    yield from owe(
        approval.notice, key, None, "notice", source, admission_words.let_in(), approval.at, Delivery(by_event=False), 0
    )
    return paired


def list_pairings(now: float) -> Op[list[Json]]:
    """The questions that are open, oldest first; no code can be read from them."""
    rows = yield sql(
        "SELECT id, platform, person, name, asked_at, expires_at FROM pairing"
        " WHERE ended_at IS NULL AND expires_at>$1 ORDER BY id LIMIT 1000",
        now,
    )
    names = ("request", "platform", "person", "name", "asked_at", "expires_at")
    return [{**dict(zip(names, row, strict=True)), "request": str(row[0])} for row in rows]


def forget_pairings(now: float) -> Op[int]:
    """Old questions go; that of somebody who was let in is in their own row. A code that was not delivered within its hour
    is not kept in clear.
    """
    stale = yield sql(STALE, KIND, now - VALID_S)
    for row in stale:
        yield from end_unsent(row[0], now, "its hour is over")
    gone = yield sql("DELETE FROM pairing WHERE asked_at<$1 RETURNING 1", now - KEPT_S)
    return len(gone) + len(stale)
