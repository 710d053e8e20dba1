"""Who may speak, as part of the operation that depends on it: what the rows say of a person, and what becomes of open
messages and turns of somebody who may no longer speak.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from everturn.decide import admission_words, bubble_words
from everturn.decide.admission import Admission, Standing, Verdict, ids_of, standing_of, verdict
from everturn.decide.approvals import person_in
from everturn.model import Json, SessionEntry, SessionSource
from everturn.store.interface import Op, Row, sql
from everturn.store.operations.boundaries import acknowledge_tail, end_open_turn, release
from everturn.store.operations.bubbles import BROKEN_OFF, REPLY, ROW, SAY
from everturn.store.operations.entries import lock_entry, source_of
from everturn.store.operations.outbox import end_unsent, parts_of
from everturn.store.operations.telling import Delivery, tell

REVOKED = "revoked"  # why their messages and turns ended
STANDING = "SELECT state, owner FROM person WHERE platform=$1 AND id IN ($2, $3)"
OPEN_ROWS = "SELECT id, source, state, turn, kind FROM inbox WHERE key=$1 AND ended_at IS NULL"
OPEN_OF_PLATFORM = "SELECT key, source FROM inbox WHERE ended_at IS NULL AND platform=$1"
PUT = (
    "INSERT INTO person (platform, id, who, state, owner, name, at) VALUES ($1, $2, $3, $4, $5, $6, $7)"
    " ON CONFLICT (platform, id) DO UPDATE SET who=excluded.who, state=excluded.state, owner=excluded.owner,"
    " name=coalesce(excluded.name, person.name), at=excluded.at"
)
THEIR_IDS = "SELECT id FROM person WHERE platform=$1 AND who IN (SELECT who FROM person WHERE platform=$1 AND id=$2) ORDER BY id"
TURN_OUT = "UPDATE inbox SET state='dead', ended_at=$2, dead_at=$2, why=$3 WHERE id=$1 AND state='waiting' RETURNING id"


class TurnedOut(msgspec.Struct, frozen=True):
    """A key where somebody's messages or turn ended; `turn` is the one that was stopped."""

    key: str
    turn: int | None


def standing(source: SessionSource, *, lock: bool = False) -> Op[Standing]:
    """What the rows say of the author; locked, nobody is revoked until this operation has committed."""
    people = ids_of(source)
    if not people:
        return Standing.UNKNOWN
    text = f"{STANDING}/*lock*/" if lock else STANDING
    rows = yield sql(text, source.platform, people[0], people[-1])
    return standing_of((row[0], bool(row[1])) for row in rows)


def admitted(admission: Admission | None, source: SessionSource, *, lock: bool = False) -> Op[Verdict]:
    """Whether the author may speak there now. None: the platform's people are not let in here."""
    if admission is None or not admission.governs(source.platform):
        return Verdict.ALLOWED
    return verdict(admission, source, (yield from standing(source, lock=lock)))


def turn_out_denied(entry: SessionEntry, admission: Admission | None, at: float, by: int) -> Op[SessionEntry]:
    """Before a key's work goes on: what is open there of people who may not speak any more ends. The entry as it is then."""
    if admission is None or (entry.turn is None and not entry.waiting):
        return entry
    denied = yield from _denied(entry, (yield sql(OPEN_ROWS, entry.key)), admission)
    if not denied:
        return entry
    yield from turn_out(entry, denied, at, by)
    return (yield from lock_entry(entry.key)) or entry


def _denied(entry: SessionEntry, rows: Sequence[Row], admission: Admission) -> Op[list[Row]]:
    """The rows of those who may not speak; each person is looked up once."""
    known: dict[str, bool] = {}
    for row in rows:
        if row[1] not in known:
            source = source_of(row[1]) or entry.origin or SessionSource(platform="")
            known[row[1]] = (yield from admitted(admission, source)) is not Verdict.ALLOWED
    return [row for row in rows if known[row[1]]]


def turn_out(entry: SessionEntry, denied: Sequence[Row], at: float, by: int | None = None) -> Op[int | None]:
    """These open rows of the key become dead letters; a turn that answers one of them is stopped and loses its fence, its
    questions are closed. Commands among them are left to whoever applies them. Returns the turn. The entry is locked.
    """
    ended = 0
    for row in denied:
        if row[2] == "waiting" and row[4] != "command":
            ended += len((yield sql(TURN_OUT, row[0], at, REVOKED)))
    if ended:
        yield sql("UPDATE entry SET waiting=waiting-$2 WHERE key=$1", entry.key, ended)
    turn = entry.turn
    if turn is None or not any(row[3] == turn for row in denied):
        return None
    gone = {row[0] for row in denied}
    left = [row[1] for row in (yield sql(f"{OPEN_ROWS} AND turn=$2", entry.key, turn)) if row[0] not in gone]
    text = admission_words.stopped_with_other() if left else None
    yield from end_open_turn(entry, "stopped", "dead", REVOKED, at, text, by=by)  # its bubble says it, if it has one
    yield from release(entry)
    yield from acknowledge_tail(entry, at)
    if text is not None:
        yield from tell(turn, entry.key, source_of(left[-1]), text, REVOKED, at, Delivery(by_event=False), turn)
    return turn


def welcome(key: str, rows: Sequence[Row], admission: Admission | None, at: float) -> Op[list[Row]]:
    """Of waiting rows (id, body, source, ...) those whose author may speak; the others end. The entry is locked."""
    allowed = []
    for row in rows:
        source = source_of(row[2])
        if source is None or (yield from admitted(admission, source)) is Verdict.ALLOWED:
            allowed.append(row)
        elif (yield sql(TURN_OUT, row[0], at, REVOKED)):
            yield sql("UPDATE entry SET waiting=waiting-1 WHERE key=$1", key)
    return allowed


