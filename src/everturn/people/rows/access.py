"""Rows of access: a person's stored standing, approving and revoking people, and ending the open messages and turns of
somebody who may no longer speak.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from everturn.model import Json, SessionEntry, SessionSource
from everturn.outbox.rows.outbox import end_unsent, parts_of
from everturn.outbox.rows.replies import queue_notice
from everturn.outbox.rows.streaming import BROKEN_OFF, REPLY, ROW, SAY
from everturn.outbox.rules import outbox_texts
from everturn.outbox.rules.delivery import Delivery
from everturn.people.rules import people_texts
from everturn.people.rules.access import AccessVerdict, Admission, Standing, ids_of, standing_of, verdict
from everturn.sessions.rows.boundaries import acknowledge_tail, end_open_turn, release
from everturn.sessions.rows.entries import lock_entry, source_of
from everturn.store.interface import Op, Row, sql
from everturn.turns.rules.approvals import person_in

REVOKED = "revoked"  # why their messages and turns ended
STANDING = "SELECT state, owner FROM person WHERE platform=$1 AND id IN ($2, $3)"
OPEN_ROWS = "SELECT id, source, state, turn, kind FROM inbox WHERE key=$1 AND ended_at IS NULL"
OPEN_OF_PLATFORM = "SELECT key, source FROM inbox WHERE ended_at IS NULL AND platform=$1"
PUT = (
    "INSERT INTO person (platform, id, main_id, state, owner, name, at) VALUES ($1, $2, $3, $4, $5, $6, $7)"
    " ON CONFLICT (platform, id) DO UPDATE SET main_id=excluded.main_id, state=excluded.state, owner=excluded.owner,"
    " name=coalesce(excluded.name, person.name), at=excluded.at"
)
THEIR_IDS = "SELECT id FROM person WHERE platform=$1 AND main_id IN (SELECT main_id FROM person WHERE platform=$1 AND id=$2) ORDER BY id"
REVOKE = "UPDATE inbox SET state='dead', ended_at=$2, dead_at=$2, why=$3 WHERE id=$1 AND state='queued' RETURNING id"


class StoppedKey(msgspec.Struct, frozen=True):
    """A key where somebody's messages or turn ended; `turn` is the one that was stopped."""

    key: str
    turn: int | None


def standing(source: SessionSource, *, lock: bool = False) -> Op[Standing]:
    """The author's stored standing; with `lock` nobody is revoked until this operation has committed."""
    people = ids_of(source)
    if not people:
        return Standing.UNKNOWN
    text = f"{STANDING}/*lock*/" if lock else STANDING
    rows = yield sql(text, source.platform, people[0], people[-1])
    return standing_of((row[0], bool(row[1])) for row in rows) if rows else Standing.UNKNOWN


def admitted(admission: Admission | None, source: SessionSource, *, lock: bool = False) -> Op[AccessVerdict]:
    """Whether the author may speak there now. None: admission does not govern the platform."""
    if admission is None or not admission.governs(source.platform):
        return AccessVerdict.ALLOWED
    return verdict(admission, source, (yield from standing(source, lock=lock)))


def revoke_denied(entry: SessionEntry, admission: Admission | None, at: float, by: int) -> Op[SessionEntry]:
    """End the key's open messages and turn of people who may no longer speak. Returns the entry as it is then."""
    if admission is None or (entry.turn is None and not entry.waiting):
        return entry
    denied = yield from _denied(entry, (yield sql(OPEN_ROWS, entry.key)), admission)
    if not denied:
        return entry
    yield from revoke_messages(entry, denied, at, by)
    return (yield from lock_entry(entry.key)) or entry


def _denied(entry: SessionEntry, rows: Sequence[Row], admission: Admission) -> Op[list[Row]]:
    """The rows of those who may not speak; each person is looked up once."""
    known: dict[str, bool] = {}
    for row in rows:
        if row[1] not in known:
            source = source_of(row[1]) or entry.origin or SessionSource(platform="")
            known[row[1]] = (yield from admitted(admission, source)) is not AccessVerdict.ALLOWED
    return [row for row in rows if known[row[1]]]


def revoke_messages(entry: SessionEntry, denied: Sequence[Row], at: float, by: int | None = None) -> Op[int | None]:
    """Turn these open rows of the key into dead letters; a turn that answers one of them is stopped and loses its fence, its
    approval requests are closed. Commands among them are left to `apply_command`. Returns the turn. The entry is locked.
    """
    ended = 0
    for row in denied:
        if row[2] == "queued" and row[4] != "command":
            ended += len((yield sql(REVOKE, row[0], at, REVOKED)))
    if ended:
        yield sql("UPDATE entry SET waiting=waiting-$2 WHERE key=$1", entry.key, ended)
    turn = entry.turn
    if turn is None or not any(row[3] == turn for row in denied):
        return None
    gone = {row[0] for row in denied}
    left = [row[1] for row in (yield sql(f"{OPEN_ROWS} AND turn=$2", entry.key, turn)) if row[0] not in gone]
    text = people_texts.stopped_with_other() if left else None
    yield from end_open_turn(entry, "stopped", "dead", REVOKED, at, text, by=by)  # its bubble says it, if it has one
    yield from release(entry)
    yield from acknowledge_tail(entry, at)
    if text is not None:
        yield from queue_notice(turn, entry.key, source_of(left[-1]), text, REVOKED, at, Delivery(by_event=False), turn)
    return turn


