"""People and access requests of chat platforms over HTTP, for `everturn pair`. Codes go in, never out."""

from __future__ import annotations

import math
from typing import Protocol

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from everturn.clock import Clock
from everturn.model import Json
from everturn.people.rows.admission import StoppedKey
from everturn.people.rows.pairing import Paired, PairingOutcome
from everturn.people.rules import people_texts
from everturn.people.rules.admission import clean_code, is_person
from everturn.web.wire.answers import BadRequest
from everturn.web.wire.bodies import json_response, small_body
from everturn.web.wire.queries import whole_number

LONGEST_ID = 19  # digits, of what is said again
TOO_MANY = 429


class PeopleDesk(Protocol):
    """Manages people: in the running gateway, or in the store of a stopped one."""

    async def all(self) -> tuple[list[Json], list[Json]]:
        """Return the open access requests, and the approved and revoked people."""
        ...

    async def approve_code(self, code: str, platform: str | None, *, owner: bool) -> Paired:
        """Approve the person who got this pairing code."""
        ...

    async def approve_request(self, number: int, *, owner: bool) -> Paired:
        """Approve the access request with this number."""
        ...

    async def allow(self, platform: str, person: str, *, owner: bool) -> None:
        """Approve a person without an access request, or one who was revoked."""
        ...

    async def revoke(self, platform: str, person: str) -> list[StoppedKey]:
        """Revoke a person's access at once."""
        ...

    async def knows(self, platform: str) -> bool:
        """Whether this platform exists, or existed."""
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
    """Nobody was approved; the text says why, `status` is the HTTP status."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


async def approve(desk: PeopleDesk, wanted: ApproveRequest, now: float) -> Json:
    """Approve a person by code or request; raises NotApproved."""
    if wanted.request is not None:
        paired = await desk.approve_request(_number(wanted.request), owner=wanted.owner)
        why = people_texts.no_request(wanted.request[:LONGEST_ID])
    else:
        paired = await desk.approve_code(clean_code(wanted.code or ""), wanted.platform, owner=wanted.owner)
        why = people_texts.pair_wrong()
    if paired.locked_until > now:
        raise NotApproved(TOO_MANY, people_texts.pair_locked(math.ceil((paired.locked_until - now) / 60)))
    if paired.outcome is not PairingOutcome.APPROVED:
        raise NotApproved(404, why)
    return {"approved": paired.person, "name": paired.name, "owner": wanted.owner}


def _number(text: str) -> int:
    """Return a request's number; for an invalid one 0, which no request has."""
    try:
        return whole_number("request", text)
    except BadRequest:
        return 0


async def allow(desk: PeopleDesk, person: str, *, owner: bool) -> Json:
    """Approve the person "platform:user"; raises NotApproved for an invalid name."""
    platform, user = named(person)
    known = await desk.knows(platform)
    await desk.allow(platform, user, owner=owner)
    return {"approved": person, "owner": owner, "platform_known": known}


async def revoke(desk: PeopleDesk, person: str) -> Json:
    """Revoke the person "platform:user"; raises NotApproved for an invalid name."""
    platform, user = named(person)
    known = await desk.knows(platform)
    ended = await desk.revoke(platform, user)
    return {"revoked": person, "stopped_turns": sum(each.turn is not None for each in ended), "platform_known": known}


def named(person: str) -> tuple[str, str]:
    """Split "platform:user"; raises NotApproved for an invalid name."""
    platform, _, user = person.partition(":")
    if not is_person(platform, user):
        raise NotApproved(400, people_texts.no_such_person(person[:100]))
    return platform, user


class Pairing:
    """The endpoints of `everturn pair`."""

    def __init__(self, desk: PeopleDesk, clock: Clock) -> None:
        self._desk = desk
        self._clock = clock

    def routes(self) -> list[Route]:
        """Return the routes."""
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
                raise BadRequest('the body must be {"code": "..."} or {"request": "..."}')
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
