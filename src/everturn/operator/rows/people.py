"""Operator actions on people: approving and revoking, once for each id that the client gave. A pairing code is not
stored.
"""

from __future__ import annotations

import math

import msgspec

from everturn.operator.rows.actions import DONE_BEFORE, KEEP, Impossible
from everturn.operator.rules import operator_texts
from everturn.people.rows.admission import StoppedKey, approve_person, revoke
from everturn.people.rows.pairing import Approval, Paired, PairingOutcome, approve_code, approve_request
from everturn.people.rules import admission_texts
from everturn.store.interface import Op, sql


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
        return Impossible(admission_texts.pair_locked(math.ceil((paired.locked_until - act.at) / 60)))
    return Impossible(why)


def _decide(act: PersonAct, platform: str, user: str) -> Op[PersonActed | Impossible]:
    person = f"{platform}:{user}"
    if act.action == "allow":
        yield from approve_person(platform, [user], None, act.at, owner=act.owner)
        return PersonActed(said=operator_texts.approved(owner=act.owner), person=person)
    ended = yield from revoke(platform, user, act.at)
    stopped = sum(each.turn is not None for each in ended)
    return PersonActed(said=operator_texts.revoked(stopped), person=person, ended=tuple(ended))