def filter_allowed(key: str, rows: Sequence[Row], admission: Admission | None, at: float) -> Op[list[Row]]:
    """The queued rows (id, body, source, ...) whose author may speak; the others are ended. The entry is locked."""
    allowed = []
    for row in rows:
        source = source_of(row[2])
        if source is None or (yield from admitted(admission, source)) is AccessVerdict.ALLOWED:
            allowed.append(row)
        elif (yield sql(REVOKE, row[0], at, REVOKED)):
            yield sql("UPDATE entry SET waiting=waiting-1 WHERE key=$1", key)
    return allowed


def revoke(platform: str, person: str, at: float) -> Op[list[StoppedKey]]:
    """Revoke somebody, under all their ids, at once: their turns stop, what is queued from them or pending to them ends, what
    they ever allowed is forgotten. It holds against every list until they are approved again.
    """
    rows = yield sql("SELECT main_id FROM person WHERE platform=$1 AND id=$2/*lock*/", platform, person)
    main_id = rows[0][0] if rows else person
    yield sql(
        "UPDATE person SET state='revoked', owner=0, at=$3 WHERE platform=$1 AND main_id=$2 AND state<>'revoked'",
        platform, main_id, at,
    )  # fmt: skip
    if not rows:
        yield sql(PUT, platform, person, person, "revoked", 0, None, at)
    return (yield from _end_theirs(platform, main_id, at))


def revoke_again(since: float, at: float) -> Op[list[tuple[str, str, list[StoppedKey]]]]:
    """End what was accepted in the very moment of a revocation, unseen by it: (platform, person, what ended) for all
    who were revoked since then and still are.
    """
    rows = yield sql(
        "SELECT platform, id, main_id FROM person WHERE state='revoked' AND at>=$1 ORDER BY platform, id/*lock*/", since
    )
    ended = []
    for platform, person, main_id in rows:
        ended.append((platform, person, (yield from _end_theirs(platform, main_id, at))))
    return ended


def _end_theirs(platform: str, main_id: str, at: float) -> Op[list[StoppedKey]]:
    known = yield sql("SELECT id FROM person WHERE platform=$1 AND main_id=$2", platform, main_id)
    people = {row[0] for row in known}
    yield from _forget_allowances(platform, people, at)
    ended = yield from _revoke_everywhere(platform, people, at)
    keys = yield from _end_replies(platform, people, at)
    return [*ended, *(StoppedKey(key, None) for key in keys if key not in {each.key for each in ended})]


def _forget_allowances(platform: str, people: set[str], at: float) -> Op[None]:
    """Delete what they allowed, for themselves or as an approver for others, and what others allowed for them."""
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


def _revoke_everywhere(platform: str, people: set[str], at: float) -> Op[list[StoppedKey]]:
    """Revoke their messages key by key, in order of the keys, so that two such operations never deadlock."""
    rows = yield sql(OPEN_OF_PLATFORM, platform)
    found: list[StoppedKey] = []
    for key in sorted({row[0] for row in rows if _is_by(row[1], people)}):
        entry = yield from lock_entry(key)
        if entry is not None:
            denied = [row for row in (yield sql(OPEN_ROWS, key)) if _is_by(row[1], people)]
            found.append(StoppedKey(key, (yield from revoke_messages(entry, denied, at))))
    return found


def _end_replies(platform: str, people: set[str], at: float) -> Op[list[str]]:
    """End the replies to their direct chats: what is pending becomes a dead letter, and of a streaming message only the end
    is shown. What is being sent in this moment is not sent again. Returns the keys where something is left to show.
    """
    rows = yield sql("SELECT id, key, source FROM outbox WHERE ended_at IS NULL AND platform=$1 ORDER BY id", platform)
    shown = []
    for number, key, raw in rows:
        if _goes_to(raw, people) and (yield from _end_reply(number, at)):
            shown.append(key)
    return shown


def _end_reply(number: int, at: float) -> Op[bool]:
    """End one reply; True when a part of it is on the screen and has to get its last edit."""
    rows = yield sql(ROW, number)
    state, kind, parts, bubble = rows[0] if rows else ("sent", "", "", None)
    if state not in {"pending", "sending", "unknown"} or kind == BROKEN_OFF:
        return False
    if bubble is None or not parts_of(parts) or state == "unknown":
        yield from end_unsent(number, at, REVOKED)
        return False
    yield sql(SAY, number, REPLY, outbox_texts.ended(REVOKED), at)
    return True


def _goes_to(raw: object, people: set[str]) -> bool:
    source = source_of(raw)
    return source is not None and source.chat_type == "dm" and not people.isdisjoint((*ids_of(source), source.chat_id))


def _is_by(raw: object, people: set[str]) -> bool:
    source = source_of(raw)
    return source is not None and not people.isdisjoint(ids_of(source))


def approve_person(platform: str, people: Sequence[str], name: str | None, at: float, *, owner: bool) -> Op[None]:
    """Approve somebody under all these ids and those that are known as theirs; the first becomes their main id."""
    known: list[Row] = []
    for each in people:
        known += yield sql(THEIR_IDS, platform, each)
    for each in dict.fromkeys((*people, *(row[0] for row in known))):
        yield sql(PUT, platform, each, people[0], "granted", int(owner), name, at)


def list_people() -> Op[list[Json]]:
    """Everybody whom the owner approved or revoked, the newest first."""
    rows = yield sql(
        "SELECT platform, id, main_id, state, owner, name, at FROM person ORDER BY at DESC, platform, id LIMIT 1000"
    )
    names = ("platform", "id", "main_id", "state", "owner", "name", "at")
    return [{**dict(zip(names, row, strict=True)), "owner": bool(row[4])} for row in rows]
