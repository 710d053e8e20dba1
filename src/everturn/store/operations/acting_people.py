"""What an operator does to people: letting in and turning out, once for each id that the client gave. The code of a pairing
goes in and is kept nowhere.
"""

from __future__ import annotations

import math

import msgspec

from everturn.decide import admission_words, ops_words
from everturn.store.interface import Op, sql
from everturn.store.operations.acting import DONE_BEFORE, KEEP, Impossible
from everturn.store.operations.admission import TurnedOut, let_in, revoke
from everturn.store.operations.pairing import Approval, Outcome, Paired, approve_code, approve_request


class PersonAct(msgspec.Struct, frozen=True, kw_only=True):
    """Approve by `code` or `request`, or `allow` or `revoke` a person; `notice` is made by the caller."""

    id: str
    action: str
    who: str
    at: float
    notice: int
    code: str | None = None
    request: int | None = None
    platform: str | None = None
    person: tuple[str, str] | None = None  # platform and user
    owner: bool = False


class PersonActed(msgspec.Struct, frozen=True, kw_only=True):
    """It is done, or was before: what is said, where something is owed, and whose work ended."""

    said: str
    person: str  # "platform:user"
    key: str | None = None
    ended: tuple[TurnedOut, ...] = ()


def act_on_person(act: PersonAct) -> Op[PersonActed | Impossible]:
    """Do it once; asked again with the same id it says the same."""
    rows = yield sql(DONE_BEFORE, act.id)
    if rows:
        action, target, key, said, _ = rows[0]
        return PersonActed(said=said, person=target, key=key or None) if action == act.action else _conflict()
    done = yield from _approve(act) if act.person is None else _decide(act, *act.person)
    if isinstance(done, PersonActed):
        yield sql(KEEP, act.id, act.action, done.person, act.who, done.key or "", done.said, None, act.at)
    return done


def _conflict() -> Impossible:
    return Impossible(ops_words.CONFLICT)


def _approve(act: PersonAct) -> Op[PersonActed | Impossible]:
    approval = Approval(at=act.at, notice=act.notice, owner=act.owner)
    if act.request is not None:
        paired, why = (yield from approve_request(act.request, approval)), ops_words.NO_REQUEST
    else:
        paired, why = (yield from approve_code(act.code or "", act.platform, approval)), ops_words.WRONG_CODE
    return _paired(act, paired, why)


def _paired(act: PersonAct, paired: Paired, why: str) -> PersonActed | Impossible:
    if paired.outcome is Outcome.LET_IN:
        return PersonActed(said=ops_words.let_in(owner=act.owner), person=paired.person, key=paired.key)
    if paired.locked_until > act.at:
        return Impossible(admission_words.pair_locked(math.ceil((paired.locked_until - act.at) / 60)))
    return Impossible(why)


def _decide(act: PersonAct, platform: str, user: str) -> Op[PersonActed | Impossible]:
    person = f"{platform}:{user}"
    if act.action == "allow":
        yield from let_in(platform, [user], None, act.at, owner=act.owner)
        return PersonActed(said=ops_words.let_in(owner=act.owner), person=person)
    ended = yield from revoke(platform, user, act.at)
    stopped = sum(each.turn is not None for each in ended)
    return PersonActed(said=ops_words.turned_out(stopped), person=person, ended=tuple(ended))