def revoke(platform: str, person: str, at: float) -> Op[list[TurnedOut]]:
    """Turn somebody out, under all their ids, at once: their turns stop, what waits of them or for them ends, what they
    ever allowed is forgotten. It holds against every list until they are let in again.
    """
    rows = yield sql("SELECT who FROM person WHERE platform=$1 AND id=$2/*lock*/", platform, person)
    who = rows[0][0] if rows else person
    yield sql(
        "UPDATE person SET state='revoked', owner=0, at=$3 WHERE platform=$1 AND who=$2 AND state<>'revoked'",
        platform, who, at,
    )  # fmt: skip
    if not rows:
        yield sql(PUT, platform, person, person, "revoked", 0, None, at)
    return (yield from _end_theirs(platform, who, at))


def revoke_again(since: float, at: float) -> Op[list[tuple[str, str, list[TurnedOut]]]]:
    """What was accepted in the very moment of a revocation, unseen by it, ends too: (platform, person, what ended) for all
    who were revoked since then and still are.
    """
    rows = yield sql(
        "SELECT platform, id, who FROM person WHERE state='revoked' AND at>=$1 ORDER BY platform, id/*lock*/", since
    )
    ended = []
    for platform, person, who in rows:
        ended.append((platform, person, (yield from _end_theirs(platform, who, at))))
    return ended


def _end_theirs(platform: str, who: str, at: float) -> Op[list[TurnedOut]]:
    known = yield sql("SELECT id FROM person WHERE platform=$1 AND who=$2", platform, who)
    people = {row[0] for row in known}
    yield from _forget_wishes(platform, people, at)
    ended = yield from _turn_out_everywhere(platform, people, at)
    keys = yield from _end_replies(platform, people, at)
    return [*ended, *(TurnedOut(key, None) for key in keys if key not in {each.key for each in ended})]


def _forget_wishes(platform: str, people: set[str], at: float) -> Op[None]:
    """What they allowed, for themselves or as an approver for others, and what others allowed for them."""
    names = {f"{platform}:{each}" for each in people}
    for (scope,) in (yield sql("SELECT DISTINCT scope FROM allowance ORDER BY scope")):
        if person_in(scope) in names:
            yield sql("DELETE FROM allowance WHERE scope=$1", scope)
    for each in sorted(people):
        yield sql("DELETE FROM allowance WHERE granted_by=$1", f"{platform}:{each}")
        yield sql(
            "UPDATE pairing SET ended_at=$3, ended='revoked' WHERE platform=$1 AND person=$2 AND ended_at IS NULL",
            platform, each, at,
        )  # fmt: skip


def _turn_out_everywhere(platform: str, people: set[str], at: float) -> Op[list[TurnedOut]]:
    """Key by key, in their order, so that two who do this never wait for each other."""
    rows = yield sql(OPEN_OF_PLATFORM, platform)
    found: list[TurnedOut] = []
    for key in sorted({row[0] for row in rows if _is_by(row[1], people)}):
        entry = yield from lock_entry(key)
        if entry is not None:
            denied = [row for row in (yield sql(OPEN_ROWS, key)) if _is_by(row[1], people)]
            found.append(TurnedOut(key, (yield from turn_out(entry, denied, at))))
    return found


def _end_replies(platform: str, people: set[str], at: float) -> Op[list[str]]:
    """Nothing more goes to their direct chats: what is owed becomes a dead letter, and of an answer that is on the screen
    only the end is shown. What is being sent in this moment is not sent again. The keys where something is left to show.
    """
    rows = yield sql("SELECT id, key, source FROM outbox WHERE ended_at IS NULL AND platform=$1 ORDER BY id", platform)
    shown = []
    for number, key, raw in rows:
        if _goes_to(raw, people) and (yield from _end_reply(number, at)):
            shown.append(key)
    return shown


def _end_reply(number: int, at: float) -> Op[bool]:
    """True when something of it is on the screen, and has to get its last shape."""
    rows = yield sql(ROW, number)
    state, kind, parts, bubble = rows[0] if rows else ("sent", "", "", None)
    if state not in {"owed", "sending", "doubtful"} or kind == BROKEN_OFF:
        return False
    if bubble is None or not parts_of(parts) or state == "doubtful":
        yield from end_unsent(number, at, REVOKED)
        return False
    yield sql(SAY, number, REPLY, bubble_words.ended(REVOKED), at)
    return True


def _goes_to(raw: object, people: set[str]) -> bool:
    source = source_of(raw)
    return source is not None and source.chat_type == "dm" and not people.isdisjoint((*ids_of(source), source.chat_id))


def _is_by(raw: object, people: set[str]) -> bool:
    source = source_of(raw)
    return source is not None and not people.isdisjoint(ids_of(source))


def let_in(platform: str, people: Sequence[str], name: str | None, at: float, *, owner: bool) -> Op[None]:
    """Somebody may speak from now on, under all these ids and those that are known as theirs; the first is how they are
    called.
    """
    known: list[Row] = []
    for each in people:
        known += yield sql(THEIR_IDS, platform, each)
    for each in dict.fromkeys((*people, *(row[0] for row in known))):
        yield sql(PUT, platform, each, people[0], "granted", int(owner), name, at)


def list_people() -> Op[list[Json]]:
    """Everybody whom the owner let in or turned out, the newest first."""
    rows = yield sql(
        "SELECT platform, id, who, state, owner, name, at FROM person ORDER BY at DESC, platform, id LIMIT 1000"
    )
    names = ("platform", "id", "who", "state", "owner", "name", "at")
    return [{**dict(zip(names, row, strict=True)), "owner": bool(row[4])} for row in rows]
