"""Who may speak on chat platforms, over HTTP, for `everturn pair`. Codes go in, never out."""

from __future__ import annotations

import math
from typing import Protocol

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from everturn.clock import Clock
from everturn.decide import admission_words
from everturn.decide.admission import is_person
from everturn.decide.pairing import clean_code
from everturn.model import Json
from everturn.store.operations.admission import TurnedOut
from everturn.store.operations.pairing import Outcome, Paired
from everturn.web.answers import BadRequest
from everturn.web.bodies import json_response, small_body
from everturn.web.queries import whole_number

LONGEST_ID = 19  # digits, of what is said again
TOO_MANY = 429


class PeopleDesk(Protocol):
    """The running gateway, or the store of one that does not run."""

    async def all(self) -> tuple[list[Json], list[Json]]:
        """The open requests, and the people who were let in or turned out."""
        ...

    async def approve_code(self, code: str, platform: str | None, *, owner: bool) -> Paired:
        """Let in who was given this code."""
        ...

    async def approve_request(self, number: int, *, owner: bool) -> Paired:
        """Let in who asked under this number."""
        ...

    async def allow(self, platform: str, person: str, *, owner: bool) -> None:
        """Let somebody in who did not ask, or was turned out."""
        ...

    async def revoke(self, platform: str, person: str) -> list[TurnedOut]:
        """Turn somebody out at once."""
        ...

    async def knows(self, platform: str) -> bool:
        """Whether there is such a platform, or was."""
        ...


class ApproveRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of `POST /control/pair/approve`: a code (of a platform, or of any), or the number of a request."""

    code: str | None = None
    request: str | None = None
    platform: str | None = None
    owner: bool = False


class AllowRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of `POST /control/pair/allow`."""

    person: str
    owner: bool = False


class RevokeRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of `POST /control/pair/revoke`."""

    person: str


_read_approve = msgspec.json.Decoder(ApproveRequest).decode
_read_allow = msgspec.json.Decoder(AllowRequest).decode
_read_revoke = msgspec.json.Decoder(RevokeRequest).decode


class NotApproved(Exception):
    """Nobody was let in; why, in words, and as a status of HTTP."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


async def approve(desk: PeopleDesk, wanted: ApproveRequest, now: float) -> Json:
    """Let somebody in; raises NotApproved."""
    if wanted.request is not None:
        paired = await desk.approve_request(_number(wanted.request), owner=wanted.owner)
        why = admission_words.no_request(wanted.request[:LONGEST_ID])
    else:
        paired = await desk.approve_code(clean_code(wanted.code or ""), wanted.platform, owner=wanted.owner)
        why = admission_words.pair_wrong()
    if paired.locked_until > now:
        raise NotApproved(TOO_MANY, admission_words.pair_locked(math.ceil((paired.locked_until - now) / 60)))
    if paired.outcome is not Outcome.LET_IN:
        raise NotApproved(404, why)
    return {"let_in": paired.person, "name": paired.name, "owner": wanted.owner}


def _number(text: str) -> int:
    """A request's number; for what is none, a number that no request has."""
    try:
        return whole_number("request", text)
    except BadRequest:
        return 0


async def allow(desk: PeopleDesk, person: str, *, owner: bool) -> Json:
    """Let somebody in, named "platform:user"; raises NotApproved for a name that is none."""
    platform, user = named(person)
    known = await desk.knows(platform)
    await desk.allow(platform, user, owner=owner)
    return {"let_in": person, "owner": owner, "platform_known": known}


async def revoke(desk: PeopleDesk, person: str) -> Json:
    """Turn somebody out, named "platform:user"; raises NotApproved for a name that is none."""
    platform, user = named(person)
    known = await desk.knows(platform)
    ended = await desk.revoke(platform, user)
    return {"revoked": person, "stopped_turns": sum(each.turn is not None for each in ended), "platform_known": known}


def named(person: str) -> tuple[str, str]:
    """The platform and the user of "platform:user"; raises NotApproved for a name that is none."""
    platform, _, user = person.partition(":")
    if not is_person(platform, user):
        raise NotApproved(400, admission_words.nobody_there(person[:100]))
    return platform, user


class Pairing:
    """The endpoints."""

    def __init__(self, desk: PeopleDesk, clock: Clock) -> None:
        self._desk = desk
        self._clock = clock

    def routes(self) -> list[Route]:
        """Where they are."""
        return [
            Route("/control/pair", self.all, methods=["GET"]),
            Route("/control/pair/approve", self.approve, methods=["POST"]),
            Route("/control/pair/allow", self.allow, methods=["POST"]),
            Route("/control/pair/revoke", self.revoke, methods=["POST"]),
        ]

    async def all(self, _: Request) -> Response:
        """`GET /control/pair`."""
        requests, people = await self._desk.all()
        return json_response({"requests": requests, "people": people})

    async def approve(self, request: Request) -> Response:
        """`POST /control/pair/approve`."""
        try:
            wanted = _read_approve(await small_body(request))
            if (wanted.code is None) == (wanted.request is None):
                raise BadRequest('the body is {"code": "..."} or {"request": "..."}')
            return json_response(await approve(self._desk, wanted, self._clock.now()))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BadRequest(str(error)) from None
        except NotApproved as error:
            raise HTTPException(error.status, str(error)) from None

    async def allow(self, request: Request) -> Response:
        """`POST /control/pair/allow`."""
        try:
            wanted = _read_allow(await small_body(request))
            return json_response(await allow(self._desk, wanted.person, owner=wanted.owner))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BadRequest(str(error)) from None
        except NotApproved as error:
            raise HTTPException(error.status, str(error)) from None

    async def revoke(self, request: Request) -> Response:
        """`POST /control/pair/revoke`."""
        try:
            return json_response(await revoke(self._desk, _read_revoke(await small_body(request)).person))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BadRequest(str(error)) from None
        except NotApproved as error:
            raise HTTPException(error.status, str(error)) from None
