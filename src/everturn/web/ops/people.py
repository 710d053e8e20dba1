"""People and access requests of chat platforms, for the operations page. As for `everturn pair`, only the owner or a key with
the scope `admin` may use it. Codes go in, never out.
"""

from __future__ import annotations

from typing import Literal, Protocol

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from everturn.clock import Clock
from everturn.model import Json
from everturn.operator.rows.actions import Impossible
from everturn.operator.rows.reading import PersonAct, PersonActed
from everturn.people.rules.admission import clean_code
from everturn.web.access import visitor_of
from everturn.web.control.pairing import NotApproved, named
from everturn.web.ops.acting import ID_CHARS, checked_text
from everturn.web.wire.answers import BadRequest
from everturn.web.wire.bodies import json_response, small_body
from everturn.web.wire.queries import whole_number

CODE_CHARS = 64


class PeopleOperator(Protocol):
    """Manages people (people/pairing.py)."""

    async def all(self) -> tuple[list[Json], list[Json]]:
        """Return the open access requests, and the approved and revoked people."""
        ...

    def listed(self) -> list[Json]:
        """Return the settings of each platform: who is allowed, and what strangers get as reply."""
        ...

    async def act(self, wanted: PersonAct) -> PersonActed | Impossible:
        """Approve or revoke a person, once for each id; returns after the commit."""
        ...


class PeopleAct(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of `POST /ops/api/people/act`: approve with a code (of a platform, or of any) or a request's number; allow or
    revoke a person, "platform:user".
    """

    action: Literal["approve", "allow", "revoke"]
    id: str
    code: str | None = None
    request: str | None = None
    platform: str | None = None
    person: str | None = None
    owner: bool = False


_read = msgspec.json.Decoder(PeopleAct).decode


class PeopleEndpoints:
    """The endpoints of people and access requests."""

    def __init__(self, people: PeopleOperator, clock: Clock) -> None:
        self._people = people
        self._clock = clock

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [
            Route("/ops/api/people", self.all, methods=["GET"]),
            Route("/ops/api/people/act", self.act, methods=["POST"]),
        ]

    async def all(self, _: Request) -> Response:
        """`GET /ops/api/people`: access requests, approved and revoked people, and settings."""
        requests, people = await self._people.all()
        return json_response(
            {"now": self._clock.now(), "requests": requests, "people": people, "settings": self._people.listed()}
        )

    async def act(self, request: Request) -> Response:
        """`POST /ops/api/people/act`: 200 and what was done, or 409 and why not."""
        visitor = visitor_of(request.scope)
        try:
            wanted = _wanted(_read(await small_body(request)), visitor.name if visitor else "owner", self._clock.now())
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BadRequest(f"the body is not a valid action: {error}") from None
        except NotApproved as error:
            raise BadRequest(str(error)) from None
        done = await self._people.act(wanted)
        if isinstance(done, Impossible):
            return json_response({"error": done.why}, 409)
        return json_response({"done": True, "said": done.said})


def _wanted(body: PeopleAct, actor: str, at: float) -> PersonAct:
    by = [name for name in ("code", "request", "person") if getattr(body, name) is not None]
    if len(by) != 1 or (by == ["person"]) is (body.action == "approve"):
        raise BadRequest("approve needs a code or a request; allow and revoke need a person")
    return PersonAct(
        id=checked_text("id", body.id, ID_CHARS),
        action=body.action,
        actor=actor,
        at=at,
        notice=0,
        code=None if body.code is None else clean_code(body.code[:CODE_CHARS]),
        request=None if body.request is None else whole_number("request", body.request),
        platform=None if body.platform is None else checked_text("platform", body.platform, CODE_CHARS),
        person=None if body.person is None else named(body.person),
        owner=body.owner,
    )
